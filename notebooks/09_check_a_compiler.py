# %% [markdown]
# # Check a compiler
#
# A compiler turns shapes into loops and index formulas. Are these the elements that the program means? `ig.check`
# proves it, counts it out, or shows a point where it is wrong.

# %%
from dataclasses import replace

import torch

import idgraph as ig
from idgraph.check.decide import decide
from idgraph.check.inductor_capture import Capture

# %% [markdown]
# ## What TorchInductor makes of a rotation
#
# Forward and backward, before and after its own loop transformations. Nothing is compiled.


# %%
def rope(q, cos, sin):
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


torch.manual_seed(0)
q = torch.randn(2, 4, 16, 8, requires_grad=True)
cos, sin = torch.randn(16, 8), torch.randn(16, 8)
report = ig.check.inductor(rope, (q, cos, sin))
print(report)

# %%
for row in report.rows:
    if row.stage == "after":
        print(f"{row.graph:<14} {row.node} {row.role}s {row.buffer:<12} {row.verdict}: {row.because}")

# %% [markdown]
# ## The formulas behind it

# %%
watched = Capture(name="rope")
watched.run(rope, (q, cos, sin))
program = watched.lowered[0].after
for nest in program.nests:
    for write in nest.writes:
        loops = ", ".join(f"{a.name} < {a.extent}" for a in nest.loops)
        print(
            f"{nest.name} for {loops}: {write.buffer}[{write.index}] <-",
            ", ".join(f"{r.buffer}[{r.index}]" for r in write.reads),
        )

# %% [markdown]
# ## A planted fault
#
# One offset is made wrong by one. The check answers with the loop point, the element that
# is read, and the element that is meant.

# %%
nest = program.nests[0]
(write,) = nest.writes
wrong = replace(write, reads=(replace(write.reads[0], index=write.reads[0].index + 1),))
faulty = replace(program, nests=(replace(nest, writes=(wrong,)), *program.nests[1:]))
print(decide(faulty).refuted[0])

# %% [markdown]
# ## Another compiler's loops
#
# Any compiler can write its nests as JSON; the meaning is a fusion's text. Here is a tiled transposition
# with a mask for the tail.

# %%
text = """fusion "transpose" {
  x = input(shape=(10, 7), dtype="float32")
  y = permute(x, dims=(1, 0))
  output y
}"""
nest = {
    "name": "tile",
    "loops": [["yo", 2], ["xo", 3], ["yi", 4], ["xi", 4]],
    "writes": [
        {
            "buffer": "y",
            "index": "(yo*4 + yi)*10 + xo*4 + xi",
            "when": "(xo*4 + xi < 10) & (yo*4 + yi < 7)",
            "reads": [{"buffer": "x", "index": "(xo*4 + xi)*7 + yo*4 + yi"}],
        }
    ],
}
print(ig.check.program({"program": text, "nests": [nest]}))
nest["writes"][0]["when"] = "(xo*4 + xi <= 10) & (yo*4 + yi < 7)"
print(ig.check.program({"program": text, "nests": [nest]}))
