"""The records of targets: each names passes that there are, and has the sizes that its own kinds of memory need."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import idgraph
from idgraph.ir.device import GPU, TARGETS, Target, TargetName, devices
from idgraph.passes.pipeline import PASSES, TABLE

ROOMS = ("kernel", "lower", "passes", "codegen")


def test_every_target_has_a_record() -> None:
    assert set(TARGETS) == set(get_args(TargetName)) == set(TABLE)
    assert {p for t in TARGETS.values() for p in t.passes} == set(PASSES)


@pytest.mark.parametrize("t", TARGETS.values(), ids=list(TARGETS))
def test_a_record_is_whole(t: Target) -> None:
    assert t.threads == bool(t.limits) == (t.warp > 1) == (t.vector_bytes > 0)
    assert not (t.threads and (t.cores or t.grids))
    assert t.shuffles <= t.threads
    assert [p.name for p in TABLE[t.name]] == list(t.passes)


def test_the_sizes_are_those_of_the_programming_guide() -> None:
    assert (GPU.warp, GPU.vector_bytes) == (32, 16)
    for d in (devices["H200"], devices["H100"], devices["A100"]):
        assert (d.warp, d.vector_bytes, d.block_threads, d.static_shared) == (32, 16, 1024, 49152)
        assert d.shared == {(9, 0): 232448, (8, 0): 166912}[d.cc]
    assert GPU.limits["blockIdx.x"] == 2147483647 and GPU.limits["threadIdx.z"] == 64


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_between_indices_and_source_asks_for_a_target_by_name(room: str) -> None:
    """They ask what a target has; a comparison with its name would be a second description of it."""
    for path in (Path(idgraph.__file__).parent / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                named = [c.value for c in ast.walk(node) if isinstance(c, ast.Constant)]
                assert not {"cuda", "cpu"} & {n for n in named if isinstance(n, str)}, (path, node.lineno)
