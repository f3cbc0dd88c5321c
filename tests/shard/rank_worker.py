"""One process of several: its device's part of each program, on gloo or NCCL.

    for r in 0 1; do PYTHONPATH=. python tests/shard/rank_worker.py $r 2 FOLDER nccl cuda & done; wait

FOLDER is an empty folder that all processes see, by its absolute path. With NCCL rank r uses GPU r, and the inputs are
tensors there. Each program is a line of JSON: what moved, how far the values are from the oracle's, seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.ir.device import TargetName
from idgraph.runtime.array_backends import Torch
from idgraph.shard.processes import run_rank
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import random_inputs
from tests.shard.rank_programs import PROGRAMS, build


def tensors(arrays: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The arrays as torch's tensors on a device."""
    import torch

    return {n: Torch(torch).tensor(a).to(device) for n, a in arrays.items()}


def expected_part(f: ig.Fusion, run: ig.shard.DeviceProgram, rank: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a rank must hold of each output, element by element by the map of its owner."""
    found: dict[str, Any] = {}
    for t in f.outputs:
        owner = run.owners[t.name]
        whole = np.asarray(values[t.name])
        at = [i for i in np.ndindex(*whole.shape) if rank in owner(*i).ranks]
        found[t.name] = [whole[i] for i in at]
    return found


def run_program(name: str, rank: int, mesh: ig.Mesh, target: TargetName, device: str | None) -> dict[str, Any]:
    """Run one, twice, and compare what this rank has with the oracle."""
    began = time.perf_counter()
    f = build(name, mesh)
    run = ig.shard.emit(f, target)
    data = random_inputs(f, seed=3)
    if name in ("largest", "scattered_maxima"):
        data["a"][5, 2] = np.nan
    wanted = expected_part(f, run, rank, evaluate(f, data))
    mine: Mapping[str, Any] = run.local_inputs(data, rank)
    if device is not None:
        mine = tensors(mine, device)
    run_rank(run, mine)
    made = run_rank(run, mine)
    worst = 0.0
    for t in f.outputs:
        value = made[t.name]
        if device is not None:
            assert str(value.device) == device, f"{t.name} is on {value.device}"
            value = value.cpu().double().numpy()
        have, want = np.asarray(value, np.float64).reshape(-1), np.asarray(wanted[t.name], np.float64)
        near = 2e-2 if "16" in t.dtype and "float" in t.dtype else 2e-4
        np.testing.assert_allclose(have, want, rtol=near, atol=near, err_msg=f"{name} on rank {rank}")
        worst = max([worst, *np.abs(have - want)[np.isfinite(want)]])
    moved = sorted({str(m.collective) for s in run.steps if isinstance(s, ig.shard.Exchange) for m in s.moves})
    return {
        "program": name, "rank": rank, "moved": moved, "error": worst, "seconds": round(time.perf_counter() - began, 2)
    }  # fmt: skip


def check_refusals(rank: int, mesh: ig.Mesh, device: str) -> None:
    """Inputs that are missing, whole, or apart are refused by name on each rank, before anything moves."""
    f = build("softmax", mesh)
    x = f.inputs[0]
    f.output(ig.copy(f.input("b", shape=(2,))))
    run = ig.shard.emit(f)
    mine = run.local_inputs(random_inputs(f, seed=0), rank)
    shape = ig.shard.local(x, rank).shape
    for inputs, words in (
        ({}, (f"no array for input {x.name}", f"rank {rank} holds {shape}")),
        ({**mine, x.name: np.zeros((6, 10), np.float32)}, (f"input {x.name} has the shape (6, 10)", "local_inputs")),
        ({**mine, **tensors({"b": mine["b"]}, device)}, (f"{x.name} a NumPy array", f"b on {device}")),
    ):
        said = ""
        try:
            run_rank(run, inputs)
        except ig.IdGraphError as error:
            said = str(error)
        assert all(w in said for w in words), f"wanted {words}: {said or 'nothing was refused'}"


def main(arguments: Sequence[str]) -> None:
    """Run one rank; exit 1 where a program has other values than the oracle."""
    import torch
    import torch.distributed as dist

    rank, world, folder = int(arguments[0]), int(arguments[1]), arguments[2]
    backend = arguments[3] if len(arguments) > 3 else "gloo"
    target: Any = arguments[4] if len(arguments) > 4 else "numpy"
    if backend == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    devices: list[str | None] = [None, "cpu"]
    if backend == "nccl":
        torch.cuda.set_device(rank)
        devices = [f"cuda:{rank}"]
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    mesh = ig.Mesh(x=2, y=world // 2) if world % 2 == 0 and world > 2 else ig.Mesh(x=world)
    check_refusals(rank, mesh, devices[-1] or "cpu")
    for k, name in enumerate(PROGRAMS):
        print(json.dumps(run_program(name, rank, mesh, target, devices[k % len(devices)])))
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
