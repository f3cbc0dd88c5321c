"""composed: a function of a function as one, where that is nearer to the exact value and costs less.

1 + erf(x) is erfc(-x): no difference loses the places of small results. log1p(exp(x)) is a polynomial of e ** -abs(x).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from idgraph.kernel.defuse import all_sets, bodies, locals_read, operands_of
from idgraph.kernel.ir import Compute, Constant, Kernel, Local, Stmt, walk

COMPOSITIONS: Final[Mapping[tuple[str, str], str]] = {
    ("add", "erf"): "one_plus_erf", ("sub", "erf"): "one_minus_erf", ("log1p", "exp"): "log1p_exp",
}  # fmt: skip
"""1 and a function, 1 less it, or a function of it, with the function inside: both in one."""
_COMPOSED_INNER: Final = frozenset(inner for _, inner in COMPOSITIONS)


def fuse_math_functions(kernel: Kernel) -> Kernel:
    """composed: functions of functions as one, in float32, where nothing else reads the inner one.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     a: float32 = x[i]
    ...     b: float32 = exp(a)
    ...     c: float32 = log1p(b)
    ...     y[i] = c
    ... ''')
    >>> print(composed(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 64:
        a: float32 = x[i]
        c: float32 = log1p_exp(a)
        y[i] = c
    """
    if not any(isinstance(s, Compute) and s.op in _COMPOSED_INNER for s in walk(kernel.body)):
        return kernel
    reads = Counter(o.name for s in walk(kernel.body) for o in operands_of(s) if isinstance(o, Local))
    return replace(kernel, body=_fuse_in_body(kernel.body, reads))


def _fuse_in_body(body: Sequence[Stmt], reads: Mapping[str, int]) -> tuple[Stmt, ...]:
    """The statements of one level, and those inside them."""
    made: list[Stmt] = []
    inner: dict[str, Compute] = {}  # functions whose operands still have the values that they had
    for s in body:
        x = _inner_operand(s)
        f = None if x is None or reads[x.name] > 1 else inner.get(x.name)
        if isinstance(s, Compute) and f is not None and (s.op, f.op) in COMPOSITIONS:
            made = [y for y in made if y is not f]
            s = replace(s, op=COMPOSITIONS[s.op, f.op], operands=f.operands)
        elif bodies(s):
            s = replace(s, body=_fuse_in_body(bodies(s), reads))  # pyright: ignore[reportCallIssue]  # loops and conditions
        made.append(s)
        lost = all_sets((s,))
        inner = {n: f for n, f in inner.items() if n not in lost and lost.isdisjoint(locals_read(f))}
        if isinstance(s, Compute) and s.op in _COMPOSED_INNER and _is_single(s) and s.local.at is None:
            inner[s.local.name] = s
    return tuple(made)


def _inner_operand(s: Stmt) -> Local | None:
    """The operand whose function `s` may be one with."""
    match s:
        case Compute(op="add" | "sub", operands=(Constant(1), Local(at=None) as x)):
            return x if _is_single(s) else None
        case Compute(op="add", operands=(Local(at=None) as x, Constant(1))):
            return x if _is_single(s) else None
        case Compute(op="log1p", operands=(Local(at=None) as x,)):
            return x if _is_single(s) else None
        case _:
            return None


def _is_single(s: Compute) -> bool:
    return s.compute == s.local.dtype == "float32"
