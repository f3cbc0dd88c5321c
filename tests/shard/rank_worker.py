"""One process of several: its device's part of a program, on gloo or NCCL.

    for r in 0 1; do PYTHONPATH=. python tests/shard/rank_worker.py $r 2 FOLDER nccl & done; wait

FOLDER is an empty folder that all processes see, by its absolute path. With NCCL rank r uses GPU r.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import numpy as np

import idgraph as ig
from idgraph.shard.processes import run_rank


def program(world: int) -> tuple[ig.shard.DeviceProgram, ig.Tensor, ig.Tensor]:
    """All-reduce, neighbour exchange, all-to-all and all-gather; its two outputs."""
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2) if world == 2 else ig.Mesh(x=2, y=2)
    last = list(f.mesh.sizes)[-1]
    a = f.input("a", shape=(4, 8)).shard(1, "x")
    b = f.input("b", shape=(8, 6)).shard(0, "x")
    c = ig.relu(ig.matmul(a, b))  # all-reduce
    d = ig.roll(f.input("d", shape=(9, 6)).shard(0, last), 1, 0).shard(0, last)  # neighbour exchange, uneven
    g = ig.copy(d).shard(1, last)  # all-to-all
    e = f.output(ig.sum(c, 0) + ig.copy(g).replicate())  # all-gather
    f.output(d)
    return ig.shard.emit(f), e, d


def main(rank: int, world: int, folder: str, backend: str = "gloo") -> None:
    """Run one rank, and compare what it has with NumPy."""
    import torch.distributed as dist

    if backend == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    run, e, d = program(world)
    rng = np.random.default_rng(0)
    data = {n: rng.random(s, dtype=np.float32) for n, s in (("a", (4, 8)), ("b", (8, 6)), ("d", (9, 6)))}
    mine = run_rank(run, run.local_inputs(data, rank))
    want = np.maximum(data["a"] @ data["b"], 0).sum(0) + np.roll(data["d"], 1, 0)
    np.testing.assert_allclose(mine[e.name], want, rtol=1e-5)
    part = ig.shard.local(d, rank)
    at = np.array([next(int(x) for x in part.elements(i, 0)) for i in range(int(part.shape[0]))])
    np.testing.assert_array_equal(mine[d.name], np.roll(data["d"], 1, 0)[at])
    print(sorted({str(m.collective) for s in run.steps if isinstance(s, ig.shard.Exchange) for m in s.moves}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5])
