"""Programs of devices in processes of one machine: gloo on the loopback interface, NCCL on GPUs; bounded in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shard.rank_programs import PROGRAMS
from tools.env import ROOT


def run(world: int, folder: Path, *how: str) -> list[str]:
    """What the processes print; all of them end well."""
    command = [sys.executable, str(ROOT / "tests" / "shard" / "rank_worker.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(
            [*command, str(r), str(world), str(folder), *how],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for r in range(world)
    ]  # fmt: skip
    try:
        said = [p.communicate(timeout=120)[0] for p in running]
    finally:
        for p in running:
            p.kill()
    assert [p.returncode for p in running] == [0] * world, "\n".join(said)
    return said


def moves(said: list[str]) -> set[str]:
    """The collectives of all programs; each rank ran each."""
    rows = [json.loads(line) for line in "\n".join(said).splitlines() if line.startswith("{")]
    assert {(r["program"], r["rank"]) for r in rows} == {(n, k) for n in PROGRAMS for k in range(len(said))}
    return {m for r in rows for m in r["moved"]}


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_compute_what_one_computes(world: int, tmp_path: Path) -> None:
    assert moves(run(world, tmp_path, "gloo")) >= {
        "all-to-all", "all-reduce", "all-gather", "neighbour exchange", "reduce-scatter"
    }  # fmt: skip


@pytest.mark.gpu
def test_two_gpus_compute_what_one_process_computes(tmp_path: Path) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs that torch sees")
    assert "all-to-all" in moves(run(2, tmp_path, "nccl", "cuda"))
