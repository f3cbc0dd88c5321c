# %% [markdown]
# # Ragged axes
#
# A batch of sequences of different length is one long axis and the places where sequences end: values and offsets.
# `partition` makes two axes of it: the *component*, which counts the sequences, and in it the *ragged* axis, whose
# extent is loaded: `offsets[b + 1] - offsets[b]`. Nothing is padded, and the values stay where they are.

# %%
import numpy as np

import idgraph as ig

f = ig.Fusion("segments")
x, offsets = f.input("x", shape=(12,)), f.input("offsets", shape=(5,), dtype="int64")
u = ig.partition(x, 0, offsets, name="u")
c, r = u.logical
print(c, r, r.rows.extent)

# %% [markdown]
# ## How long each row is
#
# Row 1 is empty, row 2 is the longest. The number in a cell is its address: rows lie one behind the other.

# %%
ends = [0, 3, 3, 10, 12]
ig.viz.ragged(u, ends)

# %% [markdown]
# ## Where an element is read
#
# The coordinate is loaded, and so is the end of the row: `ld1` is where the row begins, `ld2` how long it is. The
# bounds say what is known of them, since a run tests the offsets.

# %%
read = ig.IdModel(f).access(u.definition, x)
print(read)
print(read.explain_predicate())
print("bounds:", ", ".join(map(str, read.load_bounds)))

# %% [markdown]
# ## A softmax of each row
#
# Pointwise operations keep the rows, reductions run up to the end of each, `combine` puts the rows one behind the
# other again. All of it is one kernel, and no loop goes beyond the end of a row.

# %%
y = f.output(ig.combine(ig.softmax(u, 1), name="y"))
ig.schedule.auto(f, device="cpu")
program = ig.emit(f, target="cpu")
print(len(program.kernels), "kernel")
print("\n".join(line.strip() for line in program.source.splitlines() if "for " in line and "range" in line))

# %%
data = np.linspace(0, 2, 12, dtype=np.float32)
found = program.run({"x": data, "offsets": np.array(ends)})["y"]
rows = [np.exp(row) / np.exp(row).sum() for row in np.split(data, ends[1:-1])]
print(np.allclose(found, np.concatenate(rows), rtol=1e-5))

# %% [markdown]
# ## Numbers that are no offsets
#
# They fall, end too early, or begin too late: the run names the number and the rule.

# %%
try:
    program.run({"x": data, "offsets": np.array([0, 5, 3, 10, 12])})
except ig.IndexingError as error:
    print(error.what)
    print(error.hint)

# %% [markdown]
# ## Two ragged axes
#
# They are one if and only if their offsets are one tensor; the graphs know it. Others do not mix, and neither do a
# ragged and a plain axis: the error says the way out.

# %%
g = ig.Fusion("two")
a, b = g.input("a", shape=(12,)), g.input("b", shape=(12,))
first, second = g.input("first", shape=(5,), dtype="int64"), g.input("second", shape=(5,), dtype="int64")
(_, ra), (_, rb), (_, rc) = a.partition(0, first), b.partition(0, first), b.partition(0, second)
exact = ig.IdModel(g).exact
print(exact.mapped(ra, rb), exact.mapped(ra, rc))
print(exact.explain(ra, rb))
try:
    ra.tensor + rc.tensor
except ig.OperationError as error:
    print(error.what)
    print(error.hint)
