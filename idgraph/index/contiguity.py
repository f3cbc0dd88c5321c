"""Proofs about addresses along one loop: consecutive elements, aligned vectors, and 32-bit safety.

Contiguous: address(i + 1) - address(i) = 1 for every i. A vector of w elements is legal along a loop when every aligned
run of w lanes is consecutive, starts at a multiple of w elements (given the buffer's alignment), and is touched as a
whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from idgraph.arith import Expr, as_expr, is_true, simplify, symbol
from idgraph.arith.ranges import multiple_of
from idgraph.errors import IndexingError
from idgraph.index.loop import Loop
from idgraph.ir import item_size

if TYPE_CHECKING:
    from idgraph.index.access import Access

INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class VectorWidth:
    """``width`` elements in one access; ``reason`` says what stops a wider one."""

    width: int
    reason: str


def find_loop(access: Access, loop: str | int | Loop) -> Loop:
    """The loop meant: itself, its name, or its position."""
    for n, candidate in enumerate(access.loops):
        if loop is candidate or loop == candidate.name or (isinstance(loop, int) and loop % len(access.loops) == n):
            return candidate
        if isinstance(loop, Loop) and loop == candidate:
            return candidate
    names = ", ".join(x.name for x in access.loops)
    raise IndexingError(f"{access.expr!r} has no loop {loop!r}", hint=f"its loops are {names}")


def contiguous(access: Access, loop: str | int | Loop) -> bool:
    """See `Access.contiguous`."""
    at = find_loop(access, loop)
    if is_true(at.extent <= 1):
        return True
    if loaded_along(access, at):
        return False
    i = symbol(at.name, 0, simplify(at.extent - 2))
    here = access.address.substitute({at.symbol: i})
    there = access.address.substitute({at.symbol: i + 1})
    return simplify(there - here) == 1


def loaded_along(access: Access, at: Loop) -> str:
    """The load symbol in the address whose loaded value changes along the loop; empty when there is none."""
    names = access.address.names
    for name, (_, where) in access.loads.items():
        if name in names and any(at.symbol in x.symbols for x in where):
            return name
    return ""


def _blocks(access: Access, at: Loop, width: int) -> tuple[dict[Expr, Expr], Expr, Expr]:
    """Substitution i -> block * width + lane, with the block and lane symbols."""
    block = symbol("block", 0, simplify(at.extent // width - 1))
    lane = symbol("lane", 0, width - 1)
    return {at.symbol: block * width + lane}, block, lane


def _fits(access: Access, at: Loop, width: int) -> str:
    """Empty when ``width`` lanes along the loop are legal, else the reason why not."""
    if not multiple_of(at.extent, width):
        return f"extent {at.extent} of {at.name} is not a multiple of {width}"
    loaded = loaded_along(access, at)
    if loaded:
        return f"address {access.address} holds {loaded}, a value loaded anew at each step of {at.name}"
    moved, _, lane = _blocks(access, at, width)
    address = simplify(access.address.substitute(moved))
    first = simplify(address.substitute({lane: as_expr(0)}))
    if simplify(address - first - lane) != 0:
        return f"address {access.address} does not step by one element along {at.name}"
    size = item_size(access.tensor.dtype)
    if access.tensor.alignment % (width * size):
        return f"buffer of {access.tensor.name} is aligned to {access.tensor.alignment} bytes, not {width * size}"
    if not multiple_of(first, width):
        return f"address {first} of the first lane is not proved a multiple of {width}"
    for condition in access.conditions:
        whole = condition.substitute(moved)
        at_lanes = {simplify(whole.substitute({lane: as_expr(n)})) for n in range(width)}
        if len(at_lanes) > 1:
            return f"condition {condition} may split a vector of {width}"
    return ""


def vector_width(access: Access, loop: str | int | Loop) -> VectorWidth:
    """Largest proved width along a loop, with what stops the next one."""
    at = find_loop(access, loop)
    best, reason = 1, ""
    width = 2
    while width * item_size(access.tensor.dtype) <= 16:
        reason = _fits(access, at, width)
        if reason:
            return VectorWidth(best, reason)
        best = width
        width *= 2
    return VectorWidth(best, f"{best * item_size(access.tensor.dtype)} bytes are the widest access")


def _parts(e: Expr) -> Iterator[Expr]:
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        yield x
        stack.extend(x.args)


def index_bits(access: Access) -> int:
    """See `Access.index_bits`: every part of the address, where loaded indices are taken to be in bounds."""
    bounded: dict[Expr, Expr] = {}
    for k in range(0, len(access.load_bounds), 2):
        value, below = access.load_bounds[k].symbols, access.load_bounds[k + 1]
        extent = below.args[1] if below.op == "lt" else None
        for s in value:
            if s.name.startswith("ld") and extent is not None:
                bounded[s] = symbol(s.name, 0, simplify(extent - 1))
    address = access.address.substitute(bounded) if bounded else access.address
    for part in _parts(address):
        if part.is_condition:
            continue
        bounds = part.range
        if bounds.lo is None or bounds.hi is None or bounds.lo < -INT32 - 1 or bounds.hi > INT32:
            return 64
    return 32
