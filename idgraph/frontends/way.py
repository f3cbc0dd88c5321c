"""An import as a callable, in one way: arguments flattened as the program takes them, results packed as it gives them.

How arguments are nested is found out once for arrays in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from idgraph.errors import FrontendError
from idgraph.frontends.bound import KEYS
from idgraph.frontends.captured import short
from idgraph.frontends.imported import Imported
from idgraph.frontends.kept import CompileOptions
from idgraph.frontends.running import Runner
from idgraph.frontends.torch_arrays import is_torch

Kinds = tuple[type[Any], ...]


class CompiledImport:
    """See `idgraph.compile`; ``k.check()`` waits for the calls so far, as that of a fusion does.

    >>> import torch
    >>> from idgraph.frontends import from_torch
    >>> k = from_torch(lambda x, y: x * 2 + y, (torch.ones(3), torch.ones(3))).compiled("numpy")
    >>> k(torch.arange(3.0), torch.ones(3))
    tensor([1., 3., 5.])
    >>> k.check()
    """

    __slots__ = ("_flat", "_imported", "_packed", "_straight", "runner")

    def __init__(self, imported: Imported, how: CompileOptions) -> None:
        self._imported = imported
        self.runner = Runner(imported, how)
        self._flat: dict[Kinds, tuple[int, ...]] = {}  # of arrays alone: which is which argument
        self._straight = True  # arrays alone are the program's arguments in their order
        self._packed: tuple[str, Callable[[list[Any]], Any]] | None = None

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """The results for these arguments, packed as the captured function packs them; ``out`` is nested alike."""
        key: tuple[Any, ...] | None = None
        if kwargs:
            flat: Sequence[Any] = self._flattened(args, kwargs)
        else:
            if self._straight:
                try:
                    key = tuple([KEYS[type(a)](a) for a in args])
                except (KeyError, RuntimeError):  # no array, one without strides, or the first of its type
                    key = None
                short = None if key is None or out is not None else self.runner.shorts.get(key)
                made = None if short is None else short(args)
                if made is not None and self._packed is not None:
                    count = len(self._imported.program.mutated)
                    return self._packed[1](made[count:] if count else made)
            kinds: Kinds = tuple(map(type, args))
            places = self._flat.get(kinds)
            flat = [args[n] for n in places] if places is not None else self._learned(args, kinds)
        imported = self._imported
        sort, pack = self._packed or self._packing()
        targets = (
            None if out is None else _targets(out, sort, len(imported.program.results) - len(imported.program.mutated))
        )
        found = self.runner(flat, targets, key if self._straight else None)
        count = len(imported.program.mutated)
        made = pack(found[count:] if count else found)
        return made if out is None else _into(out, made)

    def check(self) -> None:
        """Wait for the calls so far, and raise the first `IndexingError` that they have left."""
        self.runner.check()

    def _flattened(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        imported = self._imported
        if imported.flatten is not None:
            return imported.flatten(args, kwargs)
        names = [n.name for n in imported.parameters]
        unknown = next((k for k in kwargs if k not in names[len(args) :]), None)
        if unknown is not None:
            raise FrontendError(f"{imported.program.name} takes no {short(unknown)}", hint=", ".join(names))
        return [*args, *(kwargs[n] for n in names[len(args) :] if n in kwargs)]

    def _learned(self, args: Sequence[Any], kinds: Kinds) -> list[Any]:
        """The arguments, flat; arrays are not containers, so that others in their places are flattened alike."""
        flat = self._flattened(args, {})
        places = {id(a): n for n, a in enumerate(args)}
        arrays = all(is_torch(a) or isinstance(a, np.ndarray) for a in args)
        if arrays and len(places) == len(args) and all(id(x) in places for x in flat):
            self._flat[kinds] = found = tuple(places[id(x)] for x in flat)
            self._straight = self._straight and found == tuple(range(len(args)))
        return flat

    def _packing(self) -> tuple[str, Callable[[list[Any]], Any]]:
        """Whether the program gives one result, a tuple, or another structure; and what makes it of a list."""
        imported = self._imported
        unflatten = imported.unflatten
        count = len(imported.program.results) - len(imported.program.mutated)
        if unflatten is None:
            self._packed = "tuple", tuple
            return self._packed
        marks: list[Any] = [object() for _ in range(count)]
        shown: Any = unflatten(list(marks))
        if count == 1 and shown is marks[0]:
            self._packed = "one", _first
        elif type(shown) is tuple and _same(cast("tuple[Any, ...]", shown), marks):
            self._packed = "tuple", tuple
        else:
            self._packed = "nested", unflatten
        return self._packed


def _first(found: list[Any]) -> Any:
    return found[0]


def _same(found: Sequence[Any], marks: Sequence[Any]) -> bool:
    return len(found) == len(marks) and all(a is b for a, b in zip(found, marks, strict=True))


def _targets(out: Any, sort: str, count: int) -> Sequence[Any] | None:
    """The caller's arrays, one for each result, for kernels to write into; None where structures differ."""
    if sort == "one":
        return (out,)
    if sort == "tuple" and isinstance(out, (tuple, list)) and len(cast("Sequence[Any]", out)) == count:
        return cast("Sequence[Any]", out)
    return None


def _into(out: Any, found: Any) -> Any:
    """Results copied into the arrays of the caller that are not written yet; the structure of both is the same."""
    many = isinstance(out, (tuple, list)) and isinstance(found, (tuple, list))
    targets, results = cast("tuple[Sequence[Any], Sequence[Any]]", (out, found) if many else ((out,), (found,)))
    if len(targets) != len(results):
        raise FrontendError(f"out has {len(targets)} arrays for {len(results)} results")
    for t, r in zip(targets, results, strict=True):
        if t is r:
            continue
        if many:
            _into(t, r)
        elif getattr(t, "shape", None) != getattr(r, "shape", 0) or t.dtype != r.dtype:
            raise FrontendError(f"out is not a {type(r).__name__} of the shape and type of the result")
        elif is_torch(t):
            t.detach().copy_(r)
        else:
            t[...] = r
    return cast("Any", out)
