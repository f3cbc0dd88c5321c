"""RoPE from its operations to a GPU's kernel, with every address and every value checked on the CPU."""

import idgraph as ig

f = ig.Fusion("rope")
q, cos, sin = f.input("q", (2, 8, 64)), f.input("cos", (8, 64)), f.input("sin", (8, 64))
rotated = ig.cat([-q[:, :, 32:], q[:, :, :32]], dim=-1)
f.output(q * cos + rotated * sin)
ig.schedule.auto(f)
report = ig.validate(f, target="numpy")
print(report.ok, report.points, "addresses")
print(ig.emit(f, "cuda").source)
