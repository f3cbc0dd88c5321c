# %% [markdown]
# # A real model
#
# A decoder block as Llama has it, written here in plain PyTorch: norm, grouped-query attention with RoPE, a gated
# feed-forward part, residuals. idgraph imports it, says what it reads and where, finds the cycles, runs it through
# its own kernels, and checks them.

# %%
import torch
from IPython.display import HTML
from torch import nn

import idgraph as ig

torch.manual_seed(0)

WIDTH, HEADS, GROUPS, HEAD, TOKENS = 32, 4, 2, 8, 6


# %% [markdown]
# ## The model


# %%
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rope(x, cos, sin):
    return x * cos + rotate_half(x) * sin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = Norm(), Norm()
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.up, self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        n = x.shape[1]
        q, k, v = self.qkv(self.norm(x)).split([HEADS * HEAD, GROUPS * HEAD, GROUPS * HEAD], dim=-1)
        q = rope(q.view(1, n, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = rope(k.view(1, n, GROUPS, HEAD).transpose(1, 2), cos, sin)
        v = v.view(1, n, GROUPS, HEAD).transpose(1, 2)
        k, v = (t.repeat_interleave(HEADS // GROUPS, dim=1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / HEAD**0.5
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(1, n, HEADS * HEAD))
        y = self.norm2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


block = Block().eval()
angles = torch.outer(torch.arange(TOKENS), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(1, 2)
example = (torch.randn(1, TOKENS, WIDTH), angles.cos(), angles.sin())

# %% [markdown]
# ## Import
#
# `from_torch` takes the function or module and example arguments. Every operation either has an index meaning here
# (*mapped*) or is *opaque* with a reason, in which case the program is cut around it and torch runs it.

# %%
imp = ig.from_torch(block, example)
print(imp.coverage)

# %% [markdown]
# Each operation remembers the line of the model that it came from:

# %%
for e in imp.fusion.exprs[:3] + imp.fusion.exprs[-3:]:
    print(e.op, "->", e.output.name, "   ", str(e.source_line).split("/")[-1])

# %% [markdown]
# ## What it tells
#
# `imp.report()` is the whole of it: cycles with their lines, every access with its coordinates, what is contiguous
# and how wide it may be read, what depends on data, bytes. It prints as tables, saves as one HTML page that opens
# offline (`report.save("model.html")`), and is data (`report.to_dict()`). Here is its summary, as a notebook shows
# it.

# %%
report = imp.report()
HTML(report._repr_html_())

# %% [markdown]
# The cycles are RoPE. The queries' head axis and the keys' are one axis here (both are multiplied by `cos`), so the
# two rotations are one cause, found where it was written first.

# %%
m = ig.IdModel(imp.fusion)
for cycle in m.exact.cycles():
    print(cycle.kind, cycle.shift)
    for line in dict.fromkeys(str(line).split("/")[-1] for line in cycle.lines):
        print("   ", line)

# %% [markdown]
# Attention maps a tensor onto itself: the scores' two axes are both positions of one sequence, as in `t + t.T`. The
# graph says so; the index maps do not care.

# %%
tensor, axis, other, _ = m.exact.self_mappings[0]
print(tensor.name, tuple(map(str, tensor.shape)), ":", axis, "and", other)
print(m.index_map(tensor.definition))

# %% [markdown]
# And the slices of the rotation read where they should, whatever the exact graph says:

# %%
for e in imp.fusion.exprs:
    if e.op == "slice" and str(e.output.shape[-1]) == str(HEAD // 2):
        print(m.access(e, e.inputs[0]))

# %% [markdown]
# ## Run it, and check it
#
# The imported program runs through idgraph's kernels and is compared with torch. Then every address of every access
# is compared with an oracle that knows only what the operations mean.

# %%
with torch.no_grad():
    expected, got = block(*example), imp.run(*example)
print("equal to torch:", torch.allclose(expected, got, atol=1e-6))

# %%
checked = ig.validate(imp.fusion, target="numpy")
print("ok:", checked.ok, "  points:", checked.points)

# %% [markdown]
# ## A loss with labels
#
# Data-dependent accesses are part of the picture: an embedding reads rows where a tensor says. The loaded index is a
# symbol in the index map, and the condition that it is in bounds is stated apart.

# %%
embedding = nn.Embedding(100, WIDTH)
tokens = torch.tensor([[3, 14, 15, 92]])
looked_up = ig.from_torch(embedding, (tokens,))
m = ig.IdModel(looked_up.fusion)
for e in looked_up.fusion.exprs:
    for t in dict.fromkeys(e.inputs):
        access = m.access(e, t)
        if access.loads:
            print(access)
            print(
                "    loaded:",
                {name: source.name for name, (source, _) in access.loads.items()},
                "must hold:",
                access.load_bounds,
            )
