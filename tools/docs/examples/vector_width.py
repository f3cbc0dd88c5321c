"""The widest vector access that the proofs allow, and what stops a wider one."""

import idgraph as ig

for start in (8, 6, 1):
    f = ig.Fusion("row")
    x = f.input("x", shape=(4, 64), dtype="float16")
    y = f.output(ig.copy(x[:, start:]))
    ig.schedule.auto(f)
    access = ig.IdModel(f).access(f.exprs[0], x)
    print(start, access.explain_vector_width(access.loops[-1].name), sep="\n")
