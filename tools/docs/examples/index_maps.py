"""Index maps of a scheduled slice: coordinates, address and predicate, in the loops of the operation."""

import idgraph as ig

f = ig.Fusion("tail")
x = f.input("x", shape=(100, 8))
y = f.output(x[10:] * 2.0)
y.merge(0).split(0, 32)
ig.schedule.like(f, y)
ig.schedule.inline_most(f)
model = ig.IdModel(f)
for e in f.exprs:
    print(model.index_map(e))
