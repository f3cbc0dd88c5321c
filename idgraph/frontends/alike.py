"""Short calls of an import with arguments whose sizes no call has had, else like those of a call that has a short one.

All that a binding compares and computes from sizes is one function of numbers here, made once; where anything does
not hold, the call is bound the whole way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idgraph.arith import Expr, Tape, as_expr
from idgraph.frontends.nodes import Program, Ref, TensorMeta
from idgraph.runtime.caller import Caller

if TYPE_CHECKING:
    from idgraph.frontends.bound import Likeness, Short


@dataclass(frozen=True, slots=True)
class Alike:
    """See the module."""

    likeness: Likeness
    caller: Caller
    symbols: tuple[
        tuple[str, int, int, int, int | None, int, int], ...
    ]  # name, argument, axis, least, most, step, rest
    numbers: Callable[..., tuple[Any, ...]]
    order: tuple[int, ...]  # the symbols that the function takes
    shapes: tuple[slice, ...]  # of the arguments, among the numbers
    strides: tuple[slice, ...]  # of the results
    guards: slice

    def __call__(self, shapes: Sequence[tuple[int, ...]], args: Sequence[Any]) -> Short | None:
        """The short call for these arguments, or None."""
        likeness = self.likeness
        env = self.fitting(shapes)
        if env is None or not likeness.kernels.is_current():
            return None
        given = [args[n] for n in likeness.inputs]
        frozen = self.caller.direct(given, {s: env[0][s] for s in likeness.symbols})
        short = None if frozen is None else likeness.kernels.short_of(frozen, likeness.inputs, likeness.picked)
        if frozen is None or short is None:
            return None
        lie = frozen.strides(likeness.picked)
        return short if all(env[1][cut] == found for cut, found in zip(self.strides, lie, strict=True)) else None

    def fitting(self, shapes: Sequence[tuple[int, ...]]) -> tuple[dict[str, int], tuple[Any, ...]] | None:
        """Values of the symbols and all numbers, where the shapes are as captured."""
        env: dict[str, int] = {}
        values: list[int] = []
        for name, argument, axis, low, high, step, rest in self.symbols:
            value = env[name] = shapes[argument][axis]
            if value < low or (high is not None and value > high) or value % step != rest:
                return None
            values.append(value)
        try:
            numbers = self.numbers(*[values[n] for n in self.order])
        except ZeroDivisionError:
            return None
        same = all(shape == numbers[cut] for shape, cut in zip(shapes, self.shapes, strict=True))
        return (env, numbers) if same and all(numbers[self.guards]) else None


def alike_of(program: Program, likeness: Likeness) -> Alike | None:
    """None where a size follows from shapes in another way than as one of their numbers."""
    caller, sizes = likeness.caller, program.sizes
    metas = [n.meta for n in program.nodes if n.kind != "call"]
    results = [program[v.name].meta for v in program.results if isinstance(v, Ref)]
    tensors = [m for m in metas if isinstance(m, TensorMeta)]
    made = [m for m in results if isinstance(m, TensorMeta)]
    if not isinstance(caller, Caller) or len(tensors) < len(metas) or len(made) < len(program.results):
        return None
    places = {
        w.name: (n, p)
        for n, m in reversed(list(enumerate(tensors)))
        for p, w in reversed(list(enumerate(m.shape)))
        if isinstance(w, Expr) and w.op == "sym"
    }
    found: list[tuple[str, int, int, int, int | None, int, int]] = []
    for name, s in sizes.symbols.items():
        low, high, step, rest = s.symbol_bounds
        if name not in places or not isinstance(low, int) or isinstance(high, Expr):
            return None
        found.append((name, *places[name], low, high, step, rest))
    exprs: list[Expr] = []

    def listed(values: Iterable[Expr | int]) -> slice:
        first = len(exprs)
        exprs.extend(as_expr(v) for v in values)
        return slice(first, len(exprs))

    shapes, strides = tuple(listed(m.shape) for m in tensors), tuple(listed(m.strides) for m in made)
    guards = listed(sizes.guards)
    tape, names = Tape(exprs), [name for name, *_ in found]
    if any(n not in names for n in tape.names):
        return None
    order = tuple(names.index(n) for n in tape.names)
    return Alike(likeness, caller, tuple(found), tape.function(), order, shapes, strides, guards)
