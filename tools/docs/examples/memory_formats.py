"""Memory formats: which order of axes each tensor should have in memory, inferred from the inputs'."""

import idgraph as ig

f = ig.Fusion("channels last")
x = f.input("x", shape=(2, 3, 4, 5), strides=(60, 1, 15, 3))
y = f.output(ig.relu(x) + 1.0)
print(ig.layout.infer(f))
print(y)
