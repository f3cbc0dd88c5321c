"""Programs of devices in processes of one machine: gloo, on the loopback interface, bounded in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
import os, sys
from datetime import timedelta
import numpy as np
import torch.distributed as dist
import idgraph as ig
from idgraph.shard.processes import run_rank

rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
                        timeout=timedelta(seconds=60))
f = ig.Fusion("f")
f.mesh = ig.Mesh(x=2) if world == 2 else ig.Mesh(x=2, y=2)
last = list(f.mesh.sizes)[-1]
a = f.input("a", shape=(4, 8)).shard(1, "x")
b = f.input("b", shape=(8, 6)).shard(0, "x")
c = ig.relu(ig.matmul(a, b))                       # all-reduce
d = ig.roll(f.input("d", shape=(9, 6)).shard(0, last), 1, 0).shard(0, last)  # neighbour exchange, uneven
g = ig.copy(d).shard(1, last)                      # all-to-all
e = f.output(ig.sum(c, 0) + ig.copy(g).replicate())  # all-gather
f.output(d)
run = ig.shard.emit(f)
rng = np.random.default_rng(0)
data = {n: rng.random(s, dtype=np.float32) for n, s in (("a", (4, 8)), ("b", (8, 6)), ("d", (9, 6)))}
mine = run_rank(run, run.local_inputs(data, rank))
want = np.maximum(data["a"] @ data["b"], 0).sum(0) + np.roll(data["d"], 1, 0)
np.testing.assert_allclose(mine[e.name], want, rtol=1e-5)
part = ig.shard.local(d, rank)
at = np.array([[int(x) for x in part.elements(i, 0)][0] for i in range(part.shape[0])])
np.testing.assert_array_equal(mine[d.name], np.roll(data["d"], 1, 0)[at])
print(sorted({str(m.collective) for s in run.steps if hasattr(s, "moves") for m in s.moves}))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_compute_what_one_computes(world: int, tmp_path: Path) -> None:
    file = tmp_path / "worker.py"
    file.write_text(WORKER)
    command = [sys.executable, str(file)]
    running = [
        subprocess.Popen(
            [*command, str(r), str(world), str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for r in range(world)
    ]
    try:
        said = [p.communicate(timeout=120)[0] for p in running]
    finally:
        for p in running:
            p.kill()
    assert [p.returncode for p in running] == [0] * world, "\n".join(said)
    assert "all-to-all" in said[0] and "all-reduce" in said[0] and "neighbour exchange" in said[0]
