"""The loop nest of a scheduled fusion as text, as Halide prints one: a line for each loop, array and operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from idgraph.errors import IdGraphError
from idgraph.index import IdModel
from idgraph.index.nest import Leaf, LoopNest, Node, build_tree, reduction_positions
from idgraph.ir import Fusion, Tensor, TensorExpr

_WORDS = {"vectorize": "vectorize", "unroll": "unroll"}


def loop_nest(what: object) -> str:
    """The loops of a fusion in the order in which they run; raises `ScheduleError` where no nest can do them.

    >>> import idgraph as ig
    >>> f = ig.Fusion("softmax")
    >>> x = f.input("x", shape=(4, 30))
    >>> t = ig.exp(x, name="t")
    >>> y = f.output(ig.div(t, ig.sum(t, 1, keepdim=True, name="s"), name="y"))
    >>> ig.schedule.inline_most(f)
    >>> print(loop_nest(f))
    for i0 < 4:
      allocate t: 30 float32, private
      for i1 < 30:
        t = exp(x)
      for i1 < 30:
        for i2 < 1:
          s = sum(t) over i1
      for i1 < 30:
        y = div(t, s)
    """
    if not isinstance(what, Fusion):
        raise IdGraphError(f"a {type(what).__name__} has no loop nest", hint="fusion.show(loops=True)")
    return "\n".join(_Printer(what).lines()) or "# no operation"


class _Printer:
    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.model = IdModel(fusion)

    def lines(self) -> Iterator[str]:
        yield from self.arrays(self.fusion.exprs, 0, "")
        for node in build_tree(self.fusion.exprs, self.model):
            yield from self.node(node, "")

    def node(self, node: Node, pad: str) -> Iterator[str]:
        match node:
            case Leaf(e):
                yield pad + self.operation(e)
            case LoopNest(depth, var, extent, parallel, exprs, children):
                on = "" if parallel in ("serial", *_WORDS) else f" on {parallel}"
                yield f"{pad}{_WORDS.get(parallel, 'for')} {var} < {extent}{on}:"
                yield from self.arrays(exprs, depth + 1, pad + "  ")
                for child in children:
                    yield from self.node(child, pad + "  ")
            case _:
                assert_never(node)

    def operation(self, e: TensorExpr) -> str:
        args = ", ".join(a.name if isinstance(a, Tensor) else str(a) for a in e.args)
        over = [self.model.loops(e)[p].name for p in reduction_positions(e, self.model)]
        along = f" over {', '.join(over)}" if over else ""
        when = self.model.write(e).predicate
        return f"{e.output.name} = {e.op}({args}){along}" + ("" if str(when) == "True" else f"  if {when}")

    def arrays(self, exprs: Sequence[TensorExpr], depth: int, pad: str) -> Iterator[str]:
        """The arrays allocated inside the ``depth`` outermost loops."""
        outputs = set(self.fusion.outputs)
        for e in exprs:
            t = e.output
            if t in outputs or t.inline_position != depth:
                continue
            buffer = self.model.storage(t).buffer(write=True)
            if buffer.tensor is t and buffer.place not in ("register", "input", "output"):
                yield f"{pad}allocate {t.name}: {buffer.size} {t.dtype}, {buffer.place}"
