"""Each element of a program as one number, of all that it is made of: equal numbers, equal values.

A value of a pointwise operation is the set of the elements that it is made of, as is one of a reduction for which an
element counts once however often it is combined (`IDEMPOTENT`); one of another reduction is the sum, modulo 2^64, of
the numbers of what it combines. A result that a buffer holds gets numbers of its own (its operation), an
element that only moved keeps its number, what is filled, or is its own position, is 0. An element that loaded integers
name is a choice: the numbers of these integers, and all elements that they may name. Two different values have one
number with a probability of 2^-64 each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, product
from math import gcd, inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.arith import TRUE, Expr, as_expr, symbol
from idgraph.check.enumeration import unraveled
from idgraph.check.index_values import ValueTable
from idgraph.check.program import BufferLayout, NeutralProgram, leaves, tree_of
from idgraph.check.semantics import ElementRead, NoIndexMeaning, ProgramSemantics
from idgraph.ir import SCATTERS, Fusion, Tensor, TensorExpr
from idgraph.ir.op_table import SCANS

SMALLER = "the same program of smaller sizes would decide it"
MASK = (1 << 64) - 1
MOST = 1 << 20  # elements, times what each is made of
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip
_REPEATED = frozenset(
    {"add", "sub", "mul", "div", "fma", "neg", *_MOVES}
)  # another value where an operand is twice in it
IDEMPOTENT = frozenset({"amax", "amin", "any", "all", "cummax", "cummin"})

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class ValueNumbers:
    """Numbers of sets of elements, and of results."""

    sets: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    numbers: dict[object, int] = field(default_factory=dict[object, int])
    choices: dict[int, tuple[Sequence[int], Sequence[int]]] = field(
        default_factory=dict[int, tuple[Sequence[int], Sequence[int]]]
    )

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

    def shares(self, a: int, b: int) -> bool:
        """Whether two values are made of some element both."""
        return bool(self.sets.get(a, {a}) & self.sets.get(b, {b}) - {0})

    def chosen(self, keys: Sequence[int], sizes: Sequence[int], values: Sequence[int]) -> int:
        """One of ``values``, row-major over ``sizes``: the one at the integers whose numbers are ``keys``."""
        if len(set(values)) == 1:
            return values[0]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        turned = np.array(values, dtype=object).reshape(sizes).transpose(order).reshape(-1).tolist()
        found = self.of(("chosen", tuple(keys[k] for k in order), tuple(turned)))
        self.choices[found] = keys, values
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
    summed: set[str] = field(default_factory=set[str])  # results of reductions and scans, idempotent ones left out
    idempotent: set[str] = field(default_factory=set[str])
    scanned: set[str] = field(default_factory=set[str])
    raw: dict[str, list[int]] = field(default_factory=dict[str, list[int]])  # of results, before they are sealed
    parts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # of results and of sums
    ends: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    longest: int = 1  # of ``ends``
    totals: set[int] = field(default_factory=set[int])  # of ``parts``, those that add up
    members: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    direct: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    spelled: dict[str, dict[frozenset[int], list[int]]] = field(
        default_factory=dict[str, dict[frozenset[int], list[int]]]
    )
    terms: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # of sums, by the elements in them

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
            if t.name in self.own or (t.definition is not None and t.definition.is_reduction):
                rows, added = self.operands.get(t.name, []), t.name in self.summed
                every = chain(zip(self.of[t.name], rows), zip(self.raw.get(t.name, []) if added else [], rows))
                for v, made in every:
                    if v not in made:
                        self.parts.setdefault(v, made)
                        self.totals |= {v} if added else set()

    def name(self, value: int) -> str:
        """``y[0, 3]``; "" where it is not an element of the program."""
        found = self.made.get(value)
        if found is not None and value:
            return self.element(*found)
        if value in self.numbers.choices:
            keys, values = self.numbers.choices[value]
            first, last = (self.name(v) or "nothing" for v in (values[0], values[-1]))
            return f"one of {first} to {last}, by the value of {' and '.join(self.name(k) for k in keys)}"
        return ""

    def element(self, tensor: str, k: int) -> str:
        """``y[0, 3]``: element ``k``, row-major."""
        where = np.unravel_index(k, self.shapes[tensor]) if self.shapes[tensor] else ()
        return f"{tensor}[{', '.join(str(int(x)) for x in where)}]"

    def respelled(self, tensor: str, values: Sequence[int], *, alone: bool) -> int | None:
        """The value of an element of ``tensor`` ("": of one that no buffer holds; of a term, where it is a sum) that is
        made of ``values`` and nothing else, though not as the program spells it: what another buffer holds, or a sum,
        is computed again.
        """
        one = self.numbers.union(values)
        if tensor not in self.direct:
            self.direct[tensor] = frozenset(self._spellings(tensor))
        twice = alone and len(set(values)) < len(values)  # each time counts in a sum that is spelled out
        if (one in self.direct[tensor] and not twice) or len(values) * self.longest > MOST:
            return None
        given = Counter(x for v in values if v for x in self.numbers.sets.get(v, (v,)))
        if not tensor and len(given) < 2:
            return None
        if tensor not in self.spelled:
            found = self.spelled[tensor] = dict[frozenset[int], list[int]]()
            for v in self.direct[tensor]:
                found.setdefault(self._leaves(v), []).append(v)
        leaves = frozenset[int]().union(*map(self._leaves, given))
        every = self.spelled[tensor].get(leaves, [])
        good = [v for v in every if self._made_of(v, given)]
        if not good and tensor in self.own - self.summed:  # an operation on a sum that is spelled out each time
            times = gcd(*given.values())
            good = [v for v in every if self._made_of(v, {x: k // times for x, k in given.items()})]
        good = [v for v in good if v != one] if twice else good
        return good[0] if len(good) == 1 else None

    def holds(self, tensor: str, value: int) -> bool:
        """Whether a value is an element of a tensor."""
        found = self.members.get(tensor)
        if found is None:
            found = self.members[tensor] = frozenset(self.of[tensor])
        return value in found

    def _spellings(self, tensor: str) -> Iterable[int]:
        if not tensor:
            inner = (t.name for t in self.program.fusion.tensors if t.definition is not None and t.name not in self.own)
            return (v for name in inner for v in self.of[name])
        whole = self.raw.get(tensor, []) if tensor in self.own else self.of[tensor]
        if tensor in self.own and (tensor in self.summed or tensor in self.idempotent):
            return (*(v for row in self.operands.get(tensor, []) for v in row), *whole)
        return whole

    def _leaves(self, value: int) -> frozenset[int]:
        """The elements of arguments that a value is made of."""
        found = self.ends.get(value)
        if found is None:
            atoms = self.numbers.sets.get(value, frozenset({value}))
            parts = [self._leaves(y) for x in atoms for y in self.parts.get(x, ())]
            found = frozenset(x for x in atoms if x not in self.parts).union(*parts)
            self.longest = max(self.longest, len(found))
            self.ends[value] = found
        return found

    def _made_of(self, value: int, given: Mapping[int, int]) -> bool:
        """Whether ``given``, as often, are all that a value can be computed of, and each of them stands in it."""
        known: dict[tuple[int, bool], Mapping[int, tuple[int, float]]] = {}

        def often(v: int, inside: bool) -> Mapping[int, tuple[int, float]]:
            """How often at least and at most; an operand counts each time inside of a sum, once or more elsewhere."""
            if (v, inside) in known:
                return known[v, inside]
            out: dict[int, tuple[int, float]] = {}
            for x in self.numbers.sets.get(v, (v,)):
                if x in given:
                    met(out, {x: (1, 1 if inside else inf)}, False)
                    continue
                total, one = x in self.totals, dict[int, tuple[int, float]]()
                for y in self.parts.get(x, (0,)):
                    met(one, often(y, inside or total) if y else {0: (1, 1)}, total)
                met(out, one, False)
            known[v, inside] = out
            return out

        def met(out: dict[int, tuple[int, float]], more: Mapping[int, tuple[int, float]], total: bool) -> None:
            for k, (low, high) in more.items():
                a, b = out.get(k, (0, 0))
                out[k] = a + low if total else max(a, low), b + high

        found = often(value, False)
        return found.keys() == given.keys() and all(a <= given[k] <= b for k, (a, b) in found.items())

    def added(self, values: Sequence[int]) -> int:
        """The sum of what one point reads: a term of a sum of the program, several of its terms, or parts of sums."""
        if len(values) < 2:
            return values[0] if values else 0
        sets, one = self.numbers.sets, self.numbers.union(values)
        atoms = sets.get(one, frozenset({one}))
        near = dict.fromkeys(v for a in atoms for v in self.terms.get(a, ()))
        if one in near:
            return one
        inside = [v for v in near if sets.get(v, frozenset({v})) <= atoms]
        covered = frozenset[int]().union(*(sets.get(v, frozenset({v})) for v in inside))
        rest = [v for v in dict.fromkeys(values) if v and not sets.get(v, frozenset({v})) <= covered]
        return (sum(inside) + sum(rest)) & MASK

    def once_each(self, tensor: str) -> bool:
        """Whether a pointwise operation of the program has each operand once, and once more is another value."""
        t = next(t for t in self.program.fusion.tensors if t.name == tensor)
        found, left = Counter[str](), [t]
        while left:
            e = left.pop().definition
            if e is None or e.op not in _REPEATED:
                return False
            for x in (x for x in e.args if isinstance(x, Tensor)):
                if x.definition is None or x.name in self.own:
                    found[x.name] += 1
                else:
                    left.append(x)
        return max(found.values(), default=0) == 1

    def undistinguished(self) -> str:
        """A tensor of positions two of whose elements, that memory may hold, have one number; "" where none is."""
        p, of_positions = self.program, set[str]()
        for t in p.fusion.tensors:
            e = t.definition
            if e is not None and (e.op == "iota" or any(x.name in of_positions for x in e.inputs)):
                of_positions.add(t.name)
        held = {b.name: b.tensor for b in p.buffers}
        written = {w.buffer for n in leaves(tree_of(p)) for w in n.writes}
        every = written <= held.keys()  # a buffer of no tensor may hold any
        names = of_positions & set(held.values()) if every else of_positions
        return next((n for n in sorted(names) if len(set(self.of[n])) < len(self.of[n])), "")

    def _computed(self, meaning: ProgramSemantics, t: Tensor) -> list[int]:
        e = t.definition
        if e is None or e.op in SCATTERS:
            raise NoIndexMeaning(f"{t.name} = {e.op if e else ''} is not followed element by element")
        own = t.name if t.name in self.own else ""
        if e.op == "iota":
            return [self.numbers.sealed(own, 0)] * prod(self.shapes[t.name])
        if e.op in SCANS:
            return [self.numbers.sealed(own, v) for v in self._running(e)]
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
        if found.loose:
            raise NoIndexMeaning(f"{t.name} = {e.op} is made of what loaded values choose")
        once = e.op in IDEMPOTENT
        if found.reduce:
            (self.idempotent if once else self.summed).add(t.name)
        inner = [(str(r), _extent(r, self.sizes)) for r in found.reduce]
        spans = [*shape, *(n for _, n in inner)]
        if 0 in (n for _, n in inner):
            self.operands[t.name] = [[] for _ in range(prod(shape))]
            return [self.numbers.sealed(own, 0)] * prod(shape)
        count, each = prod(spans), max(prod(n for _, n in inner), 1)
        if count * max(len(found.needs), 1) > MOST:
            raise NoIndexMeaning(f"{t.name} is made of {count} elements: too many to follow each; {SMALLER}")
        flat = np.arange(count, dtype=np.int64)
        env = {**self.sizes, **dict(zip([*names, *(n for n, _ in inner)], unraveled(flat, spans), strict=True))}
        columns = [self._column(n, table, env, count) for n in found.needs]
        union = self.numbers.union
        rows = [union(c) for c in zip(*columns, strict=True)] if columns else [0] * count
        groups = (rows[k : k + each] for k in range(0, count, each))
        total = self.raw[t.name] = [union(g) if once else sum(g) & MASK for g in groups] if each > 1 else rows
        self._note_terms(rows if found.reduce and not once else ())
        self.operands[t.name] = [
            [c[j] for j in range(k, k + each) for c in columns if c[j]] for k in range(0, count, each)
        ]
        return [self.numbers.sealed(own, v) for v in total]

    def _note_terms(self, rows: Iterable[int]) -> None:
        """The terms that a sum adds up."""
        for v in dict.fromkeys(rows):
            for a in self.numbers.sets.get(v, (v,)):
                self.terms.setdefault(a, []).append(v)

    def _column(self, n: ElementRead, table: ValueTable, env: Mapping[str, Any], count: int) -> list[int]:
        """The value of one read at all points; 0 where it does not happen."""
        used = [x for x in table.order if x in n.address.names | n.when.names]
        sizes, keys = list[int](), list[list[int]]()
        for x in used:
            value, size = table.places.get(x, (as_expr(0), as_expr(0)))
            what = table.loads.get(value.name) if value.op == "sym" else None
            if not isinstance(what, tuple) or not moved_input(self.program.fusion, what[0]):
                raise NoIndexMeaning("an index is computed of loaded values")
            sizes.append(int(size.evaluate(self.sizes)))
            keys.append([self.of[what[0]][a] for a in values_at(what[1], env, count)])
        if count * prod(sizes) > MOST:
            raise NoIndexMeaning(
                f"loaded values name one of {prod(sizes)} elements: too many to follow each; {SMALLER}"
            )
        values = self.of[n.storage]
        choices: list[list[int]] = []
        for c in product(*map(range, sizes)):
            at = {**env, **dict(zip(used, c, strict=True))}
            pairs = zip(values_at(n.address, at, count), values_at(n.when, at, count), strict=True)
            choices.append([values[a] if h else 0 for a, h in pairs])
        if not used:
            return choices[0]
        chosen = self.numbers.chosen
        return [
            chosen(k, sizes, v) for k, v in zip(zip(*keys, strict=True), zip(*choices, strict=True), strict=True)
        ]  # fmt: skip

    def _running(self, e: TensorExpr) -> list[int]:
        """The values up to each along an axis, combined."""
        name, shape, dim = e.output.name, self.shapes[e.output.name], e.attrs["dim"]
        once = e.op in IDEMPOTENT
        (self.idempotent if once else self.summed).add(name)
        self.scanned.add(name)
        if not isinstance(dim, int):
            raise NoIndexMeaning(f"{name} = {e.op} runs along an axis that is not known")
        step = prod(shape[dim % len(shape) + 1 :])
        out, made = list(self.of[e.inputs[0].name]), [[v] if v else [] for v in self.of[e.inputs[0].name]]
        self._note_terms(() if once else out)
        for k in range(len(out)):
            if k // step % shape[dim]:
                before = out[k - step]
                out[k] = self.numbers.union((before, out[k])) if once else (out[k] + before) & MASK
                made[k] = made[k - step] + made[k]
        self.operands[name] = made
        return out


def values_at(x: Expr, env: Mapping[str, Any], count: int) -> list[int]:
    """The values of an expression at that many points."""
    return np.broadcast_to(x.evaluate_array(env), (count,)).tolist()


def moved_input(f: Fusion, name: str) -> bool:
    """Whether a tensor holds the integers of an argument, which only moved."""
    t = next((t for t in f.tensors if t.name == name), None)
    while t is not None and t.definition is not None:
        t = t.definition.inputs[0] if t.definition.op in _MOVES and len(t.definition.inputs) == 1 else None
    return t is not None


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
