"""Numbers for symbols: extents and attributes of a fusion at one concrete size."""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.arith import Expr, congruence
from idgraph.errors import OperationError
from idgraph.ir import Fusion, Tensor
from idgraph.ir.exprs import Attr

Symbols = Mapping[str, int]


def number(value: Attr, symbols: Symbols) -> int:
    """An int, or an integer expression at ``symbols``."""
    if isinstance(value, Expr):
        return int(value.evaluate(symbols))
    if isinstance(value, int):
        return int(value)
    raise OperationError(f"{value!r} is not an integer")


def numbers(value: Attr, symbols: Symbols) -> tuple[int, ...]:
    """A tuple of ints and integer expressions at ``symbols``."""
    if not isinstance(value, tuple):
        raise OperationError(f"{value!r} is not a tuple of integers")
    return tuple(number(v, symbols) for v in value)


def shape_of(tensor: Tensor, symbols: Symbols) -> tuple[int, ...]:
    """Elements along each axis of ``tensor.shape``."""
    return tuple(number(d.extent, symbols) for d in tensor.axes)


def bind(fusion: Fusion, shapes: Mapping[str, tuple[int, ...]], symbols: Symbols | None = None) -> dict[str, int]:
    """Values of all symbols, read off input shapes where an extent is a plain symbol or one value of a symbol gives it,
    else taken from ``symbols``.

    Raises `OperationError` for a symbol without a value, outside its declared range, or with two values.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> n = f.symbol("n", min=1)
    >>> t = f.input("t", shape=(n, 2 * n))
    >>> bind(f, {"t": (3, 6)})
    {'n': 3}
    """
    found = dict(symbols or {})
    for t in fusion.inputs:
        if t.name not in shapes:
            continue
        if len(shapes[t.name]) != t.ndim:
            raise OperationError(f"{t.name} has {t.ndim} axes, its array has {len(shapes[t.name])}")
        for d, size in zip(t.axes, shapes[t.name], strict=True):
            if d.extent.op == "sym" and found.setdefault(d.extent.name, size) != size:
                raise OperationError(f"symbol {d.extent} is {found[d.extent.name]}, axis {d.label} has {size} elements")
    _try_out(fusion, shapes, found)
    for name, s in fusion.symbols.items():
        if name not in found:
            raise OperationError(f"symbol {name} has no value", hint=f'pass symbols={{"{name}": ...}}')
        step, first = congruence(s)
        low, high = (b.evaluate(found) if isinstance(b, Expr) else b for b in s.symbol_bounds[:2])
        beyond = (low is not None and found[name] < low) or (high is not None and found[name] > high)
        if beyond or found[name] not in s.range or (step > 1 and (found[name] - first) % step):
            raise OperationError(f"symbol {name} = {found[name]} is outside its declared range", because=[repr(s)])
    return found


_BEYOND = 64  # values that are tried beyond twice the size: extents grow with their symbols


def _try_out(fusion: Fusion, shapes: Mapping[str, tuple[int, ...]], found: dict[str, int]) -> None:
    """Symbols in larger extents (``n*4``): every value is tried, and the only one that fits is it."""
    for _ in fusion.symbols:
        for t in fusion.inputs:
            for d, size in zip(t.axes, shapes.get(t.name, ()), strict=False):
                left = [s for s in d.extent.symbols if s.name not in found]
                if len(left) != 1:
                    continue
                fitting = [
                    n
                    for n in range(2 * size + _BEYOND)
                    if n in left[0].range and int(d.extent.evaluate({**found, left[0].name: n})) == size
                ]
                if len(fitting) == 1:
                    found[left[0].name] = fitting[0]
