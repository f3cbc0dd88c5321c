"""Calls with arrays whose sizes no call has had, else like those of a frozen program.

All that follows from sizes is one Python function of the keys of the arrays, written once: values of symbols, what must
hold of them, memory of outputs, blocks, and the words that launches take. Where anything does not hold the function
gives None, and the call is found the whole way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.arith import Expr, as_expr, is_true, maximum
from idgraph.arith.evaluate import SPACE, SourceLines
from idgraph.arith.expr import ZERO, from_terms
from idgraph.arith.linear import factors, terms
from idgraph.runtime.array_backends import UNMAPPED, shape_place
from idgraph.runtime.binding import OutputMemory, fits

if TYPE_CHECKING:
    from idgraph.runtime.shape_specialized import ShapeSpecialization, Tell

Size = Expr | int
Place = tuple[Sequence[Size], Sequence[Size], Size]  # shape, strides, start
Whole = Callable[
    [Sequence[Any], Mapping[str, int]], "ShapeSpecialization"
]  # the program frozen for these arrays and symbols
KEPT = 16  # sorts of arrays whose sizes are laid out by a function of their own


# What a key gives: values of the program's symbols, shapes and strides of its outputs or elements of its other memory,
# for each kernel the numbers of its launch and its words, and the numbers of `GuardSpec.more`.
Parts = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
Laid = tuple[dict[str, int], tuple[Any, ...], Parts, tuple[Any, ...]]


class GuardSpec(NamedTuple):
    """The facts that calls are compared with: the sizes of each argument (one for an integer, None for any other
    value), the argument that each input is, the symbols with their ranges, and more that must hold."""

    arguments: Sequence[Sequence[Size] | Size | None]
    places: Sequence[int]
    symbols: Mapping[str, Expr]
    guards: Sequence[Expr] = ()
    strides: Sequence[tuple[int, Sequence[Size]]] = ()  # of outputs, by place among them
    lying: Sequence[tuple[int, Sequence[Size]]] = ()  # strides of arguments, exactly
    more: Sequence[Size | Place] = ()  # what the caller asks for


class ShapeFamily:
    """Calls of arrays that differ from those of ``frozen`` only in sizes."""

    __slots__ = ("_lay", "_whole", "count", "frozen", "inputs", "makers", "order", "places")

    def __init__(
        self, frozen: ShapeSpecialization, lay: Callable[[Any], Laid | None], places: Sequence[int], whole: Whole
    ) -> None:
        kind = frozen.kind
        self.frozen, self._lay, self._whole = frozen, lay, whole
        self.count, self.order, self.places = frozen.count, frozen.order, tuple(places)
        self.inputs = tuple((i.position, i.number, i.before, i.alignment) for i in frozen.inputs)
        device = frozen.device
        self.makers = tuple((kind.allocator(m.dtype, device, m.shape is not None), m.number) for m in frozen.made)

    def __call__(self, key: Any) -> ResizedCall | None:
        """The call for arrays with this key; None where they are not like the others, or do not fit."""
        found = self._lay(key)
        return None if found is None else ResizedCall(self, found)

    def specialize(self, values: Sequence[Any], env: Mapping[str, int]) -> ShapeSpecialization:
        """The program frozen for these arrays, by all the work that it takes."""
        return self._whole(values, env)


class ResizedCall:
    """A call for arrays of certain sizes; what it rarely needs is found when it does."""

    __slots__ = ("_alike", "_frozen", "env", "launches", "memory", "more")

    def __init__(self, alike: ShapeFamily, laid: Laid) -> None:
        self._alike, self._frozen = alike, None
        self.env, self.memory, launches, self.more = laid
        self.launches = alike.frozen.launches.resized(self.env, launches)

    def __call__(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | None,
        memory: OutputMemory | None,
        tell: Tell | None,
        wait: bool,
    ) -> list[Any]:
        """See `idgraph.runtime.dispatch.Route`."""
        if out is None and memory is None:
            return self.run_all(values, tell, wait)
        return self.frozen(values)(values, out, memory, tell, wait)

    def run_all(self, values: Sequence[Any], tell: Tell | None, wait: bool) -> list[Any]:
        """A call whose outputs are all new arrays."""
        alike = self._alike
        address_of, addresses = alike.frozen.kind.address, [0] * alike.count
        for position, number, before, alignment in alike.inputs:
            address = addresses[number] = address_of(values[position]) - before
            if address % alignment or address < UNMAPPED:  # it is copied, or refused
                return self.frozen(values)(values, None, None, tell, wait)
        made: list[Any] = []
        try:
            for (make, number), lie in zip(alike.makers, self.memory, strict=True):
                found = make(*lie)
                addresses[number] = address_of(found)
                made.append(found)
        except (MemoryError, ValueError):  # raised again, by name
            return self.frozen(values)(values, None, None, tell, wait)
        self.launches(addresses, wait)
        return [made[n] if n >= 0 else values[-1 - n] for n in alike.order]

    @property
    def like(self) -> ShapeSpecialization:
        """The frozen program that this one was laid out by."""
        return self._alike.frozen

    @property
    def whole_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the memory that calls make for outputs."""
        return [lie[0] for lie in self.memory if len(lie) > 1]

    def frozen(self, values: Sequence[Any]) -> ShapeSpecialization:
        """The frozen program for these arrays."""
        if self._frozen is None:
            self._frozen = self._alike.specialize(values, self.env)
        return self._frozen


