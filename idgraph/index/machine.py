"""The machine integers that an access needs, whatever the predicate says: 32 bits, signed or not, or 64."""

from __future__ import annotations

from idgraph.arith import Expr, IntType, fits, reduce_strength
from idgraph.errors import IndexingError
from idgraph.index.access_function import AccessFunction
from idgraph.index.lane_runs import bounded_loads

_KINDS: tuple[IntType, ...] = ("uint32", "int32", "int64")


def index_type(access: AccessFunction, guarded: bool = False) -> IntType:
    """See `Access.index_type`."""
    found: IntType | None = next((k for k in _KINDS if _fits(access, k, guarded)), None)
    if found is None:
        raise IndexingError(
            f"{access.tensor.name} at {access.address}: 64 bits are not proved to be enough",
            where=access.expr.source_line,
            hint="give every symbol a max: f.symbol(name, max=...)",
        )
    return found


def index_bits(access: AccessFunction) -> int:
    """See `Access.index_bits`."""
    return 32 if _fits(access, "int32", guarded=False) else 64


def _fits(access: AccessFunction, kind: IntType, guarded: bool) -> bool:
    """Loop ends, both sides of each condition, and the address (loaded values in bounds), also as kernels reduce it."""
    bounded = bounded_loads(access)
    address = access.address.substitute(bounded) if bounded else access.address
    always: tuple[Expr, ...] = (*(x.extent for x in access.loops), *access.conditions)
    facts = access.conditions if guarded else ()
    return (
        all(fits(e, kind) for e in always)
        and fits(address, kind, facts)
        and fits(reduce_strength(address), kind, facts)
    )
