"""select_loads: one load at a chosen address in place of a choice between loads.

A tensor joined of many pieces of another one (tables of sections, a row put together of slices) reads each piece where
its condition holds, and chooses. Where all pieces are elements of one buffer, the choice is one of addresses:
neighbours in one piece are loaded together, and no branch waits for memory. Two pieces stay apart: lanes are split at
their test, and each side is straight code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from idgraph.arith import TRUE, Expr, Proof, and_, as_expr, enumerate_points, not_, simplify, symbol
from idgraph.arith import where as chosen
from idgraph.kernel.def_use import read_only_buffers, sets, substitute_indices
from idgraph.kernel.ir import (
    BoundsCheck,
    Compute,
    If,
    Kernel,
    Load,
    Local,
    Loop,
    ProvenanceList,
    Select,
    SingleThread,
    Stmt,
)
from idgraph.passes.cse_dce import without_dead
from idgraph.passes.lane_unrolling import is_lanes
from idgraph.passes.provenance import guard_provenance
from idgraph.passes.rows.reduction_loop import drop_unit_loops

LEAST = 3  # pieces
POINTS = 1 << 14  # at which it is enumerated that one of the pieces holds
Body = tuple[Stmt, ...]


def select_address_then_load(kernel: Kernel) -> Kernel:
    """select_loads: choices between loads of one buffer as one load.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[96] input "x"
    ...   buffer y: float32[24] output "y"
    ...   for i < 24, unroll:
    ...     if i < 8:
    ...       a: float32 = x[i]
    ...     if (i >= 8) & (i < 16):
    ...       b: float32 = x[i + 32]
    ...     if i >= 16:
    ...       c: float32 = x[i + 64]
    ...     t: float32 = choose(i < 8 ? a, i < 16 ? b, c)
    ...     y[i] = t
    ... ''')
    >>> print(select_address_then_load(k))
    kernel k():
      buffer x: float32[96] input "x"
      buffer y: float32[24] output "y"
      for i < 24, unroll:
        t: float32 = x[i + where(i < 8, -64, where(i < 16, -32, 0)) + 64]
        y[i] = t
    """
    return replace(kernel, body=_Selection(read_only_buffers(kernel.buffers, kernel.body)).level(kernel.body, (), {}))


@dataclass(frozen=True, slots=True)
class _SelectedAddress:
    """A load whose value a variable has, where ``conditions`` hold."""

    load: Load
    conditions: tuple[Expr, ...]


Known = dict[str, _SelectedAddress]


@dataclass(frozen=True, slots=True)
class _Selection:
    read_only: frozenset[str]

    def level(self, body: Body, facts: tuple[Expr, ...], known: Known) -> Body:
        """The statements of one level, under ``facts``; ``known`` is brought up to date."""
        made: list[Stmt] = []
        for s in body:
            match s:
                case Select() if (load := self.selected(s, facts, known)) is not None:
                    made.append(load)
                case Loop() if s.extent == 1:
                    zero = {symbol(s.var, 0, 0): as_expr(0)}
                    made.append(replace(s, body=self.level(substitute_indices(s.body, zero), facts, known)))
                    continue
                case If(condition):
                    made.append(replace(s, body=self.level(s.body, (*facts, condition), known)))
                    continue
                case Loop() if is_lanes(s):  # what lanes set is read in them alone
                    inner = self.level(s.body, facts, {})
                    made.append(
                        replace(
                            s, body=s.body if inner == s.body else tuple(without_dead(drop_unit_loops(inner), set()))
                        )
                    )
                    known.clear()
                    continue
                case Loop() | BoundsCheck() | SingleThread():
                    made.append(replace(s, body=self.level(s.body, facts, {})))
                    known.clear()
                    continue
                case _:
                    made.append(s)
            self.define(s, facts, known)
        return tuple(made)

    def define(self, s: Stmt, facts: tuple[Expr, ...], known: Known) -> None:
        """Bring ``known`` up to date behind a statement."""
        held: _SelectedAddress | None = None
        match s:
            case Load(local, buffer, _, guard) if guard is TRUE and buffer.name in self.read_only:
                held = _SelectedAddress(s, facts) if local.dtype == buffer.dtype else None
            case Compute(Local(dtype=dtype), "cast", (Local(name, given, None),)) if dtype == given and name in known:
                held = _SelectedAddress(known[name].load, (*known[name].conditions, *facts))
            case Select(Local(dtype=to), ((condition, Local(name, given, None)),)) if to == given and name in known:
                held = _SelectedAddress(known[name].load, (*known[name].conditions, *facts, condition))
            case _:
                pass
        for name in sets(s):
            known.pop(name, None)
            for other in [k for k, x in known.items() if name in x.load.address.names]:  # an index loaded anew
                del known[other]
            if held is not None:
                known[name] = held

    def selected(self, s: Select, facts: tuple[Expr, ...], known: Known) -> Load | None:
        """The choice as a load, where each operand provably holds an element of one buffer."""
        operands = [o for _, o in s.cases] + [s.default]
        found = [known.get(o.name) if isinstance(o, Local) and o.at is None else None for o in operands]
        if len(found) < LEAST or any(x is None for x in found):
            return None
        pieces = [x for x in found if x is not None]
        buffer = pieces[0].load.buffer
        if any(x.load.buffer != buffer for x in pieces) or s.local.dtype != buffer.dtype:
            return None
        before, serves, ways = list(facts), list[ProvenanceList](), list[Expr]()
        for condition, piece in zip([*(c for c, _ in s.cases), TRUE], pieces, strict=True):
            here = (*before, condition) if condition is not TRUE else tuple(before)
            if not all(_is_implied(c, here) for c in dict.fromkeys(piece.conditions)):
                return None
            way = and_(*here[len(facts) :])
            ways.append(condition)
            serves.append(guard_provenance(piece.load.serves, way))
            before.append(simplify(not_(condition)))
        last = pieces[-1].load.address
        apart = as_expr(0)
        for condition, piece in reversed(list(zip(ways[:-1], pieces[:-1], strict=True))):
            apart = chosen(condition, simplify(piece.load.address - last), apart)
        return Load(s.local, buffer, last + apart, serves=tuple(x for some in serves for x in some))


def _is_implied(condition: Expr, facts: tuple[Expr, ...]) -> bool:
    """True where a condition provably holds under the facts: by the algebra, or at every point of its few variables."""
    if simplify(condition, facts=facts) is TRUE:
        return True
    return isinstance(enumerate_points(condition, POINTS, [f for f in facts if f.names <= condition.names]), Proof)
