"""What an import's calls are compared with, whatever the sizes: shapes, ranges and guards as captured.

Calls with arguments of sizes that none has had are laid out by it (`idgraph.runtime.resized`); where anything does not
hold, the call is bound the whole way, which says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from idgraph.arith import Expr, as_expr
from idgraph.frontends.nodes import Program, Ref, TensorMeta
from idgraph.frontends.sizes import Size
from idgraph.runtime.resized import Wanted

if TYPE_CHECKING:
    from idgraph.frontends.bound import Likeness


def wanted_of(program: Program, likeness: Likeness) -> Wanted | None:
    """None where a result is not what kernels make, an argument, or a size that follows from those of arguments."""
    sizes = program.sizes
    if not sizes.symbols:
        return None
    metas = [n.meta for n in program.nodes if n.kind != "call"]
    arguments = [m.shape if isinstance(m, TensorMeta) else m if isinstance(m, Expr) else None for m in metas]
    strides: list[tuple[int, tuple[Size, ...]]] = []
    lying: list[tuple[int, tuple[Size, ...]]] = []
    more: list[Expr] = []
    for n, (v, g) in enumerate(zip(program.results, likeness.gives, strict=True)):
        meta = program[v.name].meta if isinstance(v, Ref) else v
        if g.of == "kernels" and isinstance(meta, TensorMeta):
            strides.append((g.slot, meta.strides))
        elif g.of == "argument" and isinstance(meta, TensorMeta):
            lying.append((g.slot, meta.strides))
        elif g.of != "value":
            return None
        more.append(meta if isinstance(meta, Expr) else as_expr(n))
    return Wanted(arguments, likeness.inputs, sizes.symbols, sizes.guards, strides, lying, more)