def compile_shape_guards(
    frozen: ShapeSpecialization, keys: Sequence[Any], wanted: GuardSpec, whole: Whole
) -> ShapeFamily | None:
    """Calls like that of ``frozen`` for arguments with these keys. None where a call does more than to launch kernels,
    or where a size follows from no argument."""
    mold = frozen.program.mold
    unlike = any(i.why or i.layout.strides is None or not mold.exprs[i.layout.offset].is_const for i in frozen.inputs)
    read = [keys[wanted.places[i.position]] for i in frozen.inputs]
    if (
        unlike
        or mold.free
        or mold.fusion.equalities
        or not frozen.gives_whole
        or any(shape_place(k) is None for k in read)
    ):
        return None
    writer = _Writer(keys, frozen.program.fits_sizes if frozen.program.asks_for_sizes else None)
    writer.solve(wanted)
    if any(s not in writer.lines.names for s in (*wanted.symbols, *frozen.program.fusion.symbols)):
        return None
    for symbols in (wanted.symbols, frozen.program.fusion.symbols):
        writer.ranges(symbols)
    try:
        _compare(writer, frozen, wanted)
        memory, launches = _laid(writer, frozen)
        lay = writer.function(frozen.program.fusion.symbols, memory, launches, writer.more(wanted.more))
    except KeyError:  # a size of neither arguments nor symbols
        return None
    return ShapeFamily(frozen, lay, wanted.places, whole)


def compile_symbol_guards(keys: Sequence[Any], wanted: GuardSpec) -> Callable[[Any], dict[str, int] | None] | None:
    """A function of the keys of arguments that are like these in all but sizes: the values of the symbols; None where
    anything that is ``wanted`` does not hold. None instead of it where the arguments do not give all symbols.

    >>> from idgraph.arith import symbol
    >>> spec = GuardSpec([(symbol("n", 2, 8), 3)], (), {"n": symbol("n", 2, 8)})
    >>> find = compile_symbol_guards([("float32", (6, 3), (3, 1))], spec)
    >>> find([("float32", (7, 3), (3, 1))]), find([("float32", (9, 3), (3, 1))]), find([("int32", (7, 3), (3, 1))])
    ({'n': 7}, None, None)
    """
    writer = _Writer(keys, None)
    writer.solve(wanted)
    if any(s not in writer.lines.names for s in wanted.symbols):
        return None
    writer.ranges(wanted.symbols)
    for n, sizes in enumerate(wanted.arguments):
        writer.sizes(n, sizes)
    writer.hold(wanted.guards)
    return writer.environment(wanted.symbols)


