"""keep_rolled: loops that reduce a row hide their number of steps from the compiler.

LLVM writes loops of few known steps out before it looks for vectors: a sum over 48 or 64 channels then becomes scalar
code, 5 to 10 times slower, and blocks of one row are read side by side, as 16 streams of memory instead of one. A loop
that is ``mark_nounroll`` runs like a serial one; its extent is known to every pass and to `verify`, and not to LLVM.
"""

from __future__ import annotations

from dataclasses import replace

from idgraph.kernel.defuse import map_body
from idgraph.kernel.ir import Accumulate, Kernel, Loop, Stmt, walk

LEAST_ROLLED = 9  # steps; fewer are best written out


def mark_nounroll(kernel: Kernel) -> Kernel:
    """keep_rolled: reductions of known extent, not to be written out.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[192] input "x"
    ...   buffer y: float32[3] output "y"
    ...   for i < 3:
    ...     acc s: float32 = 0.0
    ...     for c < 64:
    ...       v: float32 = x[i*64 + c]
    ...       s <- sum v
    ...     y[i] = s
    ... ''')
    >>> print(rolled(k))
    kernel k():
      buffer x: float32[192] input "x"
      buffer y: float32[3] output "y"
      for i < 3:
        acc s: float32 = 0.0
        for c < 64, rolled, carries s:
          v: float32 = x[c + i*64]
          s <- sum v
        y[i] = s
    """
    return replace(kernel, body=map_body(kernel.body, _rolled))


def _rolled(s: Stmt) -> Stmt:
    if not (isinstance(s, Loop) and s.parallel == "serial" and s.extent.is_const and int(s.extent) >= LEAST_ROLLED):
        return s
    sums = any(isinstance(x, Accumulate) and x.buffer is None and x.running is None for x in walk(s.body))
    return replace(s, parallel="rolled") if sums else s
