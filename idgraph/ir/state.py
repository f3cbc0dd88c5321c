"""The state of fusions before a call, so that a call that fails, or is interrupted, leaves them as they were.

Three sizes, each no dearer than the call that it guards: operations only add at the end (`building`), a schedule step
changes one tensor (`Tensor.state`), a scheduler may change all of them (`rewriting`). Each makes, from the arguments of
a call, the function that puts the state back; `idgraph.errors.arguments` takes them as ``keep``. The state is that of
every fusion that any of the arguments belongs to: which of them a call changes before it fails depends on the mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast

from idgraph.ir.indexing import MOST_LISTED
from idgraph.ir.rewriting import Rewrites
from idgraph.ir.tensor import Restore, Tensor

if TYPE_CHECKING:
    from idgraph.ir.fusion import Fusion

Args = tuple[object, ...]


def building(args: Args, kwargs: Mapping[str, object]) -> Restore | None:
    """For functions that add operations: the numbers of operations, tensors and symbols.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4,))
    >>> before = str(f)
    >>> ig.mean(x, 0, name="x")
    Traceback (most recent call last):
    idgraph.errors.OperationError: div: fusion f already has a tensor 'x'
      ...
    >>> str(f) == before
    True
    """
    marks = [(fusion, fusion.mark) for fusion in _fusions_among(args, kwargs)]
    if not marks:
        return None

    def restore() -> None:
        for fusion, mark in marks:
            fusion.restore(mark)

    return restore


def rewriting(args: Args, kwargs: Mapping[str, object]) -> Restore | None:
    """For schedulers: everything in the fusions, in time proportional to their size."""
    states = [whole(fusion) for fusion in _fusions_among(args, kwargs)]
    if not states:
        return None

    def restore() -> None:
        for put_back in states:
            put_back()

    return restore


def whole(fusion: Fusion) -> Restore:
    """The function that puts the present state of ``fusion`` back."""
    mine = {name: _copied(value) for name, value in vars(fusion).items()}
    tensors = [(t, t.saved()) for t in fusion.tensors]
    exprs = [(e, e.args, e.inputs, e.reads, e.outputs, dict(e.attrs)) for e in fusion.exprs]

    def restore() -> None:
        version = fusion.version
        for name in [n for n in vars(fusion) if n not in mine]:
            delattr(fusion, name)
        for name, value in mine.items():
            setattr(fusion, name, _copied(value))
        for t, saved in tensors:
            t.put_back(saved)
        for e, args, inputs, reads, outputs, attrs in exprs:
            e.args, e.inputs, e.reads, e.outputs, e.attrs = args, inputs, reads, outputs, dict(attrs)
        fusion.version = version + 1  # graphs of the failed attempt are old too

    return restore


def _copied(value: object) -> object:
    if isinstance(value, list):
        return list(cast("list[object]", value))
    return dict(cast("dict[object, object]", value)) if isinstance(value, dict) else value


_NEST = 4  # levels of lists in which a call looks for tensors: no function takes more
_NUMBERS = (str, bytes, bytearray, memoryview, range)


def _fusions_among(args: Args, kwargs: Mapping[str, object]) -> list[Fusion]:
    """The fusions that the arguments belong to, each once."""
    found: dict[Fusion, None] = {}
    _gather((*args, *kwargs.values()), found, _NEST)
    return list(found)


def _gather(values: Iterable[object], found: dict[Fusion, None], depth: int) -> None:
    """Add the fusions of tensors, of objects that have a fusion or a tensor, and of those in collections."""
    for value in values:
        if isinstance(value, Tensor):
            found[value.fusion] = None
        elif isinstance(value, Rewrites):
            found[cast("Fusion", value)] = None
        elif depth and type(value).__module__.startswith("idgraph."):
            _gather((getattr(value, "fusion", None), getattr(value, "tensor", None)), found, depth - 1)
        elif depth and isinstance(value, Sequence | Set | Mapping) and not isinstance(value, _NUMBERS):
            held = cast("Collection[object]", value)
            with suppress(Exception):  # whatever a collection of somebody else's raises
                _gather(islice(held, MOST_LISTED), found, depth - 1)
                if isinstance(held, Mapping):
                    _gather(islice(cast("Mapping[object, object]", held).values(), MOST_LISTED), found, depth - 1)
