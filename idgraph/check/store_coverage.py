"""The writes of a nest: each element of its tensor once, and nothing else.

Which element of the program lies where: each element of each tensor has a number, equal for one that only moved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.arith.digit_solver import one_to_one
from idgraph.arith.solve import coefficients
from idgraph.check.address_solutions import points_at
from idgraph.check.enumeration import chunks, extents_of
from idgraph.check.program import ZERO, Axis, BufferLayout, Nest, NeutralProgram, Write
from idgraph.check.report import Difference, Verdict
from idgraph.check.semantics import ProgramSemantics
from idgraph.errors import IdGraphError
from idgraph.ir import Fusion, Tensor
from idgraph.validate.oracle import INDEXED, reads, shape_of

LARGEST = 1 << 22  # elements of a tensor that get numbers one by one
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip

Ints = npt.NDArray[np.int64]


class TooLarge(Exception):
    """A tensor has too many elements to number them."""


def conflict(p: NeutralProgram, a: BufferLayout, b: BufferLayout, sizes: Mapping[str, int]) -> bool:
    """Whether two buffers of one storage declare different elements at one address."""
    if a.tensor == b.tensor and (a.strides, a.offset) == (b.strides, b.offset):
        return False
    elements = Elements(p.fusion, sizes)
    if a.tensor not in elements.tensors or b.tensor not in elements.tensors:
        return False
    (x, of_x), (y, of_y) = elements.placed(a), elements.placed(b)
    _, k, j = np.intersect1d(x, y, return_indices=True)
    return bool((of_x[k] != of_y[j]).any())


class Elements:
    """Numbers of elements, made where they are asked for; 0 is not an element."""

    def __init__(self, fusion: Fusion, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.tensors = {t.name: t for t in fusion.tensors}
        self.made: dict[str, Ints] = {}
        self.starts: list[tuple[int, Tensor]] = []
        self.fills: dict[tuple[str, str], int] = {}
        self.next = 1

    def of(self, t: Tensor) -> Ints:
        """The numbers of a tensor's elements, row-major."""
        found = self.made.get(t.name)
        if found is None:
            found = self.made[t.name] = self._numbered(t)
        return found

    def _numbered(self, t: Tensor) -> Ints:
        count = prod(shape_of(t, self.sizes))
        if count > LARGEST:
            raise TooLarge(f"{t.name} has {count} elements: too many to follow each")
        own = np.arange(self.next, self.next + count, dtype=np.int64)
        self.starts.append((self.next, t))
        self.next += count
        e = t.definition
        if e is None or e.op in INDEXED or e.op not in _MOVES:
            return own
        if e.op == "pad" and count:  # one number for all that is filled with one value
            key = (t.dtype, str(e.attrs.get("value", 0)))
            own = np.full(count, self.fills.setdefault(key, int(own[0])), dtype=np.int64)
        for k, x in ((k, x) for k, x in enumerate(e.inputs) if x.dtype == t.dtype):  # others are converted
            try:
                table = np.asarray(reads(e, k, symbols=self.sizes)).reshape(-1)
            except (IdGraphError, KeyError):
                return own
            source = self.of(x)
            if len(table) != count:
                return own
            own = np.where(table >= 0, source[np.maximum(table, 0)] if len(source) else own, own)
        return own

    def placed(self, b: BufferLayout) -> tuple[Ints, Ints]:
        """(addresses in the storage, numbers) of all elements of the tensor in a buffer."""
        t = self.tensors[b.tensor]
        labels = self.of(t)
        at = np.array([int(b.offset.evaluate(self.sizes))], dtype=np.int64)
        for n, s in zip(shape_of(t, self.sizes), b.strides, strict=True):
            at = (at[:, None] + np.arange(n)[None, :] * int(s.evaluate(self.sizes))).reshape(-1)
        return at, labels

    def name(self, label: int) -> str:
        """``y[0, 3]``; memory that holds no element has none."""
        if label < 0:
            return "no element of its tensor, or one that the order of points decides"
        found = next(((s, t) for s, t in reversed(self.starts) if s <= label), None)
        if label == 0 or found is None:
            return "memory that nothing has written"
        where = np.unravel_index(label - found[0], shape_of(found[1], self.sizes))
        return f"{found[1].name}[{', '.join(str(int(x)) for x in where)}]"


