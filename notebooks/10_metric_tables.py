# %% [markdown]
# # Metric tables
#
# Which kernels use the memory well, why operations do not share a kernel, and how many bytes fusing them would save:
# rows of data, the same columns for every model. Here four small models; `idgraph sweep GRAPHS --csv FOLDER` does it
# for a folder of captured ones.

# %%
import tempfile
from pathlib import Path

import duckdb
import matplotlib.pyplot as plt
import pandas as pd
import torch

import idgraph as ig

# %% [markdown]
# ## Four models


# %%
def rotation(q, k, cos, sin):
    def turned(x):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    return turned(q), turned(k)


def windows(x):
    batch, height, width, channels = x.shape
    x = torch.roll(x, (-3, -3), (1, 2)).view(batch, height // 7, 7, width // 7, 7, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, channels)


def block(x, weight, bias, up):
    normed = torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)
    return torch.softmax(normed + x, -1), (normed * up).sum(0)


def both_ways(x):
    return x.sum(1), torch.exp(x).t(), x[:, :256] * 2 + x[:, 256:]


torch.manual_seed(0)
heads, table = (torch.randn(4, 16, 512, 64) for _ in range(2)), torch.randn(512, 64)
models = {
    "rotation": (rotation, (*heads, table, table.flip(0))),
    "windows": (windows, (torch.randn(8, 56, 56, 96),)),
    "block": (block, (torch.randn(2048, 768), torch.ones(768), torch.zeros(768), torch.randn(768))),
    "both ways": (both_ways, (torch.randn(1024, 512),)),
}

# %% [markdown]
# ## Rows
#
# Each model is imported, scheduled and emitted for CUDA. Its kernels are counted, and their time is estimated from the
# data of an H200: no GPU is needed. `to_csv` adds the rows to a folder; rows of the same model are replaced.

# %%
folder = Path(tempfile.mkdtemp())
for name, (function, arguments) in models.items():
    found = ig.from_torch(function, arguments).metrics(model=name)
    found.to_csv(folder)
print(found)

# %%
kernels = pd.read_csv(folder / "kernel_metadata.csv")
kernels[["model", "kernel", "bytes_read", "bytes_written", "sectors", "flops", "bound"]]

# %% [markdown]
# DuckDB reads the same files.

# %%
duckdb.sql(f"""
    select model, count(*) as kernels, sum(bytes_moved) as moved
    from '{folder}/kernel_metadata.csv' group by model order by moved desc
""").df()

# %% [markdown]
# ## Kernels by share of bandwidth
#
# Small kernels are all launch: these models are small on purpose.

# %%
kernels = kernels.sort_values("bandwidth_share")
figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
colours = {m: f"C{n}" for n, m in enumerate(models)}
axes.barh(
    kernels["model"] + ", " + kernels["kernel"],
    kernels["bandwidth_share"],
    color=[colours[m] for m in kernels["model"]],
)
axes.set(xlabel="estimated share of the device's bandwidth", xlim=(0, 1), title="kernels by share of bandwidth")
plt.show()

# %% [markdown]
# ## Why operations stay apart, by model
#
# A pair that one kernel holds already, with loops of its own for each, is not a failure.

# %%
failures = pd.read_csv(folder / "fusion_failures.csv")
apart = failures[~failures["same_kernel"].astype(bool)]
counts = apart.groupby(["model", "cause"]).size().unstack(fill_value=0).reindex(list(models), fill_value=0)
print(counts)
axes = counts.plot.bar(stacked=True, figsize=(8, 3.5), rot=0, title="causes by model")
axes.set(ylabel="pairs of operations", xlabel="")
axes.yaxis.get_major_locator().set_params(integer=True)
axes.figure.tight_layout()
plt.show()

# %% [markdown]
# ## Bytes that fusing would save

# %%
saved = apart.groupby("model")["bytes_saved"].sum().reindex(list(models), fill_value=0)
moved = kernels.groupby("model")["bytes_moved"].sum().reindex(list(models))
both = pd.DataFrame({"moved now": moved, "saved by fusing": saved}) / 2**20
print(both.round(2))
axes = both.plot.bar(figsize=(8, 3.5), rot=0, title="MiB moved, and MiB that one kernel for each pair would save")
axes.set(ylabel="MiB", xlabel="")
axes.figure.tight_layout()
plt.show()