def _compare(writer: _Writer, frozen: ShapeSpecialization, wanted: GuardSpec) -> None:
    """Conditions of arguments, results and memory."""
    mold = frozen.program.mold
    for n, sizes in enumerate(wanted.arguments):
        writer.sizes(n, sizes)
    for i, n in zip(mold.inputs, wanted.places, strict=True):
        writer.sizes(n, mold.exprs[i.layout.shape])
    for i in frozen.inputs:
        if i.layout.strides is not None:
            unit = frozen.kind.unit(i.tensor.dtype)
            writer.lies(wanted.places[i.position], [s * unit for s in mold.exprs[i.layout.strides]])
    for n, strides in wanted.lying:
        writer.lies(n, strides, exactly=True)
    writer.hold(wanted.guards)
    for m in mold.made:
        if m.layout is not None:
            writer.hold(n.ne(0) for n in mold.exprs[m.layout.shape])
        if m.buffer.place == "output" and m.layout is not None and m.layout.strides is not None:
            shape, strides = mold.exprs[m.layout.shape], mold.exprs[m.layout.strides]
            size = maximum(1, mold.exprs[m.layout.size])
            reach = sum((((n - 1) * s) for n, s in zip(shape, strides, strict=True)), as_expr(1))
            writer.hold((reduce(mul, shape, as_expr(1)).eq(size), reach.eq(size)))
    for place, strides in wanted.strides:
        layout = mold.made[frozen.order[place]].layout if frozen.order[place] >= 0 else None
        if layout is None or layout.strides is None:
            raise KeyError(place)
        writer.hold(a.eq(b) for a, b in zip(mold.exprs[layout.strides], map(as_expr, strides), strict=True))
        writer.hold(n.ne(1) for n in mold.exprs[layout.shape])  # its stride is the captured one, which a copy sees to


def _laid(writer: _Writer, frozen: ShapeSpecialization) -> tuple[list[str], list[str]]:
    """Texts of the memory, and of the launches."""
    mold = frozen.program.mold
    sizes: dict[int, Expr] = {i.number: mold.exprs[i.layout.size] for i in frozen.inputs}
    memory: list[str] = []
    for m, known in zip(mold.made, frozen.made, strict=True):
        sizes[m.number] = maximum(1, mold.exprs[m.size])
        if known.shape is None or m.layout is None or m.layout.strides is None:
            memory.append(writer.tuple((sizes[m.number],)))
        else:
            shape, strides = mold.exprs[m.layout.shape], mold.exprs[m.layout.strides]
            memory.append(f"({writer.tuple(shape)}, {writer.tuple(strides)})")
    launches: list[str] = []
    for numbers, words, within in frozen.launches.parts(sizes, mold.exprs):
        writer.hold(within)
        launches.append(f"({writer.tuple(numbers)}, {writer.tuple(words)})")
    return memory, launches


def _is_linear(product: Expr, name: str) -> bool:
    """Whether one factor is the symbol, and no other depends on it."""
    found = [f for f in factors(product) if name in f.names]
    return len(found) == 1 and found[0].op == "sym"


