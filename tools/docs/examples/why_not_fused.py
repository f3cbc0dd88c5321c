"""What keeps two operations out of one loop nest, and what would bring them together."""

import idgraph as ig

f = ig.Fusion("softmax")
x = f.input("x", shape=(16, 64))
total = ig.sum(ig.exp(x), 1, keepdim=True, name="total")
y = f.output(ig.exp(x) / total)
for obstacle in ig.fuse.obstacles(f):
    print(obstacle)
