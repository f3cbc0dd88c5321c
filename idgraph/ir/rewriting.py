"""Operations replaced by others inside a fusion: tried out, taken back, or adopted by the tensor they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from idgraph.errors import OperationError, SourceLine
from idgraph.ir.exprs import TensorExpr
from idgraph.ir.tensor import Tensor


class Rewrites:
    """What a fusion offers to those who rewrite it; a part of `Fusion`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(4,)) * 2.0)
    >>> made, exprs = f.trying(lambda: f["x"] + f["x"], None)
    >>> f.adopt(t, made, exprs)
    >>> t.definition
    t1[I2] = add(x[I0], x[I0])
    """

    _exprs: list[TensorExpr]
    _tensors: dict[str, Tensor]
    _made: int
    _domains: int

    def touch(self) -> None:
        """Note a change; see `Fusion.touch`."""
        raise NotImplementedError

    def at_line(self, line: SourceLine | None) -> AbstractContextManager[None]:
        """See `Fusion.at_line`."""
        raise NotImplementedError

    def trying(self, build: Callable[[], Tensor], line: SourceLine | None) -> tuple[Tensor, tuple[TensorExpr, ...]]:
        """What ``build`` makes, with the operations it adds at the end: for `adopt`, or `undo` to take them back."""
        count = len(self._exprs)
        with self.at_line(line):
            made = build()
        return made, tuple(self._exprs[count:])

    @property
    def mark(self) -> tuple[int, int, int]:
        """The present state, for `undo`."""
        return len(self._exprs), self._made, self._domains

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Take back every operation added since ``mark``; names go on from there."""
        self.remove(list(reversed(self._exprs[mark[0] :])))
        _, self._made, self._domains = mark

    def remove(self, exprs: Sequence[TensorExpr]) -> None:
        """Take operations away whose outputs nobody else reads."""
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