class _Writer:
    """Writes the function of a key."""

    def __init__(self, keys: Sequence[Any], fitting: Callable[[Mapping[str, int]], bool] | None) -> None:
        self.lines = SourceLines({})
        self._space: dict[str, Any] = {**SPACE, "fits": fits, "fitting": fitting}
        self._tests: list[str] = []
        heads: list[str] = []
        for n, key in enumerate(keys):
            names = [f"a{n}_{k}" for k in range(len(key))]
            fixed = list(range(len(key)))
            at = shape_place(key)
            if at is not None:
                names[at], names[at + 1] = f"x{n}", f"t{n}"
                fixed = [k for k in fixed if k not in (at, at + 1)]
            elif len(key) == 2 and key[0] is int:
                names[1], fixed = f"x{n}", [0]
            self._space[f"c{n}"] = tuple(key[k] for k in fixed)
            self._tests.append(f"({''.join(f'{names[k]}, ' for k in fixed)}) == c{n}")
            heads.append(f"({', '.join(names)}), ")
        self._head = f"{''.join(heads)} = key"

    def solve(self, wanted: GuardSpec) -> None:
        """Let sizes of arguments give values to symbols: each the first that has one unknown, and is affine in it."""
        for _ in range(2):  # a sum of two symbols needs one of them first
            for n, sizes in enumerate(wanted.arguments):
                many = () if sizes is None else (sizes,) if isinstance(sizes, (int, Expr)) else sizes
                for p, e in enumerate(many):
                    if isinstance(e, Expr):
                        self._solved(e, f"x{n}" if isinstance(sizes, (int, Expr)) else f"x{n}[{p}]")

    def _solved(self, e: Expr, given: str) -> None:
        unknown = sorted(e.names - self.lines.names.keys())
        if len(unknown) != 1:
            return
        (name,) = unknown
        parts, constant = terms(e)
        rising = {x: k for x, k in parts.items() if name in x.names}
        slope = from_terms(rising, 0).substitute({name: 1}) if all(_is_linear(x, name) for x in rising) else ZERO
        if not is_true(slope.ne(0)):
            return
        base = from_terms({x: k for x, k in parts.items() if x not in rising}, constant)
        plain = base.is_const and slope.is_const and (base.value, slope.value) == (0, 1)
        value = given if plain else f"({given} - {self.lines.text(base)}) // {self.lines.text(slope)}"
        made = self.lines.names[name] = f"s{len(self.lines.names)}"
        self.lines.lines.append(f"{made} = {value}")

    def ranges(self, symbols: Mapping[str, Expr]) -> None:
        """The declared ranges hold."""
        for name, e in symbols.items():
            value, (low, high, step, rest) = self.lines.names[name], e.symbol_bounds
            if low is not None:
                self._test(f"{value} >= {self.lines.text(as_expr(low))}")
            if high is not None:
                self._test(f"{value} <= {self.lines.text(as_expr(high))}")
            if step != 1:
                self._test(f"{value} % {step} == {rest % step}")

    def sizes(self, n: int, sizes: Sequence[Size] | Size | None) -> None:
        """An argument has these sizes."""
        if isinstance(sizes, (int, Expr)):
            self._test(f"x{n} == {self.lines.text(as_expr(sizes))}")
        elif sizes is not None:
            self._test(f"x{n} == {self.tuple(sizes)}")

    def lies(self, n: int, strides: Iterable[Size], exactly: bool = False) -> None:
        """An argument has elements, in these places; ``exactly``: strides of axes of one element count."""
        wanted = self.tuple(strides)
        self._test(f"0 not in x{n}")
        self._test(f"t{n} == {wanted}" if exactly else f"(t{n} == {wanted} or fits(x{n}, t{n}, {wanted}))")

    def hold(self, conditions: Iterable[Expr]) -> None:
        """All of them."""
        for c in conditions:
            text = self.lines.text(c)
            if text != "True":
                self._test(text)

    def tuple(self, sizes: Iterable[Size]) -> str:
        """The numbers as a tuple."""
        return f"({''.join([f'{self.lines.text(as_expr(n))}, ' for n in sizes])})"

    def more(self, wanted: Iterable[Size | Place]) -> str:
        """Numbers, and shapes with strides and starts."""
        found = [
            f"({self.tuple(w[0])}, {self.tuple(w[1])}, {self.lines.text(as_expr(w[2]))}), "
            if isinstance(w, tuple)
            else f"{self.lines.text(as_expr(w))}, "
            for w in wanted
        ]
        return f"({''.join(found)})"

    def _test(self, text: str) -> None:
        if text not in self._tests:
            self._tests.append(text)

    def environment(self, symbols: Iterable[str]) -> Callable[[Any], dict[str, int] | None]:
        """The function that gives only the values of symbols."""
        return self._compiled(symbols, self._tests, "env")

    def function(
        self, symbols: Iterable[str], memory: Sequence[str], launches: Sequence[str], more: str
    ) -> Callable[[Any], Laid | None]:
        """The function."""
        tests = [*self._tests, "fitting(env)"] if self._space["fitting"] is not None else self._tests
        found = f"env, ({''.join(f'{x}, ' for x in memory)}), ({''.join(f'{x}, ' for x in launches)}), {more}"
        return self._compiled(symbols, tests, found)

    def _compiled(self, symbols: Iterable[str], tests: Sequence[str], found: str) -> Callable[[Any], Any]:
        env = ", ".join(f"{name!r}: {self.lines.names[name]}" for name in symbols)
        lines = [
            "def lay(key):",
            "    try:",
            *(f"        {line}" for line in (self._head, *self.lines.lines)),
            "    except (IndexError, ValueError, ZeroDivisionError):",
            "        return None",
            f"    env = {{{env}}}",
            f"    if not ({' and '.join(tests)}):",
            "        return None",
            f"    return {found}",
        ]
        exec("\n".join(lines), self._space)  # noqa: S102 - words of ours and integers
        return self._space["lay"]
