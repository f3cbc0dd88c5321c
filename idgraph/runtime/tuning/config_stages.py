"""The configs to try: stages, each of which changes some choices of the best one so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from idgraph.ir import SCATTERS, Fusion
from idgraph.ir.reduce import REDUCTIONS

Move = Mapping[str, Any]
_THREADS: Final = (None, 32, 64, 128, 256, 512, 1024)
_BLOCKS: Final[tuple[Move, ...]] = tuple({"block": n} for n in (64, 128, 256, 512, 1024))

# Rows on a GPU: kept in registers or not, warp or block, two passes; then loads in flight, rows of a block.
_ROWS_GPU: Final[tuple[tuple[Move, ...], ...]] = (
    (
        *({"persistent": k, "threads": n} for k in (True, False) for n in _THREADS),
        {"persistent": False, "online": False},
    ),
    tuple({"items_per_thread": n} for n in (8, 16, 32, 64)),
    tuple({"rows": n} for n in (1, 2, 4, 8)),
)
_ROWS_CPU: Final[tuple[tuple[Move, ...], ...]] = (
    ({"persistent": True}, {"persistent": False}),
    tuple({"items_per_thread": n} for n in (32, 64, 256)),
    tuple({"rows": n} for n in (1, 4, 16, 64)),
)
_VECTORS: Final[tuple[Move, ...]] = tuple({"vectors": n} for n in (1, 2, 4))
_PARTS: Final[tuple[Move, ...]] = ({"apart": True}, {"apart": False})
_ONE_CORE: Final[tuple[Move, ...]] = ({"parallel": False},)


def stages(fusion: Fusion, target: Literal["cpu", "cuda"]) -> Sequence[Sequence[Move]]:
    """The configurations to try for ``fusion``, one stage after the other.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
    >>> stages(f, "cpu")[-1]
    ({'parallel': False},)
    """
    rows = any(e.op in REDUCTIONS and e.is_reduction for e in fusion.exprs)
    kinds = {e.op in SCATTERS or not e.is_reduction for e in fusion.exprs}
    made: list[Sequence[Move]] = []
    if rows:
        made += _ROWS_GPU if target == "cuda" else _ROWS_CPU
    if not rows and True in kinds:
        made += [_BLOCKS, _VECTORS, _PARTS] if target == "cuda" else [_BLOCKS]
    if target == "cpu":
        made.append(_ONE_CORE)
    return made
