"""A cycle of the exact graph: the rotation of RoPE maps an axis onto itself, 32 elements further."""

import idgraph as ig

f = ig.Fusion("rotation")
x = f.input("x", shape=(64,))
rotated = ig.cat([x[32:], x[:32]], dim=0)
f.output(x + rotated)
model = ig.IdModel(f)
for cycle in model.exact.cycles():
    print(cycle.kind, cycle.shift)
print([c for c in model.index.cycles() if c.changes_index])  # none: the index graph keeps one node for each use
