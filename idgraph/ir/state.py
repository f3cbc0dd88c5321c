"""The state of a fusion before a call, so that a call that fails, or is interrupted, leaves the fusion as it was.

Three sizes, each no dearer than the call that it guards: operations only add at the end (`building`), a schedule step
changes one tensor (`Tensor.state`), a scheduler may change all of them (`rewriting`). Each makes, from the arguments of
a call, the function that puts the state back; `idgraph.errors.arguments` takes them as ``keep``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from idgraph.ir.fusion import Fusion
from idgraph.ir.tensor import Restore, Tensor

Args = tuple[object, ...]


def building(args: Args, kwargs: Mapping[str, object]) -> Restore | None:
    """For functions that add operations: the fusion of the first tensor among the arguments.

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
    fusion = _fusion_among((*args, *kwargs.values()))
    if fusion is None:
        return None
    mark = fusion.mark
    return lambda: fusion.restore(mark)


def rewriting(args: Args, kwargs: Mapping[str, object]) -> Restore | None:
    """For schedulers: everything in the fusion, in time proportional to its size."""
    fusion = _fusion_among((*args, *kwargs.values()))
    return None if fusion is None else whole(fusion)


def whole(fusion: Fusion) -> Restore:
    """The function that puts the present state of ``fusion`` back."""
    mine = {name: _copied(value) for name, value in vars(fusion).items()}
    tensors = [t.state() for t in fusion.tensors]
    exprs = [(e, e.args, e.inputs, e.reads, e.outputs, dict(e.attrs)) for e in fusion.exprs]

    def restore() -> None:
        version = fusion.version
        for name in [n for n in vars(fusion) if n not in mine]:
            delattr(fusion, name)
        for name, value in mine.items():
            setattr(fusion, name, _copied(value))
        for put_back in tensors:
            put_back()
        for e, args, inputs, reads, outputs, attrs in exprs:
            e.args, e.inputs, e.reads, e.outputs, e.attrs = args, inputs, reads, outputs, dict(attrs)
        fusion.version = version + 1  # graphs of the failed attempt are old too

    return restore


def _copied(value: object) -> object:
    if isinstance(value, list):
        return list(cast("list[object]", value))
    return dict(cast("dict[object, object]", value)) if isinstance(value, dict) else value


def _fusion_among(values: Iterable[object]) -> Fusion | None:
    """The fusion, or the fusion of the first tensor, among the values and the short lists among them."""
    for value in values:
        if isinstance(value, Fusion):
            return value
        if isinstance(value, Tensor):
            return value.fusion
        owner = getattr(value, "fusion", None) if type(value).__module__.startswith("idgraph.") else None
        if isinstance(owner, Fusion):
            return owner
        if type(value) in (list, tuple):
            found = next((v for v in cast("list[object]", value)[:8] if isinstance(v, Tensor)), None)
            if found is not None:
                return found.fusion
    return None
