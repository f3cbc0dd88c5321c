"""Targets as data: what a machine and its language have. Lowering, passes and printers ask the record, not the name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from idgraph.ir.device import current_device

ALIGNMENT: Final = 16  # bytes that every array begins at a multiple of, unless its tensor says otherwise
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

    Of targets that have threads: ``warp`` in threads and ``vector_bytes`` of one access are what the language can say,
    ``limits`` how far each dimension of a launch counts. What a machine has is in `idgraph.ir.device.Device`.
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
        "roll", "fuse_lanes", "scalar_replacement", "end_rows",
    ),
    threads=True,
    typed=True,
    short_indices=True,
    shuffles=True,
    warp=32,
    vector_bytes=16,
    limits={
        "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
        "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
    },
)  # fmt: skip
"""Warps and accesses are those of PTX, limits those of compute capability 5.0 to 10.0 (CUDA programming guide)."""
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
            ("serial", "collapse", "own_rows", "columns", "rename_columns", "fuse_nests", "hoist_loads", "prove_checks",
             "rows_of_core", "interchange", "unswitch", "round_once", "composed", "keep_rolled", "end_rows"),
            cores=True, typed=True,
        ),
        GPU,
    )
}  # fmt: skip


def access_bytes() -> int:
    """Bytes of the widest access that both the language of a GPU's kernels and the device in force have.

    >>> access_bytes()
    16
    """
    return min(GPU.vector_bytes, current_device().vector_bytes)
