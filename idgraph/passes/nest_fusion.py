"""fuse_nests: kernels of a CPU over the same loops that need nothing of each other as one loop nest.

What they read in common is then read once: three outputs of two operands are one sweep over them. Kernels over other
loops stay apart: a CPU gains nothing by starting them together, as a GPU does (`idgraph.passes.kernel_fusion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from idgraph.arith import Expr, simplify
from idgraph.kernel.def_use import all_reads, all_sets, loaded_in, map_body, read_only_buffers, rewritten_inside
from idgraph.kernel.ir import Kernel, KernelModule, Load, Loop, Stmt, single_statement, walk
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.kernel_fusion import MOST, Launches, LaunchGroup, Nested, kernel_of, one_nest


def fuse_nests(plan: KernelModule) -> KernelModule:
    """fuse_nests: kernels that run the same loops over a common input, as one loop nest each.

    >>> import idgraph as ig
    >>> from idgraph.kernel.ir import KernelModule
    >>> text = '''
    ... kernel k():
    ...   buffer x: float32[512] input "x"
    ...   buffer y: float32[512] output "y"
    ...   for b < 2, blockIdx.x:
    ...     for i < 256:
    ...       v: float32 = x[b*256 + i]
    ...       w: float32 = exp(v)
    ...       y[b*256 + i] = w
    ... '''
    >>> other = text.replace("exp", "neg").replace("y", "z")
    >>> kernels = tuple(ig.kernel.parse(t) for t in (text, other))
    >>> (fused,) = fuse_nests(KernelModule(kernels, (), {}, {})).kernels
    >>> print(fused)
    kernel kernel0():
      buffer x: float32[512] input "x"
      buffer y: float32[512] output "y"
      buffer z: float32[512] output "z"
      for b < 2, blockIdx.x:
        for i < 256:
          v: float32 = x[b*256 + i]
          w: float32 = exp(v)
          y[b*256 + i] = w
          w_s2: float32 = neg(v)
          z[b*256 + i] = w_s2
    """
    return Launches(nest=_kernel_nest, group=_NestGroup).fused(plan)


def _kernel_nest(k: Kernel) -> Nested | None:
    """The kernel as a nest that has no threads; None where it is not one loop."""
    return Nested(k, (1, 1, 1), free=True, shares=False) if isinstance(single_statement(k.body), Loop) else None


@dataclass(slots=True)
class _NestGroup(LaunchGroup):
    """Kernels that are one nest."""

    def takes(self, nests: Sequence[Nested], arrays: set[str]) -> bool:
        """Whether the nests run the loops of this group, read some of what it reads, and pass over rows as it does."""
        mine = [n.kernel for n in self.nests or ()]
        if len(mine) + len(nests) > MOST:
            return False
        return all(_fits(mine, n.kernel) for n in nests)

    def joined(self) -> Kernel:
        """One nest of them all, in which each value is read once."""
        if len(self.kernels) == 1:
            return self.kernels[0]
        made = kernel_of(self.kernels, to_ssa(one_nest([k.body for k in self.kernels])))
        inputs = read_only_buffers(made.buffers, made.body)
        once = map_body(made.body, partial(_loads_once, read_only=inputs))
        needed = (all_sets(made.body) - all_sets(once)) & all_reads(once)  # behind the loop that loaded it
        return replace(made, body=made.body if needed else once, launch=_launch(self.kernels))


def _launch(kernels: Sequence[Kernel]) -> dict[str, tuple[Expr, ...]]:
    """The extents of the loops on each parallel dimension, of all kernels."""
    dims = dict.fromkeys(d for k in kernels for d in k.launch)
    return {d: tuple(dict.fromkeys(e for k in kernels for e in k.launch.get(d, ()))) for d in dims}


def _fits(group: Sequence[Kernel], k: Kernel) -> bool:
    """Whether the kernel's nest may be one with those of the group."""
    first = group[0]
    if k.choices != first.choices or not _same_loop(first, k):
        return False
    hints = [{c for _, c in x.default_hints} for x in (*group, k)]
    if any(a and b and a != b for a in hints for b in hints):
        return False  # a row that one holds would be read again
    return any(loaded_in(x.body) & loaded_in(k.body) for x in group)


def _same_loop(a: Kernel, b: Kernel) -> bool:
    """Whether the nests' outermost loops are one: equal steps of one variable, which all cores share or none."""
    one, other = single_statement(a.body), single_statement(b.body)
    if (
        not isinstance(one, Loop)
        or not isinstance(other, Loop)
        or (one.var, one.parallel) != (other.var, other.parallel)
    ):
        return False
    return simplify(one.extent - other.extent) == 0


def _loads_once(s: Stmt, read_only: frozenset[str]) -> Stmt:
    """A loop without others in it that loads each element of a ``read_only`` buffer once; the first load then serves
    what the others did."""
    if not isinstance(s, Loop) or any(isinstance(x, Loop) for x in walk(s.body)):
        return s
    values, made, first = ValueNumbering(read_only), list[Stmt](), dict[str, int]()
    for x in s.body:
        x = rewritten_inside(x, read=values.operand)
        if not isinstance(x, Load):
            values.forget(all_sets((x,)))
            made.append(x)
            continue
        known = values.known(x)
        values.define(x)
        at = first.get(known.name) if known is not None else None
        if at is not None and isinstance(load := made[at], Load):
            made[at] = replace(load, serves=(*load.serves, *x.serves))
        else:
            first[x.local.name] = len(made)
            made.append(x)
    return replace(s, body=tuple(made))
