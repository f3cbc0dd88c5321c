"""The order in which a program runs, as a tree: loops in order or in any order, guards, and nests as its leaves.

`tree_of` gives the tree of a program whose nests stand in a list; `nests_of` the list of a tree that shares no loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import assert_never

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify
from idgraph.check.program import Axis, CheckError, Nest, NeutralProgram, TreeGuard, TreeLoop, TreeNode, Write


def leaves(body: Sequence[TreeNode]) -> Iterator[Nest]:
    """The nests of a tree, in the order in which they stand."""
    for node in body:
        if isinstance(node, Nest):
            yield node
        else:
            yield from leaves(node.body)


def tree_of(p: NeutralProgram) -> tuple[TreeNode, ...]:
    """The tree of a program: its own, or that of its nests in order, those of a kernel as one loop in any order.

    Raises `CheckError` where the order names a call, or nests of one kernel have not the same number of points.
    """
    if p.body:
        return p.body
    named = {n.name: n for n in p.nests}
    calls = [x for x in p.order if x not in named]
    if calls:
        raise CheckError(f"the call {calls[0]!r} is not run on numbers")
    out: list[TreeNode] = []
    for kernel, group in groupby((named[x] for x in p.order or named), lambda n: n.kernel):
        nests = list(group)
        if not kernel:
            out += nests
        elif len(nests) == 1:
            out.append(_any_order(nests[0]))
        else:
            out.append(_fused(kernel, nests))
    return tuple(out)


def _any_order(n: Nest) -> TreeNode:
    node: TreeNode = replace(n, loops=(), kernel="")
    for a in reversed(n.loops):
        node = TreeLoop(a, (node,), any_order=True)
    return node


def _fused(kernel: str, nests: Sequence[Nest]) -> TreeNode:
    """Nests of one kernel: point k of each, row-major, runs in iteration k."""
    if len({tuple((a.name, a.extent) for a in n.loops) for n in nests}) == 1:
        body: tuple[TreeNode, ...] = tuple(replace(n, loops=(), kernel="") for n in nests)
        for a in reversed(nests[0].loops):
            body = (TreeLoop(a, body, any_order=True),)
        return body[0] if len(body) == 1 else TreeGuard(TRUE, body)
    counts = {simplify(_trip_count(n.loops)) for n in nests}
    if len(counts) > 1:
        raise CheckError(f"nests of the kernel {kernel!r} have not the same number of points")
    axis = Axis(f"point.{kernel}", counts.pop())
    return TreeLoop(axis, tuple(_unraveled(n, axis) for n in nests), any_order=True)


def _trip_count(axes: Sequence[Axis]) -> Expr:
    out = as_expr(1)
    for a in axes:
        out = out * a.extent
    return out


def _unraveled(n: Nest, axis: Axis) -> Nest:
    """A nest without loops, whose loop variables are digits of the one axis."""
    left, given = axis.symbol, dict[str, Expr]()
    for a in reversed(n.loops):
        given[a.name] = simplify(left % a.extent)
        left = left // a.extent
    return _substituted(replace(n, loops=(), kernel=""), given)


def _substituted(n: Nest, given: dict[str, Expr]) -> Nest:
    def write(w: Write) -> Write:
        reads = tuple(replace(r, index=r.index.substitute(given), when=r.when.substitute(given)) for r in w.reads)
        return replace(w, index=w.index.substitute(given), when=w.when.substitute(given), reads=reads)

    loads = {k: replace(x, index=x.index.substitute(given)) for k, x in n.loads.items()}
    places = {k: replace(x, value=x.value.substitute(given)) for k, x in n.places.items()}
    return replace(n, writes=tuple(write(w) for w in n.writes), loads=loads, places=places)


def nests_of(body: Sequence[TreeNode]) -> tuple[Nest, ...] | None:
    """The nests of a tree in which each leaf has loops of its own, all in order or all in any order; None else."""
    out: list[Nest] = []
    for node in body:
        found = _lone_nest(node)
        if found is None:
            return None
        out.append(found)
    return tuple(out)


def _lone_nest(node: TreeNode) -> Nest | None:
    loops: list[TreeLoop] = []
    when = TRUE
    while not isinstance(node, Nest):
        match node:
            case TreeLoop():
                if node.private:
                    return None
                loops.append(node)
            case TreeGuard():
                when = and_(when, node.when)
            case _:
                assert_never(node)
        if len(node.body) != 1:
            return None
        (node,) = node.body
    if len({x.any_order for x in loops}) > 1 or (node.loops and any(x.any_order for x in loops)):
        return None
    writes = tuple(replace(w, when=and_(when, w.when)) for w in node.writes)
    kernel = f"{node.name} by itself" if any(x.any_order for x in loops) else ""
    return replace(node, loops=(*(x.axis for x in loops), *node.loops), writes=writes, kernel=kernel)
