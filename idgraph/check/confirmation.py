"""A difference is reported only after two judges that share no code with its finders have seen it at its point.

`confirm_difference` goes over the reduced loops in plain Python, number by number. `reads_by_evaluation` walks the
program back from one element through the oracle's tables, which know operations by what NumPy does and nothing of
index maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, cast
from zlib import crc32

import numpy as np

from idgraph.arith import Expr, as_expr
from idgraph.check.enumeration import Gap, Space, extents_of
from idgraph.check.index_values import ValueTable
from idgraph.check.program import BufferLayout, NeutralProgram
from idgraph.check.semantics import Address, ElementRead, ProgramSemantics
from idgraph.check.store_coverage import delinearize
from idgraph.errors import IdGraphError
from idgraph.ir import SCATTERS, Tensor, TensorExpr
from idgraph.validate.oracle import INDEXED, reads, shape_of

MOST = 400_000  # points of the reduced loops, times formulas, that plain Python looks at
LARGEST = 1 << 22  # elements of a tensor whose table of reads is made
STEPS = 20_000  # elements that one walk back looks at
_MASK = (1 << 64) - 1

Element = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Of differences in what a nest writes: elements of ``tensor`` at ``address``; ``at`` says where others lie."""

    program: NeutralProgram
    meaning: ProgramSemantics
    table: ValueTable
    tensor: Tensor
    buffer: BufferLayout
    address: Expr
    at: Address

    def doubt(
        self, space: Space, name: str, ours: Sequence[ElementRead], theirs: Sequence[ElementRead], gap: Gap
    ) -> str:
        """Why a difference is not reported; empty where plain Python sees it at its point too, and the oracle agrees
        or is silent.
        """
        if space.inner * max(len(ours), len(theirs), 1) > MOST:
            return f"NumPy finds a difference at {gap.point}, of too many terms to count them again"
        if not confirm_difference(space, ours, theirs, self.table, gap.point):
            return f"NumPy finds a difference at {gap.point}, plain Python does not"
        often = space.multiset and space.inner > 1  # how often an element is read counts
        loaded = bool(self.table.places or self.table.loads)
        updated = gap.read is None and gap.meant is not None and self._is_argument(name)
        both = often and None not in (gap.read, gap.meant)
        if both or (loaded and not updated) or self.table.holds_data(self.address):
            return ""
        shape = extents_of(self.tensor)
        env = {**space.symbols, **gap.point}
        numbers = [int(x.evaluate(env)) for x in delinearize(self.address, self.buffer, shape)]
        if not all(0 <= c < int(n.evaluate(env)) for c, n in zip(numbers, shape, strict=True)):
            return ""

        def at(t: Tensor, c: tuple[int, ...]) -> Element | None:
            found = self.at(t, [as_expr(x) for x in c])
            return None if found is None else (found[0], int(found[1].evaluate(env)))

        where = (self.tensor, numbers, at, space.symbols)
        needed = needs_argument(*where, (name, gap.meant or 0), self.buffer.copy) if updated else True
        if needed is None:
            return f"whether {name} is needed at {gap.point} rests on an index or an opaque operation, or is too large"
        if not needed:
            return f"{name} holds what is computed of other elements there, which may be read instead"
        if loaded or (seen := reads_by_evaluation(*where, itself=self.buffer.copy)) is None:
            return ""
        meant, chosen = seen
        extra = gap.read is not None and (name, gap.read) in meant and not chosen and not often
        lacking = gap.meant is not None and (name, gap.meant) not in meant
        return f"at {gap.point} the reference means other elements than the algebra" if extra or lacking else ""

    def _is_argument(self, name: str) -> bool:
        """Whether an argument lies in this memory."""
        tensors = (self.meaning.tensors.get(b.tensor) for b in self.program.buffers if b.home == name)
        return any(t is not None and t.definition is None for t in tensors)


def confirm_difference(
    space: Space,
    ours: Sequence[ElementRead],
    theirs: Sequence[ElementRead],
    table: ValueTable,
    point: Mapping[str, int],
) -> bool:
    """True where the elements that both sides give at one point are not the same, counted in plain Python."""
    if space.inner * max(len(ours), len(theirs), 1) > MOST:
        return False
    pool = _pool(table)
    a = _elements_read(ours, space.reduce, table, {**space.symbols, **point}, pool)
    b = _elements_read(theirs, space.meant, table, {**space.symbols, **point}, pool)
    return sorted(a) != sorted(b) if space.multiset else set(a) != set(b)


def _elements_read(
    needs: Sequence[ElementRead],
    reduce: Sequence[tuple[str, int]],
    table: ValueTable,
    env: Mapping[str, int],
    pool: list[int],
) -> list[Element]:
    """Elements read, an element once for each point of the reduced loops at which it is."""
    out: list[Element] = []
    for values in product(*(range(n) for _, n in reduce)):
        full = {**env, **dict(zip((n for n, _ in reduce), values, strict=True))}
        _bind(table, full, pool)
        out += {(n.storage, int(n.address.evaluate(full))) for n in needs if n.when.evaluate(full)}
    return out


