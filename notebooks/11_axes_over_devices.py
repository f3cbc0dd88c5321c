# %% [markdown]
# # Axes over devices
#
# A tensor that is spread over several devices is a tensor with one more split: the outer part of an axis runs over the
# devices instead of a loop. All questions stay the same: which element, where, and is this step the same on both sides.

# %%
import numpy as np

import idgraph as ig

mesh = ig.Mesh(x=2, y=2)
f = ig.Fusion("spread")
x = f.input("x", shape=(8, 6)).shard(0, "x").shard(0, "y", inner=True)
y = f.output(ig.sum(ig.relu(x) * 2.0, 1))
print(x.placement)
print(ig.shard.owner(x)(5, 2))

# %% [markdown]
# Axis 0 is cut into two blocks over `x`; what a block has is dealt out over `y`, every second row. Ranks are numbered
# with the last axis of the mesh fastest.

# %%
ig.shard.owner(x)

# %% [markdown]
# ## What follows
#
# One placement is given; the others follow from the maps of the operations. The sum runs along an axis that every
# device has all of, so it is local.

# %%
print(ig.shard.propagate(f))
for e in f.exprs:
    print(ig.shard.explain(f, e).verdict, e.op)

# %% [markdown]
# ## What must move
#
# Rows are shifted by one: each device lacks one row of its neighbour. The move has a name and a size, and an element
# shows it.

# %%
g = ig.Fusion("shift")
a = g.input("a", shape=(8, 6)).shard(0, ig.Mesh(x=4)["x"])
b = g.output(ig.roll(a, 1, 0).shard(0, "x"))
print(ig.shard.explain(g, b.definition))

# %% [markdown]
# ## Running
#
# One list of steps for all devices: kernels on what each has, and moves between them. Here the devices are simulated in
# this process; `torch.distributed` runs the same steps in one process a device.

# %%
program = ig.shard.emit(g)
print(program)
data = np.arange(48, dtype=np.float32).reshape(8, 6)
print((program.run({"a": data})[b.name] == np.roll(data, 1, 0)).all())

# %% [markdown]
# ## A reshape
#
# Merging the sharded axis with the one inside it moves nothing; with the one outside of it, blocks of the merged axis
# are other elements. Nothing but the maps says so.

# %%
for shape, axis in (((4, 6), 0), ((4, 6), 1)):
    h = ig.Fusion("merge")
    t = h.input("t", shape=shape).shard(axis, ig.Mesh(x=2)["x"])
    u = h.output(ig.reshape(t, (24,)).shard(0, "x"))
    print(t.placement, "->", ig.shard.explain(h, u.definition).verdict)