def delinearize(address: Expr, buffer: BufferLayout, shape: Sequence[Expr]) -> list[Expr]:
    """The coordinates of the element at an address, from the strides; a broadcast or single axis is at 0.

    >>> from idgraph.arith import symbol
    >>> b = BufferLayout("b", "t", (as_expr(8), as_expr(1)))
    >>> [str(x) for x in delinearize(symbol("i", 0, 31), b, [as_expr(4), as_expr(8)])]
    ['i//8', 'i%8']
    """
    one = as_expr(1)
    rest = simplify(address - buffer.offset)
    order = [p for p in memory_order(buffer.strides, shape) if shape[p] != one]
    out: list[Expr] = [as_expr(0)] * len(shape)
    for k, p in enumerate(order):
        step = buffer.strides[p]
        part = rest if k == 0 else rest % buffer.strides[order[k - 1]]
        out[p] = simplify(part // step)
    return out


def memory_order(strides: Sequence[Expr], shape: Sequence[Expr]) -> list[int]:
    """Axes from the outermost in memory inwards."""
    fixed = all(s.is_const for s in strides)
    if fixed:
        return sorted(range(len(shape)), key=lambda p: -int(strides[p]))
    # Of symbolic strides one is wider where it is a multiple of the other: compared at one large size.
    env = {n: 1009 + 64 * k for k, n in enumerate(sorted({n for s in strides for n in s.names}))}
    return sorted(range(len(shape)), key=lambda p: -int(strides[p].evaluate(env)))


def inverse(address: Expr, axes: Sequence[Axis]) -> tuple[dict[str, Expr], Expr] | None:
    """Loops as functions of the symbol ``a`` (an address), and when they are in range; None where not known.

    For addresses that are mixed-radix numbers of the loops: every written element has one point.
    """
    found = coefficients(address, [a.symbol for a in axes])
    if found is None:
        return None
    *steps, rest = found
    live = [(s, a) for s, a in zip(steps, axes, strict=True) if a.extent != as_expr(1)]
    if not all(s.is_const and a.extent.is_const for s, a in live):
        chain = _chained(live)
        if chain is None:
            return None
        live = chain
    else:
        live.sort(key=lambda sa: int(sa[0]))
        reach = 1
        for s, a in live:
            if int(s) < reach:
                return None
            reach = int(s) * int(a.extent)
    from_zero = _address() - rest
    out = {a.name: as_expr(0) for a in axes}
    held = from_zero >= 0
    for k, (s, a) in enumerate(live):
        part = from_zero // s
        out[a.name] = simplify(part if k == len(live) - 1 else part % (live[k + 1][0] // s))
        held = and_(held, out[a.name] < a.extent)
    total = simplify(address.substitute(out))
    return out, simplify(and_(held, total.eq(_address())))


def _address() -> Expr:
    return symbol("a", 0, None)


def _chained(live: list[tuple[Expr, Axis]]) -> list[tuple[Expr, Axis]] | None:
    """Loops from the innermost outwards where each step is the extent of the memory below it."""
    out: list[tuple[Expr, Axis]] = []
    step = as_expr(1)
    left = list(live)
    while left:
        found = next((x for x in left if simplify(x[0] - step) == as_expr(0)), None)
        if found is None:
            return None
        left.remove(found)
        out.append(found)
        step = simplify(found[0] * found[1].extent)
    return out


def element_of(address: Expr, coordinates: Sequence[Expr], buffer: BufferLayout, shape: Sequence[Expr]) -> Expr:
    """The condition that an address is the one of an element of the tensor: in range, and in no gap."""
    back = buffer.offset + sum((c * s for c, s in zip(coordinates, buffer.strides, strict=True)), start=as_expr(0))
    inside = [and_(c >= 0, c < n) for c, n in zip(coordinates, shape, strict=True)]
    return and_(*inside, simplify(back - address).eq(0))


def covers(address: Expr, axes: Sequence[Axis], inside: Expr, when: Expr, elements: Expr) -> bool:
    """Proved: each of ``elements`` elements is written at exactly one point, and nothing else (``inside``)."""
    if when is not TRUE or simplify(inside) is not TRUE:
        return False
    total = simplify(prod((a.extent for a in axes), start=as_expr(1)))
    return simplify(total - elements) == as_expr(0) and injective(address, axes, when)


def _radix(live: list[tuple[Expr, Axis]]) -> bool:
    """Each stride exceeds the reach of the smaller ones; the extent of the widest does not matter."""
    names = sorted({n for s, a in live for n in (*s.names, *a.extent.names)})
    env = {n: 1009 + 64 * k for k, n in enumerate(names)}  # an order that holds for large sizes, proved below for all
    reach = as_expr(1)
    for s, a in sorted(live, key=lambda sa: int(sa[0].evaluate(env))):
        if simplify(s >= reach) is not TRUE:
            return False
        reach = simplify(s * a.extent)
    return True


def injective(address: Expr, axes: Sequence[Axis], when: Expr) -> bool:
    """Proved: no element is written at two points."""
    found = coefficients(address, [a.symbol for a in axes])
    if when is FALSE:
        return True
    live = [(s, a) for s, a in zip(found, axes) if a.extent != as_expr(1)] if found else []
    if found is not None and (_chained(live) is not None or _radix(live)):
        return True
    return one_to_one([a.symbol for a in axes], [address])


def written(address: Expr, axes: Sequence[Axis], when: Expr, env: dict[str, int]) -> npt.NDArray[np.int64]:
    """All addresses written, in the order of the loops."""
    sizes = [max(int(a.extent.evaluate(env)), 0) for a in axes]
    parts: list[npt.NDArray[np.int64]] = []
    for flat, coordinates in chunks(sizes, 1 << 20):
        here = {**env, **dict(zip((a.name for a in axes), coordinates, strict=True))}
        at = np.broadcast_to(address.evaluate_array(here), flat.shape)
        parts.append(at[np.broadcast_to(when.evaluate_array(here), flat.shape)])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def are_disjoint(a: Sequence[Expr], b: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Proved: no element of the one list of coordinates is one of the other, whose loops (``axes``) are its own."""
    fresh = {x.name: Axis(f"{x.name}'", x.extent).symbol for x in axes}
    other = [y.substitute(fresh) for y in b]
    return any(simplify(x < y) is TRUE or simplify(y < x) is TRUE for x, y in zip(a, other, strict=True))


ELEMENTS = 1 << 23  # elements of a buffer whose writes are counted one by one
Told = tuple[Verdict, str, Difference | None]


@dataclass(frozen=True, slots=True)
class _Mate:
    """One write into a memory: loops, address, condition."""

    loops: tuple[Axis, ...]
    address: Expr
    when: Expr
    buffer: BufferLayout

    def by_value(self, symbols: Collection[str]) -> bool:
        """Whether where it writes depends on loaded values."""
        return bool((self.address.names | self.when.names) - {a.name for a in self.loops} - set(symbols))


def element(
    program: NeutralProgram,
    meaning: ProgramSemantics,
    storage: str,
    at: int,
    sizes: Mapping[str, int],
    buffer: BufferLayout | None = None,
) -> str:
    """``buf0[17] = cat[0, 2, 1]``."""
    b = buffer or next((b for b in program.buffers if b.home == storage), None)
    t = meaning.tensors.get(b.tensor) if b else None
    if b is None or t is None:
        return f"{storage}[{at}]"
    where = delinearize(as_expr(at), b, extents_of(t))
    shown = [int(x.evaluate(sizes)) for x in where]
    inside = all(0 <= c < int(n.evaluate(sizes)) for c, n in zip(shown, extents_of(t), strict=True))
    return f"{storage}[{at}] = {t.name}{shown}" + ("" if inside else ", outside of it")


@dataclass(frozen=True, slots=True)
class StoreCoverage:
    """One write of a nest: ``address`` and ``held`` in terms of its loops (``held``: where it happens)."""

    program: NeutralProgram
    meaning: ProgramSemantics
    nest: Nest
    write: Write
    buffer: BufferLayout
    address: Expr
    held: Expr
    by_value: bool  # the address is of loaded values

    def verdict(self, samples: Sequence[dict[str, int]]) -> Told:
        """The verdict, why, and an element that is written wrongly."""
        tensor = self.meaning.tensors[self.buffer.tensor]
        shape = extents_of(tensor)
        inside = element_of(self.address, delinearize(self.address, self.buffer, shape), self.buffer, shape)
        mates = self._mates()
        elements = simplify(prod(shape, start=as_expr(1)))
        if len(mates) == 1 and covers(self.address, self.nest.loops, inside, self.held, elements):
            return "proved", "each element is written once", None
        if len(mates) == 1 and not self.by_value and self._inverted(inside, shape):
            return "proved", "each element is written once, at the point that its address gives", None
        if len(mates) > 1 and self._parted(mates, covers(self.address, self.nest.loops, inside, self.held, elements)):
            return "proved", f"{len(mates)} writes of different parts fill it, each element once", None
        told: Told = ("unknown", "no sizes to try", None)
        for sizes in samples:
            told = self._counted(mates, inside, sizes)
            if told[0] != "enumerated":
                return told
        parts = [x for m in mates for x in (m.address, m.when, *(a.extent for a in m.loops), *m.buffer.strides)]
        if self.program.symbols.keys() & frozenset[str]().union(*(x.names for x in (*parts, inside, *shape))):
            return "unknown", f"not proved for all sizes; {told[1]} at the sizes tried", None
        return told

    def _mates(self) -> list[_Mate]:
        """All writes that fill the buffer's memory: the pieces of a cat are written by several nests and calls."""
        own, calls = self.buffer, set(self.program.order) - {n.name for n in self.program.nests}
        here = [b for b in self.program.buffers if b.home == own.home]
        called = [b for b in here if b.after in calls]
        stored = {w.buffer for n in self.program.nests for w in n.writes} | {b.name for b in called}
        operands = _moved(self.meaning.tensors[own.tensor])
        parts = [b for b in here if b is own or not self._other(b)]
        for x in parts:  # what an update in place is laid over fills a part too
            if x.over != own.over and x.name in stored:
                parts += [b for b in here if b not in parts and (b.tensor, b.offset) == (x.over, x.offset)]
                operands.add(x.over)
        filling = {b.name: b for b in parts if b.over == own.over}
        return [
            _Mate(n.loops, simplify(w.index + filling[w.buffer].base), w.when, filling[w.buffer])
            for n in self.program.nests for w in n.writes if w.buffer in filling
        ] + [
            self._filled(b) for b in called if b.name in filling and b.tensor in operands
        ]  # fmt: skip

    def _filled(self, b: BufferLayout) -> _Mate:
        """All of a buffer, which a call writes."""
        axes = tuple(Axis(f"c{k}", n) for k, n in enumerate(extents_of(self.meaning.tensors[b.tensor])))
        at = b.offset + sum((a.symbol * s for a, s in zip(axes, b.strides, strict=True)), start=ZERO)
        return _Mate(axes, simplify(at), TRUE, b)

    def _other(self, b: BufferLayout) -> bool:
        """A later tensor laid over this one, not a part of the same."""
        try:
            return not self.program.symbols and conflict(self.program, self.buffer, b, {})
        except TooLarge:
            return False

    def _parted(self, mates: Sequence[_Mate], own: bool) -> bool:
        """Proved: the writes fill different boxes of a tensor as large as all, in the coordinates of which this memory
        lies, each element of it once; ``own``: this write fills its tensor, which then may be one of the parts.
        """
        points = [prod((a.extent for a in m.loops), start=as_expr(1)) for m in mates]
        total = simplify(sum(points, start=as_expr(0)))
        here = [m.buffer for m in mates]
        here += [b for b in self.program.buffers if own and b.home == self.buffer.home]
        tensors = [(self.meaning.tensors.get(b.tensor), b) for b in here]
        whole = next(
            (
                (t, b)
                for t, b in tensors
                if t is not None and simplify(prod(extents_of(t), start=as_expr(1)) - total) == ZERO
            ),
            None,
        )
        if whole is None or any(m.when is not TRUE for m in mates):
            return False
        shape = extents_of(whole[0])
        found: list[list[Expr]] = []
        for m in mates:
            places = delinearize(m.address, whole[1], shape)
            inside = element_of(m.address, places, whole[1], shape)
            if simplify(inside) is not TRUE or not injective(m.address, m.loops, m.when):
                return False
            found.append(places)
        return all(are_disjoint(a, b, mates[j].loops) for i, a in enumerate(found) for j, b in enumerate(found[:i]))

    def _inverted(self, inside: Expr, shape: Sequence[Expr]) -> bool:
        """Proved: the address of each element has one point, which is run, and what is run writes elements only."""
        back, facts = inverse(self.address, self.nest.loops), self.program.facts
        if back is None or simplify(inside, facts=(self.held, *facts)) is not TRUE:
            return False
        axes = [symbol(f"e.{k}", 0, simplify(n - 1)) for k, n in enumerate(shape)]
        at = self.buffer.offset + sum((c * s for c, s in zip(axes, self.buffer.strides, strict=True)), start=ZERO)
        given = {name: x.substitute({"a": at}) for name, x in back[0].items()}
        runs = and_(back[1].substitute({"a": at}), self.held.substitute(given))
        return simplify(runs, facts=facts) is TRUE

    def _counted(self, mates: Sequence[_Mate], inside: Expr, sizes: dict[str, int]) -> Told:
        points = sum(prod(max(int(a.extent.evaluate(sizes)), 0) for a in m.loops) for m in mates)
        shape = [int(n.evaluate(sizes)) for n in extents_of(self.meaning.tensors[self.buffer.tensor])]
        elements = prod(shape)
        if self.by_value or any(m.by_value(self.program.symbols) for m in mates):
            return "unknown", "an address is of loaded values: which elements are written is not counted", None
        if max(points, elements) > ELEMENTS:
            return "unknown", f"{max(points, elements)} elements are too many to count", None
        outside = written(self.address, self.nest.loops, and_(self.held, ~inside), sizes)
        if outside.size:
            return self._confirmed("an address that is not an element's", int(outside[0]), mates, sizes)
        total, parts = 0, list[npt.NDArray[np.int64]]()
        for m in mates:  # an element that two nests write holds what the last one stores: rows of both say what that is
            part, counts = np.unique(written(m.address, m.loops, m.when, sizes), return_counts=True)
            if (counts > 1).any():
                return self._confirmed("an element is written twice", int(part[counts > 1][0]), mates, sizes)
            parts.append(part)
            total += len(part)
        every = np.sort(np.concatenate(parts))  # sorted: NumPy's own sets of integers are hashed, and slow
        kept = every[np.flatnonzero(np.append(True, every[1:] != every[:-1])[: len(every)])]
        asked = self._addresses(sizes)
        place = np.minimum(np.searchsorted(kept, asked), max(len(kept) - 1, 0))
        missing = asked[kept[place] != asked] if len(kept) else asked
        if missing.size:
            because = f"{len(missing)} of {elements} elements are not written"
            return self._confirmed(because, int(missing[0]), mates, sizes)
        once = " once" if total == len(kept) else ""
        return "enumerated", f"each of {elements} elements is written{once}", None

    def _confirmed(self, because: str, at: int, mates: Sequence[_Mate], sizes: dict[str, int]) -> Told:
        """A fault at an address is reported only where plain Python counts it too, from the original formulas."""
        shape = extents_of(self.meaning.tensors[self.buffer.tensor])
        axes = [Axis(f"e.{k}", n) for k, n in enumerate(shape)]
        steps = zip(axes, self.buffer.strides, strict=True)
        place = self.buffer.offset + sum((a.symbol * s for a, s in steps), start=ZERO)
        own = points_at(place, TRUE, axes, at, sizes)
        parts = [points_at(m.address, m.when, m.loops, at, sizes) for m in mates]
        if own is None or None in parts:
            return "unknown", f"{because}, as NumPy counts; too many points to count them again", None
        hits = [env for part in parts for env in part or ()]
        name = element(self.program, self.meaning, self.buffer.home, at, sizes, self.buffer)
        formula = str(self.write.index)
        if "not written" in because:
            fault = bool(own) and not hits
            found = Difference(dict(sizes), "", None, f"{name} is written", formula)
        else:
            fault = bool(hits) and not own if "not an element" in because else bool(own) and len(hits) > 1
            found = Difference(hits[-1] if hits else dict(sizes), name, None, None, formula)
        if not fault:
            return "unknown", f"{because}, as NumPy counts; plain Python does not", None
        return "refuted", because, found

    def _addresses(self, sizes: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """Where the elements of the tensor lie."""
        every = np.array([int(self.buffer.offset.evaluate(sizes))], dtype=np.int64)
        shape = extents_of(self.meaning.tensors[self.buffer.tensor])
        for n, s in zip(shape, self.buffer.strides, strict=True):
            every = (every[:, None] + np.arange(int(n.evaluate(sizes)))[None, :] * int(s.evaluate(sizes))).reshape(-1)
        return every


def _moved(t: Tensor) -> set[str]:
    """The tensors whose elements a tensor has, only moved."""
    found, left = set[str](), [t]
    while left:
        e = left.pop().definition
        if e is not None and e.op in _MOVES:
            left += [x for x in e.inputs if x.name not in found]
            found |= {x.name for x in e.inputs}
    return found


def overlaps(buffer: BufferLayout, shape: Sequence[Expr]) -> bool:
    """True where two elements of a tensor may lie at one address (windows that overlap): axes of a fixed size of
    which one does not step beyond what the smaller ones reach, and are not a mixed-radix number another way.
    """
    if not all(x.is_const for x in (*shape, *buffer.strides)):
        return False
    live = sorted((abs(int(s)), int(n)) for s, n in zip(buffer.strides, shape, strict=True) if int(n) > 1)
    reach = 0
    for step, n in live:
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False
