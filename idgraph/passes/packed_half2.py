"""16-bit floats in pairs: two neighbouring elements in one 32-bit word, from load to store.

The GPU multiplies, adds and rounds such pairs in one instruction, where element by element each value would be widened,
rounded and narrowed again. A pair result equals the element-wise one, which rounds a float32 result: products and sums
of two such floats, rounded to 24 bits first and to 11 or 8 then, are what one rounding gives (24 >= 2 * 11 + 2, S. A.
Figueroa, When is double rounding innocuous?, 1995); only a bfloat16 product below 2**-126 may differ, in its last bit.

An operation that has no form for pairs computes in float32; its two results are rounded into one word, and whoever
needs them reads its halves. Those are the values that nothing but the words of one store is computed from
(`pack_partners`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from idgraph.ir import DType, is_float, item_size
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import defined_once, in_lanes, locals_read
from idgraph.kernel.ir import (
    BoundsCheck,
    Compute,
    ExtractHalf,
    Half2Op,
    If,
    Kernel,
    Local,
    Stmt,
    VectorLoad,
    VectorStore,
    walk,
)


def pack_half2(kernel: Kernel) -> Kernel:
    """pack_half2: in lanes, 16-bit floats loaded, computed and stored in pairs where that is the same.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: bfloat16[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       (a: bfloat16, b: bfloat16) = x[i*2; 2]
    ...       c: bfloat16 = neg(a)
    ...       d: bfloat16 = neg(b)
    ...       y[i*2; 2] = (c, d)
    ... ''')
    >>> from idgraph.passes.cse_dce import eliminate_dead_code
    >>> print(eliminate_dead_code(pack_half2(k)))
    kernel k():
      buffer x: bfloat16[64] input "x"
      buffer y: bfloat16[64] output "y"
      for i < 32:
        lanes:
          (a_p: bfloat16) = x[i*2; 2] in pairs
          c_d_p: bfloat16 = pair.neg(a_p)
          y[i*2; 2] = (c_d_p) in pairs
    """
    return replace(kernel, body=in_lanes(kernel.body, paired))


def paired(body: Sequence[Stmt]) -> Sequence[Stmt]:
    """Straight-line code in pairs."""
    if not any(isinstance(s, VectorStore) and _is_short(s.buffer.dtype) for s in walk(tuple(body))):
        return body
    return _pack_body(body)


def _is_short(dtype: DType) -> bool:
    return is_float(dtype) and item_size(dtype) == 2


def _pack_body(given: Sequence[Stmt]) -> list[Stmt]:
    body: list[Stmt] = [
        replace(s, body=tuple(_pack_body(s.body))) if isinstance(s, (If, BoundsCheck)) else s for s in given
    ]
    defined = defined_once(body)
    pairs = _Pairs(defined, pack_partners(body, defined))
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, VectorStore) and _is_short(s.buffer.dtype) and all(isinstance(v, Local) for v in s.values):
            values = [v for v in s.values if isinstance(v, Local)]
            both = zip(values[::2], values[1::2], strict=True)
            words = [pairs.stored(a, b, s.buffer.dtype) for a, b in both]
            out += [*pairs.flush(), replace(s, values=tuple(words), pairs=True)]
        else:
            out.append(s)
    return [x for s in out for x in pairs.load(s)]


@dataclass(slots=True)
class _Pairs:
    """Words of the pairs that are wanted, with the statements that make them."""

    defined: dict[str, Stmt]
    mates: dict[str, str]
    known: dict[tuple[str, str], Local | None] = field(default_factory=dict[tuple[str, str], "Local | None"])
    wanted: set[str] = field(default_factory=set[str])
    made: list[Stmt] = field(default_factory=list[Stmt])
    floats: set[str] = field(default_factory=set[str])  # values before their rounding that are made already
    halves: dict[str, Local] = field(default_factory=dict[str, Local])

    def flush(self) -> list[Stmt]:
        made, self.made = self.made, []
        return made

    def stored(self, a: Local, b: Local, dtype: DType) -> Local:
        """The word of two values that are stored side by side, or computed for such."""
        word = self.word(a, b, dtype)
        if word is None:
            word = Local(f"{a.name}_{b.name}_p", dtype)
            of = self.unrounded(a, b, dtype)
            self.made.append(Half2Op(word, "pack", of))
            self.known[a.name, b.name] = word
        return word

    def word(self, a: Local, b: Local, dtype: DType) -> Local | None:
        """The word that holds ``a`` and ``b``, or None where only single elements can make it."""
        key = (a.name, b.name)
        if key not in self.known:
            self.known[key] = self.make(a, b, dtype)
        return self.known[key]

    def make(self, a: Local, b: Local, dtype: DType) -> Local | None:
        x, y = self.defined.get(a.name), self.defined.get(b.name)
        if isinstance(x, VectorLoad) and isinstance(y, VectorLoad) and x.buffer.dtype == y.buffer.dtype == dtype:
            return self.picked(x, x.locals.index(a), y, y.locals.index(b), dtype)
        if not (isinstance(x, Compute) and isinstance(y, Compute)) or x.op != y.op:
            return None
        if x.op != "where" and not OPERATIONS[x.op].pairs:
            return None
        if {x.compute, y.compute, a.dtype, b.dtype} != {dtype}:
            return None
        words: list[Local] = []
        for p, q in zip(x.operands, y.operands, strict=True):
            if isinstance(p, Local) and p == q and p.dtype == "bool":  # one choice for both
                words.append(p)
                continue
            if not (isinstance(p, Local) and isinstance(q, Local) and p.dtype == q.dtype == dtype):
                return None
            word = self.stored(p, q, dtype) if self.mates.get(p.name) == q.name else self.word(p, q, dtype)
            if word is None:
                return None
            words.append(word)
        made = Local(f"{a.name}_{b.name}_p", dtype)
        self.made.append(Half2Op(made, x.op, tuple(words)))
        return made

    def picked(self, x: VectorLoad, i: int, y: VectorLoad, k: int, dtype: DType) -> Local:
        """Elements ``i`` and ``k`` of two loads: one word as it lies in memory, or halves of two."""
        a, b = _word_of(x, i), _word_of(y, k)
        self.wanted |= {x.locals[0].name, y.locals[0].name}
        if a == b and (i % 2, k % 2) == (0, 1):
            return a
        made = Local(f"{x.locals[i].name}_{y.locals[k].name}_p", dtype)
        self.made.append(Half2Op(made, f"pick_{'lh'[i % 2]}{'lh'[k % 2]}", (a, b)))
        return made

    def unrounded(self, a: Local, b: Local, dtype: DType) -> tuple[Local, Local]:
        """Two values that packing rounds to the same: float32 ones before their own rounding, where those are known."""
        x, y = self.defined.get(a.name), self.defined.get(b.name)
        if self.mates.get(a.name) == b.name and isinstance(x, Compute) and isinstance(y, Compute):
            for p, q in zip(x.operands, y.operands, strict=False):
                if isinstance(p, Local) and isinstance(q, Local) and self.mates.get(p.name) == q.name:
                    self.split(p, q, dtype)
        return self.float_of(a, dtype), self.float_of(b, dtype)

    def split(self, p: Local, q: Local, dtype: DType) -> None:
        """Two values as halves of the word that they are rounded into."""
        if p.name in self.halves:
            return
        word = self.stored(p, q, dtype)
        for x, high in ((p, False), (q, True)):
            self.halves[x.name] = Local(f"{x.name}_h", dtype)
            self.made.append(ExtractHalf(self.halves[x.name], word, high))

    def float_of(self, a: Local, dtype: DType) -> Local:
        """The float32 value that ``a`` is rounded from; itself where that is not known."""
        x = self.defined.get(a.name)
        if not isinstance(x, Compute) or a.dtype != dtype:
            return a
        source = x.operands[0]
        if x.op == "cast" and isinstance(source, Local) and source.dtype == "float32":
            return source
        made = Local(f"{a.name}_f", "float32")
        if made.name not in self.floats:
            self.floats.add(made.name)
            operands = tuple(self.halves.get(o.name, o) if isinstance(o, Local) else o for o in x.operands)
            self.made.append(replace(x, local=made, operands=operands))
        return made

    def load(self, s: Stmt) -> list[Stmt]:
        """A load of which pairs are wanted as words, with its elements beside them; others as they are."""
        if not isinstance(s, VectorLoad) or s.pairs or s.locals[0].name not in self.wanted:
            return [s]
        words = tuple(_word_of(s, n) for n in range(0, len(s.locals), 2))
        halves = [ExtractHalf(x, _word_of(s, n), bool(n % 2)) for n, x in enumerate(s.locals)]
        return [replace(s, locals=words, pairs=True), *halves]


def _word_of(s: VectorLoad, n: int) -> Local:
    first = s.locals[n - n % 2]
    return Local(f"{first.name}_p", first.dtype)


def pack_partners(body: Sequence[Stmt], defined: Mapping[str, Stmt]) -> dict[str, str]:
    """16-bit floats that are computed side by side: of each low one the high one, by name.

    Two values are mates where whatever reads the one is a store beside the other, or computes a value whose mate reads
    the other at the same position: nothing else needs one of them without the other.
    """
    readers = defaultdict[str, list[Stmt]](list)
    for s in walk(tuple(body)):
        for name in locals_read(s):
            readers[name].append(s)
    found: dict[str, str] = {}
    lows: dict[str, str] = {}
    for s in reversed(body):
        if isinstance(s, Compute) and _is_short(s.local.dtype) and s.local.name not in lows:
            mate = _mate(s.local, readers, defined, found, lows)
            if mate is not None:
                found[s.local.name], lows[mate] = mate, s.local.name
    return found


def _mate(
    p: Local,
    readers: Mapping[str, Sequence[Stmt]],
    defined: Mapping[str, Stmt],
    found: Mapping[str, str],
    lows: Mapping[str, str],
) -> str | None:
    """The value that all that reads ``p`` has beside it, where nothing else reads that one."""
    beside = set[str]()
    for s in readers[p.name]:
        if isinstance(s, VectorStore):
            one, other = s.values[::2], s.values[1::2]
        elif isinstance(s, Compute) and s.local.name in found:
            one, other = s.operands, cast(Compute, defined[found[s.local.name]]).operands
        else:
            return None
        if p in other or len(one) != len(other):
            return None
        both = [q for o, q in zip(one, other, strict=True) if o == p]
        beside |= {q.name if isinstance(q, Local) and q.dtype == p.dtype else "" for q in both}
    q = beside.pop() if len(beside) == 1 else ""
    if not isinstance(defined.get(q), Compute) or q in found or q in lows:
        return None
    expected = {id(s) for s in readers[p.name]}
    return q if all(id(_low(s, defined, lows)) in expected for s in readers[q]) else None


def _low(s: Stmt, defined: Mapping[str, Stmt], lows: Mapping[str, str]) -> Stmt | None:
    """The statement that reads the low value where ``s`` reads the high one."""
    if isinstance(s, VectorStore):
        return s
    return defined.get(lows.get(s.local.name, "")) if isinstance(s, Compute) else None
