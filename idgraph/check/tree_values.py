"""Each element of a program as one number, of all that it is made of: equal numbers, equal values.

A value of a pointwise operation is the set of the elements that it is made of; one of a reduction is the sum, modulo
2^64, of the numbers of what it combines. A result that a buffer holds gets numbers of its own (its operation), an
element that only moved keeps its number, what is filled is 0. Two different values have one number with a probability
of 2^-64 each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import TRUE, Expr, as_expr, symbol
from idgraph.check.enumeration import unraveled
from idgraph.check.index_values import ValueTable
from idgraph.check.program import BufferLayout, NeutralProgram
from idgraph.check.semantics import NoIndexMeaning, ProgramSemantics
from idgraph.ir import SCATTERS, Tensor
from idgraph.ir.op_table import SCANS

SMALLER = "the same program of smaller sizes would decide it"
MASK = (1 << 64) - 1
MOST = 1 << 20  # elements, times what each is made of
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class ValueNumbers:
    """Numbers of sets of elements, and of results."""

    sets: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    numbers: dict[object, int] = field(default_factory=dict[object, int])

    def of(self, key: object) -> int:
        """A number of its own for what ``key`` names."""
        found = self.numbers.get(key)
        if found is None:
            digest = blake2b(repr(key).encode(), digest_size=8).digest()
            found = self.numbers[key] = int.from_bytes(digest, "little")
        return found

    def union(self, values: Iterable[int]) -> int:
        """A pointwise operation on these."""
        atoms: set[int] = set()
        for v in values:
            if v:
                atoms |= self.sets.get(v, {v})
        if len(atoms) < 2:
            return next(iter(atoms), 0)
        found = self.of(tuple(sorted(atoms)))
        self.sets[found] = frozenset(atoms)
        return found

    def sealed(self, tensor: str, value: int) -> int:
        """A value that is ``tensor``'s, "" for none."""
        return self.of((tensor, value)) if tensor else value


@dataclass(slots=True)
class ElementValues:
    """The value of each element of each tensor, row-major; operands of an element by number. See the module."""

    program: NeutralProgram
    sizes: Mapping[str, int]
    numbers: ValueNumbers
    of: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    own: frozenset[str] = frozenset()
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    made: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    operands: dict[str, list[list[int]]] = field(default_factory=dict[str, list[list[int]]])

    def __post_init__(self) -> None:
        f = self.program.fusion
        meaning = ProgramSemantics(f)
        self.own = operations(self.program)
        for t in f.tensors:
            shape = self.shapes[t.name] = tuple(int(as_expr(n).evaluate(self.sizes)) for n in t.shape)
            if prod(shape) > MOST:
                raise NoIndexMeaning(f"{t.name} has {prod(shape)} elements: too many to follow each; {SMALLER}")
            if t.definition is None:
                self.of[t.name] = [self.numbers.of((t.name, "element", k)) for k in range(prod(shape))]
            else:
                self.of[t.name] = self._computed(meaning, t)
            for k, v in enumerate(self.of[t.name]):
                self.made.setdefault(v, (t.name, k))

    def name(self, value: int) -> str:
        """``y[0, 3]``; "" where it is not an element of the program."""
        found = self.made.get(value)
        return self.element(*found) if found is not None and value else ""

    def element(self, tensor: str, k: int) -> str:
        """``y[0, 3]``: element ``k``, row-major."""
        where = np.unravel_index(k, self.shapes[tensor]) if self.shapes[tensor] else ()
        return f"{tensor}[{', '.join(str(int(x)) for x in where)}]"

    def _computed(self, meaning: ProgramSemantics, t: Tensor) -> list[int]:
        e = t.definition
        if e is None or e.op == "iota" or e.op in SCATTERS or e.op in SCANS:
            raise NoIndexMeaning(f"{t.name} = {e.op if e else ''} is not followed element by element")
        shape, table = self.shapes[t.name], ValueTable()

        def at(x: Tensor, c: Sequence[Expr]) -> tuple[str, Expr] | None:
            if x is t:
                return None
            out = as_expr(0)
            for n, i in zip(self.shapes[x.name], c, strict=True):
                out = out * n + i
            return x.name, out

        names = [f"c.{k}" for k in range(len(shape))]
        found = meaning.demand(
            t, [symbol(n, 0, max(s - 1, 0)) for n, s in zip(names, shape, strict=True)], TRUE, at, table
        )
        if table.order or found.loose:
            raise NoIndexMeaning(f"{t.name} = {e.op} reads elements that loaded values name")
        inner = [(str(r), _extent(r, self.sizes)) for r in found.reduce]
        spans = [*shape, *(n for _, n in inner)]
        count, each = prod(spans), max(prod(n for _, n in inner), 1)
        if count * max(len(found.needs), 1) > MOST:
            raise NoIndexMeaning(f"{t.name} is made of {count} elements: too many to follow each; {SMALLER}")
        flat = np.arange(count, dtype=np.int64)
        env = {**self.sizes, **dict(zip([*names, *(n for n, _ in inner)], unraveled(flat, spans), strict=True))}
        columns: list[list[int]] = []
        for n in found.needs:
            where = np.broadcast_to(n.address.evaluate_array(env), (count,))
            live = np.broadcast_to(n.when.evaluate_array(env), (count,))
            values = self.of[n.storage]
            columns.append([values[a] if h else 0 for a, h in zip(where.tolist(), live.tolist(), strict=True)])
        union = self.numbers.union
        rows = [union(c) for c in zip(*columns, strict=True)] if columns else [0] * count
        total = [sum(rows[k : k + each]) & MASK for k in range(0, count, each)] if each > 1 else rows
        self.operands[t.name] = [
            [c[j] for j in range(k, k + each) for c in columns if c[j]] for k in range(0, count, each)
        ]
        own = t.name if t.name in self.own else ""
        return [self.numbers.sealed(own, v) for v in total]


def operations(p: NeutralProgram) -> frozenset[str]:
    """Results of operations (not moves) that some buffer holds."""
    stored: Collection[str] = {b.tensor for b in p.buffers}
    return frozenset(
        t.name for t in p.fusion.tensors
        if t.definition is not None and t.definition.op not in _MOVES and t.name in stored
    )  # fmt: skip


def _extent(r: Expr, sizes: Mapping[str, int]) -> int:
    high = r.symbol_bounds[1]
    if high is None:
        raise NoIndexMeaning(f"how far {r} runs is not known")
    return (int(high.evaluate(sizes)) if isinstance(high, Expr) else int(high)) + 1


def placed(b: BufferLayout, shape: Sequence[int], sizes: Mapping[str, int]) -> list[int]:
    """Addresses in the storage of all elements of a buffer's tensor, row-major."""
    start, steps = int(b.offset.evaluate(sizes)), [int(s.evaluate(sizes)) for s in b.strides]
    return [start + sum(x * s for x, s in zip(c, steps, strict=True)) for c in product(*map(range, shape))]
