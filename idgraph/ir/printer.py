"""The text form of a fusion, one operation a line; `idgraph.parse` reads it back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from idgraph.arith import Expr
from idgraph.ir.axis_read import Attr
from idgraph.ir.protocols import FusionLike, TensorLike


def quoted(name: str) -> str:
    """A name as it stands where it is an ASCII identifier, else as a JSON string."""
    return name if name.isidentifier() and name.isascii() and name not in WORDS else json.dumps(name)


WORDS = frozenset(
    {"fusion", "symbol", "output", "input", "schedule", "mesh", "place", "true", "false", "none", "inf", "nan"}
)


def value_text(value: Attr) -> str:
    """An attribute: numbers, strings, `` `n//2` `` for integer expressions, tuples of those.

    >>> value_text((1, -0.5, "a", True, float("inf"), None))
    '(1, -0.5, "a", true, inf, none)'
    """
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            if math.isnan(value):
                return "nan"
            return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
        case str():
            return json.dumps(value)
        case Expr():
            return f"`{value}`"
        case tuple():
            return f"({', '.join(value_text(v) for v in value)}{',' if len(value) == 1 else ''})"


def input_arguments(t: TensorLike) -> dict[str, Attr]:
    """The arguments of `Fusion.input` for ``t`` beside its name; defaults are left out."""
    found: dict[str, Attr] = {
        "shape": tuple(int(d.extent) if d.extent.is_const else d.extent for d in t.logical),
        "dtype": t.dtype,
    }
    given = t.domain.strides
    if any(s is not None for s in given) and not any(step.name == "set_allocation" for step in t.log):
        free = [s is not None and any(str(x).startswith("stride") for x in s.symbols) for s in given]
        if any(free):
            found["contiguity"] = tuple(not f for f in free)
        else:
            found["strides"] = tuple(int(s) if s.is_const else s for s in given if s is not None)
    if t.alignment != 16:
        found["alignment"] = t.alignment
    if t.offset != 0:
        found["offset"] = t.offset
    return found


def _input_text(t: TensorLike) -> str:
    parts = [f"{k}={value_text(v)}" for k, v in input_arguments(t).items()]
    return f"input({', '.join(parts)})"


def _symbol_line(name: str, s: Expr) -> str:
    low, high, modulus, _ = s.symbol_bounds
    bounds = [f" {word}={value_text(value)}" for word, value in (("min", low), ("max", high)) if value is not None]
    return f"  symbol {name}{''.join(bounds)}{f' multiple_of={modulus}' if modulus > 1 else ''}"


def numbered_text(fusion: FusionLike) -> str:
    """The text of a fusion with its tensors numbered: equal for fusions that differ only in names and lines.

    >>> import idgraph as ig
    >>> from idgraph.ir.printer import numbered_text
    >>> def layer(x, y):
    ...     f = ig.Fusion(x)
    ...     _ = f.output(ig.exp(f.input(y, shape=(8,))))
    ...     return numbered_text(f)
    >>> layer("first", "a") == layer("second", "b")
    True
    """
    names = {t.name: str(n) for n, t in enumerate(fusion.tensors)}
    return print_fusion(fusion, names)


def print_fusion(fusion: FusionLike, names: Mapping[str, str] | None = None) -> str:
    """The whole fusion as text: symbols, inputs and operations in the order they were made, outputs, schedule.
    ``names``: others for its tensors, in a text that nobody parses."""

    def shown(name: str) -> str:
        return quoted(name) if names is None else names[name]

    lines = ["fusion {" if names is not None else f"fusion {quoted(fusion.name)} {{"]
    lines += [_symbol_line(n, s) for n, s in fusion.symbols.items()]
    for t in fusion.tensors:
        e = t.definition
        if e is None:
            lines.append(f"  {shown(t.name)} = {_input_text(t)}")
            continue
        args = [value_text(a) if isinstance(a, (int, float, Expr)) else shown(a.name) for a in e.args]
        attrs = [f"{k}={value_text(v)}" for k, v in e.attrs.items()]
        lines.append(f"  {shown(t.name)} = {e.op}({', '.join([*args, *attrs])})")
    lines += [f"  output {shown(t.name)}" for t in fusion.outputs]
    if fusion.mesh is not None:
        lines.append(f"  mesh {' '.join(f'{name}={n}' for name, n in fusion.mesh.axes)}")
    for t in fusion.tensors:
        if t.placement is not None:
            lines += [f"  place {shown(t.name)} {step}" for step in t.placement.steps or ("replicate()",)]
    steps = sorted(((t, step) for t in fusion.tensors for step in t.log), key=lambda pair: pair[1].at)
    for t, step in steps:
        given = [value_text(a) for a in step.args] + [f"{k}={value_text(v)}" for k, v in step.kwargs.items()]
        lines.append(f"  schedule {shown(t.name)} {step.name}({', '.join(given)})")
    return "\n".join([*lines, "}"])
