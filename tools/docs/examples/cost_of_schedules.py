"""Bytes that a transpose moves, estimated for a GPU before and after it is scheduled."""

import idgraph as ig

f = ig.Fusion("transpose")
y = f.output(ig.permute(f.input("x", shape=(1024, 1024)), (1, 0)) * 2.0)
for step in ("as written", "auto"):
    if step == "auto":
        ig.schedule.auto(f)
    print(step, ig.cost(ig.emit(f, "cuda"), device="H100"), sep="\n")
