"""Operations replaced by others inside a fusion: tried out, taken back, or adopted by the tensor they compute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from idgraph.arith import Expr
from idgraph.errors import OperationError, SourceLine
from idgraph.ir.dtypes import Scalar
from idgraph.ir.exprs import TensorExpr
from idgraph.ir.tensor import Tensor

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Mark:
    """The numbers of operations, tensors, inputs, outputs and symbols, and the numbers of the next ones."""

    counts: tuple[int, int, int, int, int]
    made: int
    domains: int


class Rewrites:
    """The interface of a fusion for rewrites; a part of `Fusion`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(4,)) * 2.0)
    >>> made, exprs = f.trying(lambda: f["x"] + f["x"], None)
    >>> f.adopt(t, made, exprs)
    >>> t.definition
    t1[I2] = add(x[I0], x[I0])
    """

    _exprs: list[TensorExpr]
    _inputs: list[Tensor]
    _outputs: list[Tensor]
    _symbols: dict[str, Expr]
    _input_lines: dict[str, SourceLine | None]
    _tensors: dict[str, Tensor]
    _made: int
    _domains: int
    _moves: dict[TensorExpr, TensorExpr]

    def touch(self) -> None:
        """Note a change; see `Fusion.touch`."""
        raise NotImplementedError

    def at_line(self, line: SourceLine | None) -> AbstractContextManager[None]:
        """See `Fusion.at_line`."""
        raise NotImplementedError

    def trying(self, build: Callable[[], Tensor], line: SourceLine | None) -> tuple[Tensor, tuple[TensorExpr, ...]]:
        """The result of ``build``, with the operations it adds at the end: for `adopt`, or `undo` to take them back."""
        count = len(self._exprs)
        with self.at_line(line):
            made = build()
        return made, tuple(self._exprs[count:])

    @property
    def mark(self) -> Mark:
        """The present state, for `undo` and `restore`."""
        counts = (len(self._exprs), len(self._tensors), len(self._inputs), len(self._outputs), len(self._symbols))
        return Mark(counts, self._made, self._domains)

    def undo(self, mark: Mark) -> None:
        """Take back every operation added since ``mark``; names go on from there."""
        self.remove(list(reversed(self._exprs[mark.counts[0] :])))
        self._made, self._domains = mark.made, mark.domains

    def restore(self, mark: Mark) -> None:
        """Take back all that was added at the end since ``mark``, also what an interrupt left half added.

        The time is proportional to the fusion: this is for calls that failed.
        """
        exprs, tensors, inputs, outputs, symbols = mark.counts
        self._in_order()
        self._made, self._domains = mark.made, mark.domains
        del self._exprs[exprs:], self._inputs[inputs:], self._outputs[outputs:]
        for name in list(self._tensors)[tensors:]:
            del self._tensors[name]
            self._input_lines.pop(name, None)
        for name in list(self._symbols)[symbols:]:
            del self._symbols[name]
        known = set(self._exprs)
        for t in self._tensors.values():
            t.read_by([e for e in t.readers() if e in known])
        self.touch()

    def remove(self, exprs: Sequence[TensorExpr]) -> None:
        """Take operations away whose outputs nobody else reads."""
        self._in_order()
        gone = set(exprs)
        for e in exprs:
            for t in dict.fromkeys(e.inputs):
                t.drop_use(e)
            for t in e.outputs:
                del self._tensors[t.name]
        self._exprs = [e for e in self._exprs if e not in gone]
        self.touch()

    def adopt(self, t: Tensor, made: Tensor, exprs: Sequence[TensorExpr]) -> None:
        """Let ``t`` be computed as ``made``, a tensor of its shape that the last of ``exprs`` makes; they move in front
        of what reads t, and t's own definition goes. Loops of t are those of ``made``."""
        self._in_order()
        old, new = t.definition, made.definition
        if old is None or new is None or new not in exprs or made.uses:
            raise OperationError(f"{t.name} cannot be computed as {made.name}")
        for x in dict.fromkeys(old.inputs):
            x.drop_use(old)
        t.definition, t.domain, t.inline_position = new, made.domain, 0
        t.log.clear()
        new.outputs = (t,)
        exprs_of = (*made.domain.exprs, *made.domain.loop_exprs)
        for d in {*made.root, *made.logical, *(d for x in exprs_of for d in (*x.inputs, *x.outputs))}:
            d.tensor = t
        moved = set(exprs)
        rest = [e for e in self._exprs if e not in moved]
        at = rest.index(old)
        self._exprs = [*rest[:at], *exprs, *rest[at + 1 :]]
        fresh = [e.output.name for e in exprs if e is not new]
        names = [n for n in self._tensors if n not in fresh and n != made.name]
        names[names.index(t.name) : names.index(t.name)] = fresh
        self._tensors = {n: self._tensors[n] for n in names}
        self.touch()

    def replace_operand(
        self, use: TensorExpr, old: Tensor, new: Tensor, operands: Collection[int] | None = None
    ) -> None:
        """Let ``use`` read ``new``, a copy of ``old`` made just now, instead; keeps producers before consumers.

        ``operands`` are the numbers of those operands that do, by default all that are ``old``.
        """
        number, args = -1, list[Tensor | Scalar | Expr]()
        for a in use.args:
            number += isinstance(a, Tensor)
            args.append(new if a is old and (operands is None or number in operands) else a)
        use.args = tuple(args)
        use.inputs = tuple(a for a in args if isinstance(a, Tensor))
        if old not in use.inputs:
            old.drop_use(use)
        new.add_use(use)
        maker = new.definition
        if maker is not None:
            self._moves.pop(maker, None)
            self._moves[maker] = use
        self.touch()

    def _in_order(self) -> None:
        """Put operations that `replace_operand` made readable in front of their readers: all at once, when somebody
        asks for the order. Tensors print in order, so a copy stands in front of what its reader makes."""
        if not self._moves:
            return
        moves, front = self._moves, dict[TensorExpr, list[TensorExpr]]()
        self._moves = {}
        for maker, use in moves.items():
            front.setdefault(use, []).append(maker)
        self._exprs = _with_front([e for e in self._exprs if e not in moves], front)
        named = {maker.output.name: maker for maker in moves}
        ahead = {use.output.name: [m.output.name for m in makers] for use, makers in front.items()}
        names = _with_front([n for n in self._tensors if n not in named], ahead)
        self._tensors = {n: self._tensors[n] for n in names}

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Let all who read ``old`` read ``new``, which is computed before it and has the same values; ``old`` goes."""
        for use in old.uses:
            use.inputs = tuple(new if t is old else t for t in use.inputs)
            use.args = tuple(new if a is old else a for a in use.args)
            old.drop_use(use)
            if use not in new.uses:
                new.add_use(use)
        if old.definition is not None:
            self.remove([old.definition])


def _with_front(rest: Sequence[K], front: Mapping[K, Sequence[K]]) -> list[K]:
    """``rest``, each in front of it what ``front`` says, which may have something in front of it too."""
    made: list[K] = []
    for e in rest:
        work = [(e, False)]
        while work:
            x, is_done = work.pop()
            if is_done or x not in front:
                made.append(x)
            else:
                work.append((x, True))
                work += [(m, False) for m in reversed(front[x])]
    return made
