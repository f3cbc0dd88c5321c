# %% [markdown]
# # IterDomains
#
# A tensor in a compiler is not its data but its *axes*: what they count, how they came from other axes, in which
# order they lie in memory and in which order a kernel walks them. An axis here is an `IterDomain` (nvFuser's word).
# This tutorial makes some, transforms them with Split, Merge, Resize and Swizzle, and reads the index maps that come
# out.

# %%
import idgraph as ig

# %% [markdown]
# ## Four views of one tensor
#
# Every tensor has four tuples of axes. *Root*: as the operation that makes it sees it. *Logical*: as its readers see
# it, and what `.shape` says. *Allocation*: the order in memory. *Loop*: the loops of the kernel, outermost first.
# They are the same axes until something is done to one of them.

# %%
f = ig.Fusion("views")
t0 = f.input("t0", shape=(6, 8))
t1 = ig.reshape(t0, (4, 12))
t2 = f.output(ig.exp(t1))
for name in ("root", "logical", "allocation", "loop"):
    print(f"{name:11}", *getattr(t1, name))

# %% [markdown]
# The reshape lies between root and logical: 6 x 8 is merged to 48 and split to 4 x 12. An axis knows the expression
# that made it. Two axes with one extent are two axes: equality is identity, and only a graph may say that they are
# the same.

# %%
outer, inner = t1.logical
print(outer.definition)
print("made of", *outer.definition.inputs, "which is", outer.definition.inputs[0].definition)
print("kind", outer.kind, "  extent", outer.extent, "  parallel", outer.parallel)

# %% [markdown]
# ## Scheduling is the same algebra on loop axes
#
# `split`, `merge`, `reorder` act on the loop axes only; the logical axes stay what they are. The loop variables are
# named by their place, outermost first.

# %%
t2.merge(0)  # 4, 12 -> 48
t2.split(0, 5)  # 48 -> 10, 5: the last outer turn has three elements too few
print("loop", *t2.loop)
m = ig.IdModel(f)
print(m.index_map(t2.definition))

# %% [markdown]
# An index map is coordinates *and* the condition under which they mean something: five does not divide 48, so the
# tenth turn of the outer loop would run past the end. A coordinate is an expression; it can be evaluated, printed as
# sympy, and asked for its range.

# %%
access = m.access(t2.definition, t2)
row, column = access.coordinates
print("row:", row, "  range", row.range, "  at i0=9, i1=2:", row.evaluate({"i0": 9, "i1": 2}))
print("as sympy:", row.sympy())
print("predicate:", access.predicate)
print("address:", access.address, "  bits:", access.index_bits)

# %% [markdown]
# ## Split inner, split outer
#
# An inner split of 48 by 5 makes loops (10, 5): neighbours stay neighbours. An outer split makes (5, 10): five parts
# of ten consecutive elements each.

# %%
for inner in (True, False):
    g = ig.Fusion("split")
    x = g.input("x", shape=(48,))
    y = g.output(ig.exp(x))
    y.split(0, 5, inner=inner)
    print("inner" if inner else "outer", *y.loop, "  ", ig.IdModel(g).access(y.definition, y).coordinates[0])

# %% [markdown]
# ## Resize: slices, pads, cat
#
# A slice cuts its axis, a pad extends it: both are one Resize with the number of elements added on the left and on
# the right (negative: cut). Reading through a Resize backward subtracts what was added on the left.

# %%
g = ig.Fusion("resizes")
x = g.input("x", shape=(10,))
cut = ig.copy(x[3:8], name="cut")
padded = ig.pad(x, (2, 1))
g.output(cut)
g.output(padded)
for t in (g["cut"].definition.inputs[0], padded):
    print(t.logical[0].definition, "  reads x at", ig.IdModel(g).access(t.definition, x).coordinates[0])

# %% [markdown]
# The pad reads `x` only where `x` has elements. That is in the predicate of the read, not of the write:

# %%
print(ig.IdModel(g).index_map(padded.definition))

# %% [markdown]
# A step is a `Stride`, a flip a stride of -1, `roll` a `Roll`; each is an axis expression with one rule forward and
# one backward, so slices with steps index like everything else.

# %%
g = ig.Fusion("more")
x = g.input("x", shape=(12,))
for t in (x[1::3], ig.flip(x, (0,)), ig.roll(x, 5, 0)):
    g.output(t)
    print(t.definition.op, *t.logical, "  reads x at", ig.IdModel(g).access(t.definition, x).coordinates[0])

# %% [markdown]
# ## Swizzle
#
# A swizzle permutes one axis by another: `xor` is what keeps a transposed tile in shared memory free of bank
# conflicts. Its own inverse is itself, so the logical coordinate is again an xor.

# %%
g = ig.Fusion("swizzle")
x = g.input("x", shape=(8, 8))
y = g.output(ig.exp(x))
y.swizzle("xor", 0, 1)
print(ig.IdModel(g).index_map(y.definition))

# %% [markdown]
# ## Broadcast, reduction, gathered
#
# The *kind* of an axis says how it takes part. A broadcast axis has extent one and coordinate 0 wherever it is read;
# a reduction's output keeps its reduced axis among the logical axes, marked as such, and not in `.shape`.

# %%
g = ig.Fusion("kinds")
x = g.input("x", shape=(6, 8))
total = ig.sum(x, 1)
y = g.output(x / ig.unsqueeze(total, 1))
print("sum       ", *total.logical, "  shape", total.shape, [d.kind for d in total.logical])
column = y.definition.inputs[1]
print("unsqueezed", *column.logical, "  shape", column.shape, [d.kind for d in column.logical])

# %% [markdown]
# ## Symbols
#
# Extents may be symbols with facts about them. Attributes compare by proof, not by spelling.

# %%
g = ig.Fusion("symbolic")
n = g.symbol("n", min=1, multiple_of=2)
x = g.input("x", shape=(n, 128))
y = g.output(ig.cat([x[n // 2 :], x[: n // 2]], dim=0))
y.merge(0)
y.split(0, 4)
print(ig.IdModel(g).index_map(g["t1"].definition))
print("y:", ig.IdModel(g).access(y.definition, y).coordinates, " if ", ig.IdModel(g).access(y.definition, y).predicate)

# %% [markdown]
# `02_graphs` asks which axes are the same.
