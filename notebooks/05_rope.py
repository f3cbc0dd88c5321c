# %% [markdown]
# # RoPE, four conventions
#
# Rotary position embedding turns pairs of channels by an angle. *Which* two channels make a pair is a convention, and
# models disagree: Llama pairs channel `d` with `d + D/2` (half), GPT-J pairs `2d` with `2d + 1` (interleaved),
# ChatGLM and others turn the first channels only (partial), Qwen2-VL takes the angle from one of three positions
# (mrope). All are slices and a cat; the difference is in the index maps, so this is where to look when a checkpoint
# gives nonsense.

# %%
import itertools

import numpy as np

import idgraph as ig

S, D = 6, 16  # positions, channels of a head
HALF = D // 2

# %% [markdown]
# ## The four, as fusions
#
# Each is written as its model writes it.


# %%
def half(f, x):
    """Llama, Qwen, NeoX: rotate_half."""
    return ig.cat([-x[:, HALF:], x[:, :HALF]], dim=1)


def interleaved(f, x):
    """GPT-J, the original RoFormer: rotate_every_two."""
    return ig.reshape(ig.stack([-x[:, 1::2], x[:, ::2]], dim=2), x.shape)


def rope(rotate):
    f = ig.Fusion(rotate.__name__)
    x = f.input("x", shape=(S, D))
    cos, sin = f.input("cos", shape=(S, D)), f.input("sin", shape=(S, D))
    f.output(ig.add(x * cos, rotate(f, x) * sin, name="y"))
    return f


def partial():
    """The first HALF channels are turned, the others pass."""
    f = ig.Fusion("partial")
    x = f.input("x", shape=(S, D))
    cos, sin = f.input("cos", shape=(S, HALF)), f.input("sin", shape=(S, HALF))
    turned, rest = x[:, :HALF], x[:, HALF:]
    quarter = HALF // 2
    rotated = ig.cat([-turned[:, quarter:], turned[:, :quarter]], dim=1)
    f.output(ig.cat([turned * cos + rotated * sin, rest], dim=1))
    f.outputs[0].name = "y"
    return f


def mrope(sections=(2, 3, 3)):
    """Three positions (time, height, width); each section of channels takes its angle from one of them."""
    f = ig.Fusion("mrope")
    x = f.input("x", shape=(S, D))
    tables = []
    for name in ("cos", "sin"):
        table = f.input(name, shape=(3, S, D))
        edges = np.cumsum([0, *sections, *sections])
        parts = [ig.select(table[:, :, a:b], 0, k % 3) for k, (a, b) in enumerate(itertools.pairwise(edges))]
        tables.append(ig.cat(parts, dim=1))
    f.output(ig.add(x * tables[0], half(f, x) * tables[1], name="y"))
    return f


fusions = {"half": rope(half), "interleaved": rope(interleaved), "partial": partial(), "mrope": mrope()}
fusions["half"]


# %% [markdown]
# ## Their index maps, side by side
#
# For each convention: every operation that reads `x`, and where. Beside it the pairs as the kernel sees them, found
# without any index map: change one channel of `x` and look which other channel of `y` changes.
# %%
def partner(f):
    """For each channel of x, the other channels of y that it touches."""
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.random(t.shape).astype("float32") for t in f.inputs}
    program = ig.emit(f, target="numpy")
    base = program.run(arrays)["y"]
    found = {}
    for channel in range(D):
        changed = dict(arrays, x=arrays["x"].copy())
        changed["x"][:, channel] += 1.0
        touched = np.flatnonzero((program.run(changed)["y"] != base).any(axis=0))
        found[channel] = [int(d) for d in touched if d != channel]
    return found


for name, f in fusions.items():
    m = ig.IdModel(f)
    print(name)
    for e in f["x"].uses:
        access = m.access(e, f["x"])
        print(f"    {e.op:6} reads x{[str(c) for c in access.coordinates]}".replace("'", ""))
    pairs = partner(f)
    print("    pairs:", ", ".join(f"{a}-{b[0]}" for a, b in pairs.items() if b and a < b[0]))

# %% [markdown]
# Half: `x[d + 8]` and `x[d]`. Interleaved: `x[2*d + 1]` and `x[2*d]`. The strides in the index map *are* the
# convention. (mrope pairs like half; it differs in where the angle comes from.)

# %%
m = ig.IdModel(fusions["mrope"])
cos = fusions["mrope"]["cos"]
for e in cos.uses:
    print(m.access(e, cos))

# %% [markdown]
# ## Does this checkpoint use the other convention?
#
# The two conventions are the same rotation after a permutation of channels. Half pairs `d` with `d + D/2`; let `p`
# put channel `d` of half where interleaved wants it. Then `interleaved(p(x)) = p(half(x))`, so a checkpoint of one
# kind becomes one of the other by permuting the rows of its query and key projections by `p` for each head: what
# converters between model formats do.
#
# `p` as an index map: channel `c` of interleaved is channel `c%2*(D/2) + c//2` of half. It is a reshape to `[2,
# D/2]`, a transpose, and a reshape back; idgraph derives the formula from those three.

# %%
g = ig.Fusion("p")
x = g.input("x", shape=(D,))
y = g.output(ig.reshape(ig.permute(ig.reshape(x, (2, HALF)), (1, 0)), (D,)))
ig.schedule.like(g, y)
ig.schedule.inline_most(g)
p = ig.IdModel(g).access(g["t1"].definition, x).coordinates[0]
print("p reads channel", p)
print(ig.prove_equal(p, f"i0%2*{HALF} + i0//2", {"i0": D}))

# %% [markdown]
# And `p` carries the one into the other, value by value:

# %%
rng = np.random.default_rng(1)
order = [p.evaluate({"i0": c}) for c in range(D)]
angles = rng.random((S, HALF))
wide = np.concatenate([angles, angles], axis=1)  # half: angle of pair d stands at d and d + D/2
arrays = {"x": rng.random((S, D)), "cos": np.cos(wide), "sin": np.sin(wide)}
arrays = {name: a.astype("float32") for name, a in arrays.items()}
by_half = ig.emit(fusions["half"], target="numpy").run(arrays)["y"]
permuted = {name: np.ascontiguousarray(a[:, order]) for name, a in arrays.items()}
by_interleaved = ig.emit(fusions["interleaved"], target="numpy").run(permuted)["y"]
print("interleaved(p(x)) == p(half(x)):", np.array_equal(by_interleaved, by_half[:, order]))
print(
    "interleaved(x)    ==   half(x): ",
    np.array_equal(ig.emit(fusions["interleaved"], target="numpy").run(arrays)["y"], by_half),
)

# %% [markdown]
# So, to find out which convention a checkpoint was trained with: import its reference code with `ig.from_torch`, and
# read how the query tensor is indexed: a slice at `+ D/2` is half, a stride of 2 is interleaved. Then look at the
# code that runs it. If they differ, permute the projections by `p`.
#
# ## One kernel
#
# With slices and cat in the loop of `y`, RoPE is one loop nest; the exact graph is cyclic (`03_resize_cycle`), the
# index maps are right, and the validator agrees at every point.

# %%
for name, f in fusions.items():
    ig.schedule.like(f, f["y"])
    ig.schedule.inline_most(f)
    m = ig.IdModel(f)
    shifts = [str(c.shift) for c in m.exact.cycles() if c.kind == "shift"]
    report = ig.validate(f, target="python")
    verdict = "ok" if report.ok else report.counterexample
    print(f"{name:12} shift cycles {shifts}   checked {report.points} points: {verdict}")

# %%
print(ig.emit(fusions["half"], target="python").source)
