# %% [markdown]
# # Index maps
#
# For one operation and one tensor it touches, under one schedule: the coordinates, the address, the predicate, and
# what can be *proved* about them. Each question below is asked of a schedule that makes it interesting.

# %%
import itertools

import idgraph as ig

# %% [markdown]
# ## A split that does not divide
#
# 100 elements in blocks of 32 threads: the last block has 28 threads too many. The predicate says so, and says no
# more than needed: where the split divides, it is gone, with a proof.

# %%


def flat(extent, threads):
    f = ig.Fusion("flat")
    x = f.input("x", shape=(extent,))
    y = f.output(ig.exp(x))
    y.split(0, threads)
    y.parallelize(0, "blockIdx.x")
    y.parallelize(1, "threadIdx.x")
    return ig.IdModel(f).access(y.definition, y)


for extent in (100, 128):
    print(flat(extent, 32))

# %% [markdown]
# ## Reshapes fold away
#
# [100] -> [4, 25] -> [5, 2, 10], flattened again into one loop: three divisions and remainders on the way, and the
# address is the loop variable. The simplifier works with the ranges of the loops and proves each step.

# %%
f = ig.Fusion("reshapes")
x = f.input("x", shape=(100,))
y = f.output(ig.exp(ig.reshape(ig.reshape(x, (4, 25)), (5, 2, 10))))
y.merge(0)
y.merge(0)
ig.schedule.like(f, y)
ig.schedule.inline_most(f)
m = ig.IdModel(f)
for e in f.exprs:
    print(m.index_map(e), end="\n\n")

# %% [markdown]
# The claim can be checked by enumeration. It is, in every test of the library; here by hand:

# %%
read = m.access(f.exprs[0], x)
print(all(read.address.evaluate({"i0": i}) == i for i in range(100)))

# %% [markdown]
# ## Memory layout
#
# Coordinates are about the tensor, addresses about its memory, in elements. A transposed view, a broadcast one
# (stride 0), one that starts at an offset, one with padded rows: only the address changes.

# %%
for what, layout in {
    "contiguous": {},
    "transposed": {"strides": (1, 6)},
    "expanded": {"strides": (0, 1)},
    "rows padded to 16": {"strides": (16, 1)},
    "offset 3": {"offset": 3},
}.items():
    f = ig.Fusion("layout")
    x = f.input("x", shape=(6, 8), **layout)
    y = f.output(ig.exp(x))
    read = ig.IdModel(f).access(y.definition, x)
    print(f"{what:18} {read.coordinates}  at {read.address}")

# %% [markdown]
# ## How wide may a vector be?
#
# `vector_width` is the largest number of neighbouring elements that one load can take at every point of the loops, by
# proof: neighbours must be neighbours in memory, the first one aligned, all of them there, and 16 bytes at most (four
# elements of float32). An even slice of rows of even length keeps width two; the loop has eight.

# %%
for start, length in ((0, 64), (4, 64), (2, 64), (3, 64), (4, 62), (4, 63)):
    f = ig.Fusion("vectors")
    x = f.input("x", shape=(16, length + start))
    y = f.output(ig.exp(x[:, start:]))
    y.split(1, 8)
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    m = ig.IdModel(f)
    e = f["t1"].definition
    lanes = m.loops(e)[-1]
    read = m.access(e, x)
    print(f"x[:, {start}:] of rows of {length + start}: width {read.vector_width(lanes)}   address {read.address}")

# %% [markdown]
# A width that is claimed must hold at every point. The brute force way to see it, for the third of them:

# %%
f = ig.Fusion("check")
x = f.input("x", shape=(16, 66))
y = f.output(ig.exp(x[:, 2:]))
y.split(1, 8)
ig.schedule.like(f, y)
ig.schedule.inline_most(f)
m = ig.IdModel(f)
read = m.access(f["t1"].definition, x)
width = read.vector_width(m.loops(f["t1"].definition)[-1])
points = itertools.product(range(16), range(8), range(0, 8, width))
firsts = [read.address.evaluate({"i0": a, "i1": b, "i2": c}) for a, b, c in points]
print("width", width, "  every first element aligned:", all(first % width == 0 for first in firsts))

# %% [markdown]
# ## Which thread touches which address
#
# `picture()` enumerates one step of the loops. The transposed read below is CuTe's thread-value picture of 8 x 8
# threads: each warp asks for twice the sectors of 32 bytes that its bytes fill.

# %%
f = ig.Fusion("transpose")
x = f.input("x", shape=(8, 8))
y = f.output(x.T)
y.parallelize(0, "threadIdx.y").parallelize(1, "threadIdx.x")
ig.IdModel(f).access(y.definition, x).picture()

# %% [markdown]
# The last block of 1001 elements, four to a thread: lanes past the end are masked.

# %%
f = ig.Fusion("tail")
x = f.input("x", shape=(1001,))
y = f.output(ig.exp(x))
y.split(0, 128).split(1, 4)
y.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(2, "vectorize")
ig.IdModel(f).access(y.definition, x).picture(at="last")

# %% [markdown]
# A column of a tile in shared memory: all lanes want words of one bank. A swizzled layout gives each lane a bank of its
# own; the picture shows both.

# %%
f = ig.Fusion("tile")
t = ig.copy(f.input("a", shape=(2, 32, 32)), name="t").set_memory("shared")
u = f.output(ig.permute(t, (0, 2, 1)))
for tensor in (t, u):
    tensor.parallelize(0, "blockIdx.x").parallelize(2, "threadIdx.x")
loops = t.loop
t.swizzle("xor", 1, 2)
t.set_allocation(t.loop).set_loop(loops)
t.inline(1)
read = ig.IdModel(f).access(u.definition, t).picture()
print(read)
read

# %% [markdown]
# ## 32 or 64 bits
#
# An index that can reach 2^31 must not be computed in (signed) 32 bits, nor may any value on the way to it. The last
# element of 65536 rows of 32768 is number 2^31 - 1, which is still fine; one row more is not.

# %%
for rows in (2**16, 2**16 + 1):
    f = ig.Fusion("wide")
    x = f.input("x", shape=(rows, 2**15))
    y = f.output(ig.exp(x))
    print(f"{rows} x 32768:", ig.IdModel(f).access(y.definition, x).index_bits, "bits")

# %% [markdown]
# ## Data-dependent coordinates
#
# A gather reads where another tensor says. The loaded value is a symbol with a source; the condition that it is in
# bounds is not part of the predicate (no loaded value is) but of `load_bounds`.

# %%
f = ig.Fusion("gather")
table = f.input("table", shape=(1000, 64))
index = f.input("index", shape=(32,), dtype="int64")
rows = f.output(ig.index_select(table, 0, index))
read = ig.IdModel(f).access(rows.definition, table)
print(read)
print("loads:", {name: (source.name, where) for name, (source, where) in read.loads.items()})
print("must hold:", read.load_bounds, "  predicate:", read.predicate)

# %% [markdown]
# ## Proofs and simplification on their own

# %%
print(ig.simplify("(i*32 + j)//32", {"i": 4, "j": 32}))
print(ig.simplify("((i + 32)%64 + 32)%64", {"i": 64}))
print(ig.simplify("(i*n + j)//n", {"i": 4, "j": "n", "n": (1, None)}))
print(ig.prove_equal("(i//4)*4 + i%4", "i", {"i": (None, None)}))
print(ig.prove_equal("(i + 1)//2", "i//2", {"i": 8}))

# %% [markdown]
# `05_rope` uses all of this on rotary position embedding in its four conventions.
