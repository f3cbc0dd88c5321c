"""The state of whole fusions before a call: a scheduler that fails, or is interrupted, leaves them as they were.

`idgraph.ir.guards` guards the calls that add operations or take one step; a scheduler may change every tensor. The
state is that of every fusion that any of the arguments belongs to: which of them a call changes depends on the mistake.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import cast

from idgraph.ir.fusion import Fusion
from idgraph.ir.guards import Args, Restore, fusions_among


def rewriting(args: Args, kwargs: Mapping[str, object]) -> Restore | None:
    """For schedulers: everything in the fusions, in time proportional to their size."""
    states = [whole_state(cast("Fusion", fusion)) for fusion in fusions_among(args, kwargs)]
    if not states:
        return None

    def restore() -> None:
        for put_back in states:
            put_back()

    return restore


def whole_state(fusion: Fusion) -> Restore:
    """The function that puts the present state of ``fusion`` back."""
    mine = {name: _copied(value) for name, value in vars(fusion).items()}
    tensors = [(t, t.saved()) for t in fusion.tensors]
    exprs = [(e, e.args, e.inputs, e.reads, e.output, dict(e.attrs)) for e in fusion.exprs]

    def restore() -> None:
        version = fusion.version
        for name in [n for n in vars(fusion) if n not in mine]:
            delattr(fusion, name)
        for name, value in mine.items():
            setattr(fusion, name, _copied(value))
        for t, saved in tensors:
            t.put_back(saved)
        for e, args, inputs, reads, output, attrs in exprs:
            e.args, e.inputs, e.reads, e.output, e.attrs = args, inputs, reads, output, dict(attrs)
        fusion.version = version + 1  # graphs of the failed attempt are old too

    return restore


@contextmanager
def at_most(fusion: Fusion, operations: int) -> Generator[None]:
    """Within, no more than ``operations`` are built in ``fusion``, with those that are taken back: a rewrite that goes
    round in a circle ends in an `InternalError`.

    >>> f = Fusion("f")
    >>> with at_most(f, 3):
    ...     f.operations_left
    3
    """
    before = fusion.operations_left
    fusion.operations_left = operations if before is None else min(before, operations)
    try:
        yield
    finally:
        fusion.operations_left = before


def _copied(value: object) -> object:
    if isinstance(value, list):
        return list(cast("list[object]", value))
    return dict(cast("dict[object, object]", value)) if isinstance(value, dict) else value
