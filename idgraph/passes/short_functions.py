"""short_functions: exp and the logistic function in few instructions where the result is rounded to 16 bits.

A float32 exp that is right to its last place takes eight instructions of a GPU, which kernels of 16-bit activations
wait for: at 16 bytes a thread they have as many instructions as memory has time for. Where a value is rounded to
float16 or bfloat16 at once, e ** x as 2 ** (x * log2(e)) is off by 2**-17 of the value at most (by |x| * 2**-24 in
general), which is less than 0.01 units in the last place of the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from idgraph.ir.dtypes import DType
from idgraph.kernel.defuse import everywhere
from idgraph.kernel.ir import Compute, Kernel, Stmt

SHORT: Final[frozenset[DType]] = frozenset({"float16", "bfloat16"})
SINGLE: Final[frozenset[DType]] = frozenset({"float16", "bfloat16", "float32"})  # computed in float32
FORMS: Final = {"exp": "short_exp", "sigmoid": "short_sigmoid"}


def shortened(kernel: Kernel) -> Kernel:
    """short_functions: exp and the logistic function in few instructions where the result is rounded to 16 bits.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: bfloat16[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   for i < 64:
    ...     a: bfloat16 = x[i]
    ...     t: bfloat16 = sigmoid(a)
    ...     y[i] = t
    ... ''')
    >>> print(shortened(k))
    kernel k():
      buffer x: bfloat16[64] input "x"
      buffer y: bfloat16[64] output "y"
      for i < 64:
        a: bfloat16 = x[i]
        t: bfloat16 = short_sigmoid(a)
        y[i] = t
    """
    return replace(kernel, body=everywhere(kernel.body, _short))


def _short(s: Stmt) -> Stmt:
    if isinstance(s, Compute) and s.op in FORMS and s.local.dtype in SHORT and s.compute in SINGLE:
        return replace(s, op=FORMS[s.op])
    return s