def _bind(table: ValueTable, env: dict[str, int], pool: list[int]) -> None:
    """Made-up values of what is loaded, as `idgraph.check.enumeration.bind` makes them up, in plain integers."""
    limits = table.limits()
    for name in table.order:
        if name in table.places:
            value, size = table.places[name]
            if value.names <= env.keys():
                n, v = max(int(size.evaluate(env)), 1), int(value.evaluate(env))
                least = 0 if name in table.unsigned else -n
                env[name] = v % n if least <= v < n else _hash(v, 77) % n
            continue
        what = table.loads[name]
        if isinstance(what, str):
            env[name] = crc32(what.encode()) % 1000
        elif what[1].names <= env.keys():
            found = _hash(int(what[1].evaluate(env)), crc32(what[0].encode()))
            drawn = pool[(found >> 8) % len(pool)] if found % 4 == 0 else (found >> 16) % 1009
            spans = [
                (int(a.evaluate(env)), int(x.evaluate(env)))
                for a, x in limits.get(what[0], ())
                if x.names <= env.keys()
            ]
            least, n = max((a for a, _ in spans), default=0), max((1, *(x for _, x in spans)))
            env[name] = drawn if not spans or least <= drawn < n else drawn % (n - least) + least


def _hash(x: int, salt: int) -> int:
    z = (x + (salt + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 2


def _pool(table: ValueTable) -> list[int]:
    """Numbers that formulas of loaded values compare with."""
    found = {0, 1}
    work = [v for v, _ in table.places.values()]
    while work:
        x = work.pop()
        if x.is_const and not x.cond and abs(int(x)) < 1 << 31:
            found.add(int(x))
        work.extend(x.args)
    return sorted(found)


# the program's side, by the oracle ------------------------------------------------------------------------------------

Where = Callable[[Tensor, tuple[int, ...]], Element | None]


def needs_argument(
    root: Tensor, coordinates: Sequence[int], at: Where, symbols: Mapping[str, int], element: Element, itself: bool
) -> bool | None:
    """Whether an element is made of that one of the arguments as they were given: what is stored over it may be a
    constant, or computed of others, and need not be read. None where `reads_by_evaluation` does not say it.
    """

    def argument(t: Tensor, c: tuple[int, ...]) -> Element | None:
        return at(t, c) if t.definition is None else None

    found = reads_by_evaluation(root, coordinates, argument, symbols, itself=itself)
    return None if found is None else element in found[0]


def reads_by_evaluation(
    root: Tensor, coordinates: Sequence[int], at: Where, symbols: Mapping[str, int], *, itself: bool
) -> tuple[set[Element], bool] | None:
    """The stored elements that one element is made of, and whether a ``where`` was passed (its branches are both in).

    ``itself``: the element itself, where it is stored. None: it is made of what an index or a scatter chooses, of an
    opaque operation, or of too much.
    """
    tables: dict[tuple[TensorExpr, int], np.ndarray] = {}
    out: set[Element] = set()
    seen: set[tuple[Tensor, tuple[int, ...]]] = set()
    work = [(root, tuple(coordinates))]
    chosen, first = False, not itself
    while work:
        t, c = work.pop()
        if (t, c) in seen:
            continue
        seen.add((t, c))
        if len(seen) > STEPS:
            return None
        place = None if first else at(t, c)
        first = False
        e = t.definition
        if place is not None:
            out.add(place)
        elif e is None or e.op in SCATTERS or e.op in INDEXED:
            return None
        else:
            chosen |= e.op == "where"
            try:
                work += _elements_of_operands(e, c, tables, symbols)
            except (IdGraphError, KeyError):
                return None
    return out, chosen


def _elements_of_operands(
    e: TensorExpr, c: tuple[int, ...], tables: dict[tuple[TensorExpr, int], np.ndarray], symbols: Mapping[str, int]
) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Elements of the operands that one element of the result is made of."""
    for k, t in enumerate(e.inputs):
        if (e, k) not in tables:
            shape = shape_of(t, symbols)
            if prod(shape) > LARGEST or prod(shape_of(e.output, symbols)) > LARGEST:
                raise KeyError(t.name)
            tables[e, k] = reads(e, k, symbols=dict(symbols))
        rest = iter(c)
        point = tuple(slice(None) if d.kind == "reduction" else next(rest) for d in e.output.logical)
        for flat in np.unique(tables[e, k][point]).tolist():
            if flat >= 0:
                places = cast("tuple[Any, ...]", np.unravel_index(flat, shape_of(t, symbols)))
                yield t, tuple(int(x) for x in places)
