"""round_once: a value that is only written to 16-bit floats is rounded by the writes, not before them as well."""

from __future__ import annotations

from dataclasses import replace

from idgraph.ir import is_float
from idgraph.kernel.defuse import defs, locals_read, map_body, map_statement, updates
from idgraph.kernel.ir import Compute, Kernel, Local, Operand, Stmt, Store, walk

SHORT = ("bfloat16", "float16")


def elide_double_rounding(kernel: Kernel) -> Kernel:
    """round_once: one rounding of each value that is only stored.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: bfloat16[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   for i < 64:
    ...     u: bfloat16 = x[i]
    ...     v: bfloat16 = mul(u, 2)
    ...     y[i] = v
    ... ''')
    >>> print(rounded_once(k))
    kernel k():
      buffer x: bfloat16[64] input "x"
      buffer y: bfloat16[64] output "y"
      for i < 64:
        u: bfloat16 = x[i]
        v: float32 = mul(u, 2) in bfloat16
        y[i] = v
    """
    stored: set[str] = set()
    others: set[str] = set()
    for s in walk(kernel.body):
        if isinstance(s, Store) and isinstance(s.value, Local) and s.value.dtype == s.buffer.dtype in SHORT:
            stored.add(s.value.name)
        else:
            others |= locals_read(s) | {x.name for x in updates(s)}
        if not _is_rounding(s):
            others |= {x.name for x in defs(s)}
    once = stored - others
    if not once:
        return kernel

    def wide(x: Local) -> Local:
        return replace(x, dtype="float32") if x.name in once else x

    def read(o: Operand) -> Operand:
        return wide(o) if isinstance(o, Local) else o

    def changed(s: Stmt) -> Stmt:
        return map_statement(s, made=wide, read=read)

    return replace(kernel, body=map_body(kernel.body, changed))


def _is_rounding(s: Stmt) -> bool:
    """Floating point arithmetic whose result is rounded to 16 bits."""
    match s:
        case Compute(Local(dtype=dtype, at=None), op, operands, compute):
            floats = all(isinstance(o, Local) and is_float(o.dtype) and o.dtype != "float64" for o in operands)
            return dtype in SHORT and op != "where" and is_float(compute) and (op != "cast" or floats)
        case _:
            return False
