"""A fusion built again with something changed: another stride, slice, extent or schedule step, the rest as it was.

The state of whole fusions before a call: a scheduler that fails, or is interrupted, leaves them as they were.

`idgraph.ir.transaction` guards the calls that add operations or take one step; a scheduler may change every tensor. The
state is that of every fusion that any of the arguments belongs to: which of them a call changes depends on the mistake.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from idgraph.arith import Expr
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import Scalar
from idgraph.ir.fusion import Fusion, Tensor, TensorExpr
from idgraph.ir.op_table import apply
from idgraph.ir.parser import declare_input, replay_step
from idgraph.ir.printer import input_arguments
from idgraph.ir.transaction import Args, Restore, fusions_among
from idgraph.ir.walks import upstream


@dataclass(frozen=True, slots=True)
class InputEdit:
    """Other arguments (``shape``, ``strides``, ``alignment``, ``offset``) for an input; None takes one away."""

    tensor: str
    arguments: Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class AttrEdit:
    """Other attributes for the operation that makes a tensor."""

    tensor: str
    attrs: Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class StepEdit:
    """Other arguments for schedule step ``number`` of a tensor."""

    tensor: str
    number: int
    args: tuple[Attr, ...]


@dataclass(frozen=True, slots=True)
class NewSteps:
    """Schedule steps of a tensor after all others: (name, arguments)."""

    tensor: str
    steps: tuple[tuple[str, tuple[Attr, ...]], ...]


@dataclass(frozen=True, slots=True)
class SymbolEdit:
    """A symbol declared a multiple of ``multiple_of``."""

    name: str
    multiple_of: int


Edit: TypeAlias = InputEdit | AttrEdit | StepEdit | NewSteps | SymbolEdit


@dataclass(slots=True)
class _Changes:
    """Edits, sorted by what they change."""

    inputs: dict[str, dict[str, Attr]] = field(default_factory=dict[str, dict[str, Attr]])
    attrs: dict[str, dict[str, Attr]] = field(default_factory=dict[str, dict[str, Attr]])
    steps: dict[tuple[str, int], tuple[Attr, ...]] = field(default_factory=dict[tuple[str, int], tuple[Attr, ...]])
    more: list[NewSteps] = field(default_factory=list[NewSteps])
    symbols: dict[str, int] = field(default_factory=dict[str, int])


def _sorted(edits: Sequence[Edit]) -> _Changes:
    made = _Changes()
    for e in edits:
        match e:
            case InputEdit():
                made.inputs.setdefault(e.tensor, {}).update(e.arguments)
            case AttrEdit():
                made.attrs.setdefault(e.tensor, {}).update(e.attrs)
            case StepEdit():
                made.steps[e.tensor, e.number] = e.args
            case NewSteps():
                made.more.append(e)
            case SymbolEdit():
                made.symbols[e.name] = e.multiple_of
    return made


def _clone_attribute(value: Attr, symbols: Mapping[str, Expr]) -> Attr:
    """An attribute with the symbols of the new fusion."""
    if isinstance(value, tuple):
        return tuple(_clone_attribute(v, symbols) for v in value)
    return value.substitute(symbols) if isinstance(value, Expr) else value


def _scalar(value: Scalar | Expr, symbols: Mapping[str, Expr]) -> Scalar | Expr:
    return value.substitute(symbols) if isinstance(value, Expr) else value


def clone_fusion(
    fusion: Fusion, edits: Sequence[Edit] = (), outputs: Sequence[str] | None = None, live: bool = False
) -> Fusion:
    """An independent fusion with the same names, operations, lines and schedule, but for ``edits``.

    ``outputs``: names of those that are outputs there; None for the same. ``live``: only operations that outputs depend
    on.

    Raises what building raises where the rest of the fusion does not fit the edits any more.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(64,))[3:35])
    >>> g = clone_fusion(f, [AttrEdit(t.name, {"starts": (4,), "stops": (36,)})])
    >>> str(ig.IdModel(g).access(g[t.name].definition, g["a"]).address)
    'i0 + 4'
    """
    # In a context of its own: the user's current fusion stays the current one.
    names = [t.name for t in fusion.outputs] if outputs is None else outputs
    tensors = _live(fusion, names) if live else fusion.tensors
    return copy_context().run(_rebuild, fusion, _sorted(edits), names, tensors)


def _live(fusion: Fusion, outputs: Sequence[str]) -> list[Tensor]:
    """The inputs, and what some outputs depend on."""
    wanted = upstream(fusion[n] for n in outputs)
    return [t for t in fusion.tensors if t.definition is None or t.definition in wanted]


def extract_subgraph(exprs: Sequence[TensorExpr], outputs: Sequence[Tensor]) -> tuple[Fusion, Mapping[Tensor, Tensor]]:
    """A fusion of only these operations (in order), and its tensors by those they stand for.

    What they read of others is an input, numbered in the order in which it is met: equal parts have equal texts.
    Memory formats of ``outputs`` are kept, other steps are not.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(64,))
    >>> a = ig.exp(x)
    >>> b = f.output(a * 2.0)
    >>> g, of = extract_subgraph([b.definition], [b])
    >>> print(g)
    fusion part {
      p0 = input(shape=(64,), dtype="float32")
      p1 = mul(p0, 2.0)
      output p1
    }
    """
    return copy_context().run(_part, exprs, outputs)


def _part(exprs: Sequence[TensorExpr], outputs: Sequence[Tensor]) -> tuple[Fusion, Mapping[Tensor, Tensor]]:
    made = Fusion("part")
    _declare_symbols(exprs[0].output.fusion, made, {})
    symbols, of = made.symbols, dict[Tensor, Tensor]()
    for e in exprs:
        for t in e.inputs:
            if t not in of:
                given = input_arguments(t) if t.definition is None else {"shape": t.shape, "dtype": t.dtype}
                moved = {k: _clone_attribute(v, symbols) for k, v in given.items()}
                name = f"p{len(of)}"
                declare_input(made, name, moved)
                of[t] = made[name]
        args = tuple(of[a] if isinstance(a, Tensor) else _scalar(a, symbols) for a in e.args)
        attrs = {k: _clone_attribute(v, symbols) for k, v in e.attrs.items()}
        of[e.output] = apply(made, e.op, args, attrs, f"p{len(of)}")
    for t in outputs:
        made.output(of[t])
        for step in t.log:
            if step.name == "set_allocation":
                replay_step(of[t], step.name, tuple(_clone_attribute(a, symbols) for a in step.args), step.kwargs)
    return made, of


def _declare_symbols(fusion: Fusion, made: Fusion, multiples: Mapping[str, int]) -> None:
    for name, s in fusion.symbols.items():
        low, high, modulus, _ = s.symbol_bounds
        made.symbol(
            name,
            min=0 if low is None else low if isinstance(low, int) else low.substitute(made.symbols),
            max=high.substitute(made.symbols) if isinstance(high, Expr) else high,
            multiple_of=multiples.get(name, modulus),
        )


def _rebuild(fusion: Fusion, changes: _Changes, outputs: Sequence[str], tensors: Sequence[Tensor]) -> Fusion:
    made = Fusion(fusion.name)
    _declare_symbols(fusion, made, changes.symbols)
    symbols = made.symbols
    for t in tensors:
        with made.at_line(t.source_line):
            _again(t, made, changes, symbols)
    for name in outputs:
        made.output(made[name])
    made.mesh = fusion.mesh
    for t in tensors:
        made[t.name].placement = t.placement
    steps = sorted(((step.at, t.name, n) for t in tensors for n, step in enumerate(t.log)))
    for _, name, n in steps:
        step = fusion[name].log[n]
        args = changes.steps.get((name, n), step.args)
        replay_step(made[name], step.name, tuple(_clone_attribute(a, symbols) for a in args), step.kwargs)
    for more in changes.more:
        for name, args in more.steps:
            replay_step(made[more.tensor], name, args, {})
    return made


def _again(t: Tensor, made: Fusion, changes: _Changes, symbols: Mapping[str, Expr]) -> None:
    e = t.definition
    if e is None:
        given = {**input_arguments(t), **changes.inputs.get(t.name, {})}
        declare_input(made, t.name, {k: _clone_attribute(v, symbols) for k, v in given.items() if v is not None})
        return
    args = tuple(made[a.name] if isinstance(a, Tensor) else _scalar(a, symbols) for a in e.args)
    attrs = {k: _clone_attribute(v, symbols) for k, v in {**e.attrs, **changes.attrs.get(t.name, {})}.items()}
    apply(made, e.op, args, attrs, t.name)


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
