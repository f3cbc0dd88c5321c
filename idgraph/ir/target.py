"""Targets as data: what a machine and its language have. Lowering, passes and printers ask the record, not the name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

TargetName = Literal["python", "numpy", "cpu", "cuda"]
Dialect = Literal["python", "numpy", "numba"]


@dataclass(frozen=True, slots=True)
class Target:
    """``about`` says whose names a source uses; ``dialect`` how index expressions are written; ``passes`` are those of
    `idgraph.passes.pipeline`, in order.

    ``threads``: parallel axes are blocks and threads, which have memory of their own, barriers and atomic updates.
    ``cores``: an outermost parallel loop runs on all of them. ``grids``: a statement runs for all points of its loops
    at once. ``typed``: values have machine types, and 16-bit floats are words in memory. ``short_indices``: 32-bit
    unsigned integers where ranges allow. ``shuffles``: threads of a warp exchange values without memory.

    Sizes, of targets that have threads: ``warp`` in threads, ``vector_bytes`` of one access, ``static_shared`` and
    ``shared_bytes`` of a block (all devices; the largest), ``max_threads`` of a block, ``limits`` of each dimension.
    """

    name: TargetName
    about: str
    dialect: Dialect
    passes: tuple[str, ...] = ()
    threads: bool = False
    cores: bool = False
    grids: bool = False
    typed: bool = False
    short_indices: bool = False
    shuffles: bool = False
    warp: int = 1
    vector_bytes: int = 0
    static_shared: int = 0
    shared_bytes: int = 0
    max_threads: int = 1
    limits: Mapping[str, int] = field(default_factory=dict[str, int])


_COMPILED = "f32, maximum and the like are in codegen.runtime_lib.numba_ops"
GPU: Final = Target(
    "cuda",
    f"numba.cuda; {_COMPILED}",
    "numba",
    (
        "fuse_launches", "rename_columns", "hoist_loads", "prove_checks", "owner", "rows", "jam", "scan",
        "select_loads", "peel", "carry_digits",
        "unroll", "join_checks", "short_ints", "short_functions", "merge_tests",
        "vectorize_loads", "realign", "cse", "reciprocals", "dead_code", "vectorize_stores", "pack_half2", "dead_code",
        "roll", "fuse_lanes", "scalar_replacement",
    ),
    threads=True,
    typed=True,
    short_indices=True,
    shuffles=True,
    warp=32,
    vector_bytes=16,
    static_shared=48 << 10,
    shared_bytes=227 << 10,
    max_threads=1024,
    limits={
        "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
        "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
    },
)  # fmt: skip
"""The sizes are those of compute capability 8.0 to 10.0 (CUDA programming guide, table of technical specifications)."""
TARGETS: Final[Mapping[TargetName, Target]] = {
    t.name: t
    for t in (
        Target(
            "python", "plain Python; f32, maximum and the like are in codegen.runtime_lib.python_ops", "python"
        ),
        Target(
            "numpy", "NumPy, whole grids at once; f32, chunks and the like are in codegen.runtime_lib.numpy_ops",
            "numpy", grids=True,
        ),
        Target(
            "cpu", f"numba for the CPU; {_COMPILED}", "numba",
            ("serial", "collapse", "own_rows", "columns", "rename_columns", "hoist_loads", "prove_checks",
             "rows_of_core", "interchange", "unswitch", "round_once", "composed", "keep_rolled"),
            cores=True, typed=True,
        ),
        GPU,
    )
}  # fmt: skip
