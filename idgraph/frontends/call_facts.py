"""The facts that an import's calls are compared with, whatever the sizes: shapes, ranges and guards as captured.

Calls with arguments of sizes that none has had are laid out by it (`idgraph.runtime.resized`); where anything does not
hold, the call is bound the whole way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr, as_expr
from idgraph.frontends.captured import Ref, TensorMeta
from idgraph.frontends.imported import Imported
from idgraph.frontends.returned import ResultSource
from idgraph.frontends.sizes import Size
from idgraph.runtime.resized import GuardSpec, Place


def _sizes(meta: object) -> Sequence[Size] | Size | None:
    """The sizes of an argument: of a tensor its shape, of an integer itself, also where it is the one captured."""
    if isinstance(meta, TensorMeta):
        return meta.shape
    return meta if isinstance(meta, (Expr, int)) and not isinstance(meta, bool) else None


def sizes_wanted(imported: Imported) -> GuardSpec:
    """The facts that give the symbols of sizes their values, of calls in several parts."""
    program = imported.program
    metas = [n.meta for n in program.nodes if n.kind != "call"]
    return GuardSpec([_sizes(m) for m in metas], (), program.sizes.symbols, program.sizes.guards)


def guards_of(imported: Imported, inputs: tuple[int, ...], gives: Sequence[ResultSource]) -> GuardSpec | None:
    """The facts of calls whose kernels read these arguments, and whose results are found so. None where sizes are
    fixed.
    """
    program, aliases = imported.program, imported.plan.aliases
    sizes = program.sizes
    if not sizes.symbols:
        return None
    metas = [n.meta for n in program.nodes if n.kind != "call"]
    arguments = [_sizes(m) for m in metas]
    strides: list[tuple[int, tuple[Size, ...]]] = []
    lying: list[tuple[int, tuple[Size, ...]]] = []
    more: list[Size | Place] = []
    for n, (v, g) in enumerate(zip(program.results, gives, strict=True)):
        name = v.name if isinstance(v, Ref) else ""
        shared = aliases.get(name)
        meta = program[name].meta if name else v
        root = meta if shared is None else program[shared.root].meta
        if isinstance(root, TensorMeta) and g.of != "value":
            (strides if g.of == "kernels" else lying).append((g.slot, root.strides))
        if shared is not None and g.value is not None:
            of, view = shared.of, shared.meta
            more.append((view.shape, view.strides, as_expr(view.offset) - of.offset))
        else:
            more.append(meta if isinstance(meta, Expr) else n)
    return GuardSpec(arguments, inputs, sizes.symbols, sizes.guards, strides, lying, more)
