# %% [markdown]
# # Memory formats
#
# A tensor of shape (N, C, H, W) that lies in memory as (N, H, W, C): what becomes of a pointwise fusion that does not
# look at strides, and of one whose loops follow memory. The example is that of NVIDIA/Fuser #1756.

# %%
import json
from pathlib import Path

import idgraph as ig


def example(batch: int = 32):
    f = ig.Fusion("scale, bias, relu and its mask")
    n, c, h, w = batch, 1024, 25, 25
    x = f.input("x", shape=(n, c, h, w), strides=(c * h * w, 1, c * w, c), dtype="float16")
    s, b = (ig.cast(f.input(k, shape=(1, c, 1, 1), dtype="float16"), "float32") for k in "sb")
    y = ig.cast(x, "float32") * s + b
    f.output(ig.cast(ig.relu(y), "float16"), y > 0)
    return f


f = example()
print(f)

# %% [markdown]
# ## The order of axes
#
# Both results get the order of `x`, which most of their axes come from. Axes of one element have no say.

# %%
decisions = ig.layout.infer(f)
for t in f.outputs:
    print(decisions[t].explain())

# %% [markdown]
# ## Transactions
#
# A warp of 32 threads asks for one element each. Counted are the sectors of 32 bytes that one load of `x` takes, with
# results in logical order and with results as `x` lies.


# %%
def sectors(fusion, layout):
    ig.schedule.auto(fusion, layout=layout)
    t = fusion.outputs[0]
    model = ig.IdModel(fusion)
    read = model.access(next(e for e in fusion.exprs if fusion["x"] in e.inputs), fusion["x"])
    names = [loop.name for loop in read.loops]
    threads = next(k for k, d in enumerate(read.expr.output.loop) if d.parallel == "threadIdx.x")
    zero = dict.fromkeys(names, 0)
    touched = {int(read.address.evaluate({**zero, names[threads]: k})) * 2 // 32 for k in range(32)}
    lanes = next((int(d.extent) for d in t.loop if d.parallel == "vectorize"), 1)
    return len(touched), lanes


before, after = sectors(example(), False), sectors(example(), True)
print(f"logical order:  {before[0]:3} sectors for 32 threads of {before[1]} element(s)")
print(f"order of x:     {after[0]:3} sectors for 32 threads of {after[1]} element(s)")

# %% [markdown]
# ## The kernel
#
# One kernel, no shared memory, vectors of eight.

# %%
f = example()
ig.schedule.auto(f)
(kernel,) = ig.emit(f, "cuda").kernels
print(kernel)

# %% [markdown]
# Every address is what the operations mean; checked here on a smaller batch.

# %%
small = example(batch=1)
ig.schedule.auto(small)
print(ig.validate(small, target="numpy").ok)

# %% [markdown]
# ## Time
#
# Measured on an H200 (`tools/bench/results/gpu_layout.json`), beside a copy of the same bytes. Results in logical order
# took three kernels and 315 us.

# %%
stored = json.loads(Path("../tools/bench/results/gpu_layout.json").read_text(encoding="utf-8"))
row = next(r for r in stored["rows"] if r["key"] == "two_outputs")
for name in ("copy_us", "us", "compile_us", "eager_us"):
    print(f"{name:>11} {row[name]:7.1f}")

# %% [markdown]
# ## Odd sizes
#
# 1003 elements are 250 vectors of four and three elements. Rows of 50257 elements begin at another alignment each: what
# is before the first aligned element, and behind the last whole vector, goes one by one.

# %%
g = ig.Fusion("odd")
a = g.input("a", shape=(1003,))
g.output(ig.relu(a))
print(ig.IdModel(g).access(g.exprs[0], a).explain_vector_width("i0"))

# %%
g = ig.Fusion("odd rows")
a, m = g.input("a", shape=(30, 50257)), g.input("m", shape=(30, 1))
g.output(ig.exp(a - m))
ig.schedule.auto(g)
print(ig.emit(g, "cuda").kernels[0])

# %% [markdown]
# ## Sums of rows that lie by columns
#
# Neighbouring threads take neighbouring rows, four each, as one access holds; the threads of one row are in the block's
# other direction.

# %%
g = ig.Fusion("row sums")
t = g.output(ig.sum(g.input("a", shape=(4096, 8192), strides=(1, 4096)), 1))
ig.schedule.auto(g)
print([(str(d.extent), d.parallel) for d in t.loop])
