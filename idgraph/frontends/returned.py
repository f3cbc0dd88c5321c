"""The results of a call: with the strides captured, and in the same memory where the program's own are.

Arguments that the program changes are changed first, so that views of them are views of what the caller gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from idgraph.arith import Expr
from idgraph.errors import FrontendError
from idgraph.frontends.aliases import Shared
from idgraph.frontends.arrays import is_torch, to_numpy, to_torch
from idgraph.frontends.nodes import Node, Program, Ref, TensorMeta, where_of
from idgraph.frontends.spaces import Space


@dataclass(frozen=True, slots=True)
class _Base:
    """An array that views are made of; ``whole`` is returned for it itself: the caller's own tensor, say."""

    array: Any
    whole: Any


@dataclass(slots=True)
class Returned:
    """``values`` of nodes as results. ``aliases``: `shared_results`; ``theirs``: the memory of the arguments."""

    program: Program
    aliases: Mapping[str, Shared]
    given: Mapping[str, object]
    values: Mapping[str, Any]
    space: Space
    env: Mapping[str, int]
    theirs: set[int]
    bases: dict[str, _Base] = field(default_factory=dict[str, "_Base"])

    def results(self) -> list[object]:
        """All results, those of arguments that are changed first."""
        count = len(self.program.mutated)
        changed = [self._value(v) for v in self.program.results[:count]]
        rest = self.program.results[count:]
        own = {n: self._own(v) for n, v in enumerate(rest) if not (isinstance(v, Ref) and v.name in self.aliases)}
        for name, value in zip(self.program.mutated, changed, strict=False):
            _write_back(self.given[name], value, self.program[name])
        self._find_changed()
        return changed + [own[n] if n in own else self._view(v) for n, v in enumerate(rest)]

    def _find_changed(self) -> None:
        """The tensors behind the new values of arguments: the arguments, which have them by now."""
        of = {s.root: s.of for s in self.aliases.values()}
        for name, ref in zip(self.program.mutated, self.program.results, strict=False):
            if isinstance(ref, Ref) and ref.name in of:
                self.bases[ref.name] = self._argument(name, of[ref.name].at(self.env))

    def _value(self, value: object) -> object:
        """A result by its name; a size as a number."""
        if isinstance(value, Ref):
            meta = self.program[value.name].meta
            return meta.evaluate(self.env) if isinstance(meta, Expr) else self.values.get(value.name, meta)
        return value.evaluate(self.env) if isinstance(value, Expr) else value

    def _own(self, value: object) -> object:
        """A result in memory of its own."""
        found = self._value(value)
        if not (is_torch(found) or isinstance(found, np.ndarray)):
            return found
        meta = self._meta(value.name) if isinstance(value, Ref) else None
        made = self.space.returned(found, meta, memory_of(found) not in self.theirs)
        self.theirs.add(memory_of(made))
        return made

    def _view(self, value: object) -> object:
        """A result in the memory of an argument, or of what several results lie in."""
        assert isinstance(value, Ref)
        shared = self.aliases[value.name]
        base = self.bases.get(shared.root)
        if base is None:
            base = self.bases[shared.root] = self._base(shared.root)
        if value.name == shared.root:
            return base.whole
        return self.space.view(base.array, shared.of.at(self.env), shared.meta.at(self.env))

    def _base(self, root: str) -> _Base:
        """The array whose memory views of ``root`` have."""
        meta = self._meta(root)
        if self.program[root].kind != "call" and meta is not None:
            return self._argument(root, meta)
        found = self._own(Ref(root))
        return _Base(found, found)

    def _argument(self, name: str, meta: TensorMeta) -> _Base:
        """The argument itself where it lies as captured, else a copy that does."""
        given, taken = self.given[name], self.space.taken(self.given[name])
        found = self.space.lying(taken, meta)
        mine = found is taken and type(given) is type(taken) and memory_of(given) == memory_of(taken)
        return _Base(found, given if mine else found)

    def _meta(self, name: str) -> TensorMeta | None:
        """Shape and strides of a node, as captured."""
        meta = self.program[name].meta
        return meta.at(self.env) if isinstance(meta, TensorMeta) else None


def memory_of(value: Any) -> int:
    """The key by which two arrays are known to share memory."""
    if is_torch(value):
        return value.untyped_storage().data_ptr()
    base: Any = value
    while isinstance(getattr(base, "base", None), np.ndarray):
        base = base.base
    return id(base)


def _write_back(given: object, value: object, node: Node) -> None:
    """Tensors that the program changes in place are changed in the tensor given."""
    if isinstance(given, np.ndarray):
        given[...] = to_numpy(value) if is_torch(value) else value
    elif is_torch(given):
        given.detach().copy_(value if is_torch(value) else to_torch(np.asarray(value)))
    else:
        raise FrontendError(f"{where_of(node)}: the program changes it, and it is not a tensor")
