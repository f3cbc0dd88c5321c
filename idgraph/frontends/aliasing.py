"""Results of a captured program that are views: of an argument, or of memory that other results have too.

In eager mode such results share memory, and nothing is computed for them. torch's own capture says how each view lies.
A file only claims it: there a view is one where the index maps prove its strides and its offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from idgraph.arith import Expr
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta, same_size
from idgraph.ir import SCANS, SCATTERS, Tensor
from idgraph.ir.op_table import POINTWISE
from idgraph.ir.walks import operands, reach
from idgraph.layout.aliasing import Alias, view_of

# Their results lie in the memory of their first operand.
VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "as_strided.default", "detach.default", "diagonal.default", "expand.default",
        "permute.default", "select.int", "slice.Tensor", "squeeze.default", "squeeze.dim", "squeeze.dims", "t.default",
        "transpose.int", "unfold.default", "unsqueeze.default", "view.default",
    )
)  # fmt: skip
# Each of their results lies in the memory of their first operand.
PARTS = frozenset({"aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int"})
GETITEM = "_operator.getitem"


@dataclass(frozen=True, slots=True)
class Shared:
    """A result in the memory of node ``root``: it lies as ``meta`` says where that lies as ``of`` says."""

    root: str
    of: TensorMeta
    meta: TensorMeta


def shared_results(program: CapturedProgram, values: Mapping[str, object]) -> dict[str, Shared]:
    """The results that share memory, with an argument or with other results. ``values``: the tensors of a fusion by
    node.

    The only view of a computed tensor is computed itself and shares no memory, unless it has gaps or repeats elements,
    or the tensor is computed in loops over its own axes: a scan, or a scatter, would be copied into the view's.
    The new value of an argument that the program changes is that argument.

    >>> x = Node("x", "placeholder", "x", meta=TensorMeta((2, 3), "float32", (3, 1)))
    >>> y = Node("y", "call", "aten.t.default", (Ref("x"),), meta=TensorMeta((3, 2), "float32", (1, 3)))
    >>> {n: s.root for n, s in shared_results(CapturedProgram("f", (x, y), (Ref("y"), Ref("x"))), {}).items()}
    {'y': 'x', 'x': 'x'}
    """
    pairs = list(zip(program.results, program.mutated, strict=False))
    counts = Counter(v.name for v, _ in pairs if isinstance(v, Ref))
    changed = {v.name: program[x] for v, x in pairs if isinstance(v, Ref) and counts[v.name] == 1}
    names = dict.fromkeys(v.name for v in program.results[len(program.mutated) :] if isinstance(v, Ref))
    known = {n for node in program.placeholders for n in _symbols_of(node)}
    roots = {name: _root(program, name, values, known) for name in names if isinstance(program[name].meta, TensorMeta)}
    sharing = Counter(roots.values())
    found: dict[str, Shared | None] = {}
    for name, root in roots.items():
        view, of = program[name], program[root]
        if root in changed:
            found[name] = _of_argument(view, of, changed[root], values)
        elif of.kind != "call":
            found[name] = None if root in program.mutated else _shared_memory(view, of)  # it is overwritten by then
        elif sharing[root] > 1 or (root != name and (not _is_dense(view) or _has_own_loops(view, of, values))):
            found[name] = _shared_memory(view, of)
    return {name: s for name, s in found.items() if s is not None}


def _shared_memory(view: Node, of: Node) -> Shared:
    assert isinstance(view.meta, TensorMeta) and isinstance(of.meta, TensorMeta)
    return Shared(of.name, of.meta, view.meta)


def _of_argument(view: Node, value: Node, argument: Node, values: Mapping[str, object]) -> Shared | None:
    """A view of the new value of an argument, as a view of the argument, which may lie in memory with gaps."""
    assert isinstance(view.meta, TensorMeta) and isinstance(value.meta, TensorMeta)
    lies = argument.meta
    if not isinstance(lies, TensorMeta):
        return None
    if lies.strides == value.meta.strides:
        return Shared(value.name, value.meta, view.meta)
    if view is value:
        return Shared(value.name, lies, lies)
    of, mine = values.get(value.name), values.get(view.name)
    if not (isinstance(of, Tensor) and isinstance(mine, Tensor)):
        return None
    found = view_of(mine, of, lies.strides, lies.offset)
    if not isinstance(found, Alias):
        return None
    return Shared(value.name, lies, replace(view.meta, strides=found.strides, offset=found.offset))


def _root(program: CapturedProgram, name: str, values: Mapping[str, object], known: set[str]) -> str:
    """The node whose memory a view lies in; the node itself where it has memory of its own, or it is not certain."""
    node, free = program[name], False
    while (source := _view_base(program, node)) is not None:
        free |= node.target == "aten.as_strided.default"
        node = source
    if node.name == name or not _symbols_of(program[name]) | _symbols_of(node) <= known:
        return name
    if free and not _is_inside(program[name], node):
        return name
    return node.name if not program.claimed or _is_proved(program[name], node, values) else name


def _is_inside(view: Node, root: Node) -> bool:
    """Whether a view by strides stays within the elements of its root."""
    if not (isinstance(view.meta, TensorMeta) and isinstance(root.meta, TensorMeta)):
        return False
    if view.meta.is_dynamic or root.meta.is_dynamic:
        return False
    (first, last), (low, high) = _span(view.meta), _span(root.meta)
    return low <= first and last <= high


def _span(meta: TensorMeta) -> tuple[int, int]:
    """The first element and the last, counted from where the memory begins."""
    start = int(meta.offset)
    return start, start + sum((int(n) - 1) * int(s) for n, s in zip(meta.shape, meta.strides, strict=True))


def _view_base(program: CapturedProgram, node: Node) -> Node | None:
    """The tensor behind a view."""
    first = node.args[0] if node.args else None
    if node.kind != "call" or not isinstance(first, Ref) or not isinstance(node.meta, TensorMeta):
        return None
    if node.target == GETITEM and program[first.name].target in PARTS:
        first = program[first.name].args[0]
    elif node.target not in VIEWS:
        return None
    found = program[first.name] if isinstance(first, Ref) else None
    same = found is not None and isinstance(found.meta, TensorMeta) and found.meta.dtype == node.meta.dtype
    return found if same else None


def _symbols_of(node: Node) -> set[str]:
    """Symbols in the sizes, the strides and the offset of a tensor; of a size, its own."""
    match node.meta:
        case TensorMeta() as meta:
            sizes: Sequence[Size] = (*meta.shape, *meta.strides, meta.offset)
        case Expr() as size:
            sizes = (size,)
        case _:
            sizes = ()
    return {n for s in sizes if isinstance(s, Expr) for n in s.names}


def _is_dense(node: Node) -> bool:
    meta = node.meta
    return not isinstance(meta, TensorMeta) or meta.is_dynamic or meta.dense_order is not None


def _has_own_loops(view: Node, of: Node, values: Mapping[str, object]) -> bool:
    """Whether a view shows all of a scan or a scatter, or of what is computed of one element by element."""
    assert isinstance(view.meta, TensorMeta) and isinstance(of.meta, TensorMeta)
    t = values.get(of.name)
    if view.meta.is_dynamic or of.meta.is_dynamic or prod(view.meta.shape) != prod(of.meta.shape):
        return False
    near = reach([t] if isinstance(t, Tensor) else [], lambda u: operands(u) if _op(u) in POINTWISE else ())
    return any(_op(u) in SCANS | SCATTERS for u in near)


def _op(t: Tensor) -> str:
    return t.definition.op if t.definition is not None else ""


def _is_proved(view: Node, root: Node, values: Mapping[str, object]) -> bool:
    """Whether the operations between make the view that the graph says."""
    of, mine = values.get(root.name), values.get(view.name)
    if not (isinstance(of, Tensor) and isinstance(mine, Tensor)):
        return False
    if not (isinstance(root.meta, TensorMeta) and isinstance(view.meta, TensorMeta)):
        return False
    found = view_of(mine, of, root.meta.strides, root.meta.offset)
    if not isinstance(found, Alias) or not same_size(found.offset, view.meta.offset):
        return False
    steps = zip(view.meta.shape, found.strides, view.meta.strides, strict=True)
    return all(n == 1 or same_size(a, b) for n, a, b in steps)
