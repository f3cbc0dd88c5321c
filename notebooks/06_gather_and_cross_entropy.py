# %% [markdown]
# # Gather, scatter and cross entropy
#
# Where an index comes out of memory, no graph can know which element is read. It can know everything else: which axes
# are still one, which condition the loaded value must meet, and whether the gathered value can be had without storing
# the tensor that it is gathered from. Cross entropy is the case that pays: its gradient, written naively, makes a
# matrix of zeros as large as the logits.

# %%
import numpy as np

import idgraph as ig

# %% [markdown]
# ## Loaded coordinates
#
# `take_along_dim` reads one element of each row, at a place that `labels` says. The row axis is mapped as everywhere;
# the other one is not: its coordinate is a loaded value, with a name, a source and bounds of its own.

# %%
f = ig.Fusion("pick")
x = f.input("x", shape=(4, 10))
labels = f.input("labels", shape=(4, 1), dtype="int64")
picked = f.output(ig.take_along_dim(x, labels, 1))
m = ig.IdModel(f)
read = m.access(picked.definition, x)
print(read)
print("loaded:", {name: source.name for name, (source, _) in read.loads.items()})
print("must hold:", *read.load_bounds)
for k, what in enumerate(("rows", "classes")):
    print(f"{what}: one axis?", m.exact.mapped(x.logical[k], picked.logical[k]))

# %% [markdown]
# No kernel reads out of bounds; a *checked* run says where an index would have, by tensor, place and value.

# %%
bad = {"x": np.zeros((4, 10), "float32"), "labels": np.array([[3], [0], [10], [9]])}
try:
    ig.emit(f, target="numpy").run(bad, checked=True)
except ig.IdGraphError as error:
    print(error)

# %% [markdown]
# ## Gather of something computed
#
# `log_softmax` makes as many values as there are logits; the loss needs one of each row. Inlined, the gather asks for
# the value *at the loaded index*, and the index map of the inner operation carries the loaded value through: that is
# recomputing `x[i] - max - log(sum)` at one index instead of storing all of it.

# %%
g = ig.Fusion("loss")
logits = g.input("logits", shape=(4, 10))
target = g.input("target", shape=(4,), dtype="int64")
loss = g.output(ig.cross_entropy(logits, target, reduction="none"))
print(g)

# %% [markdown]
# Scheduled automatically, the whole of it is one kernel: the row is read, its maximum and its sum are kept, and the
# logit of the target is read once more by itself.

# %%
ig.schedule.auto(g)


def skeleton(f):
    """Loops of more than one turn, loads, stores and sums of the kernel."""
    lines = [line.split("  #")[0] for line in ig.emit(f, target="python").source.splitlines()]
    words = ("def ", "for ", "buf", "acc")
    kept = [line for line in lines if any(w in line for w in words) and "range(1)" not in line and "# " not in line]
    return "\n".join(kept)


print(skeleton(g))

# %% [markdown]
# Nothing as large as the logits is stored. Every address and every value is checked as always:

# %%
report = ig.validate(g, target="python", seed=0)
print("ok:", report.ok, "  points:", report.points)

# %% [markdown]
# ## Backward
#
# The gradient is `softmax(x) - onehot(target)`. The one-hot is a scatter of ones upon zeros with one index in each
# row, and such a scatter *is* `where(target == iota, 1, 0)`: a comparison inside the loop, and no matrix.

# %%
h = ig.Fusion("backward")
logits = h.input("logits", shape=(4, 10))
target = h.input("target", shape=(4,), dtype="int64")
grad = h.input("grad", shape=(4,))
h.output(ig.cross_entropy_backward(grad, logits, target, reduction="none"))
ig.schedule.auto(h)
print(skeleton(h))

# %%
report = ig.validate(h, target="python", seed=0)
print("ok:", report.ok, "  points:", report.points)

# %% [markdown]
# Both against NumPy, in float64:

# %%
rng = np.random.default_rng(0)
z = rng.standard_normal((4, 10)).astype("float32")
y = np.array([3, 0, 7, 9])
dy = np.ones(4, "float32")
e = np.exp(z.astype("float64"))
p = e / e.sum(1, keepdims=True)
got = ig.emit(g, target="numpy").run({"logits": z, "target": y})[loss.name]
print("forward: ", np.allclose(got, -np.log(p[np.arange(4), y]), atol=1e-6))
got = next(iter(ig.emit(h, target="numpy").run({"logits": z, "target": y, "grad": dy}).values()))
print("backward:", np.allclose(got, p - np.eye(10)[y], atol=1e-6))
