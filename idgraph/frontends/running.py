"""Running an imported program: its segments through kernels, opaque operations by torch, on the caller's own arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from idgraph.frontends.alike import Alike, alike_of
from idgraph.frontends.bound import KEYS, Bound, Short, key_of
from idgraph.frontends.imported import Imported
from idgraph.frontends.kept import How, Kept
from idgraph.runtime.caller import ROUTES
from idgraph.runtime.program import Program


class Runner(Kept):
    """An import's calls in one way. A call with arguments of other shapes, types or devices is bound once (`Bound`)."""

    def __init__(self, imported: Imported, how: How) -> None:
        super().__init__(imported, how)
        self._known: dict[Hashable, Bound] = {}

    def __call__(self, flat: Sequence[object], out: Sequence[Any] | None = None) -> list[Any]:
        """Results, those of mutated arguments first. Kernels write into arrays of ``out``, one for each other result,
        where these lie as the kernels write them; the result is the array then."""
        given = (*flat, *self.imported.bound.values()) if self.imported.bound else flat
        try:
            key: Hashable = tuple([KEYS[type(v)](v) for v in given])
            bound = self._known.get(key)
        except (KeyError, RuntimeError):  # a tensor without strides, say
            key, bound = key_of(given), None
        if bound is None:
            bound = Bound(self, flat)
            if key is not None:
                if len(self._known) >= ROUTES:
                    self._known.clear()
                self._known[key] = bound
        return bound(given, out)

    def short(self, flat: Sequence[object]) -> Short | None:
        """The shortest call for arguments like these, which have been given once: see `Bound.short`. None for an import
        with arrays of its own, which may change between calls."""
        bound = None if self.imported.bound else self._known.get(key_of(flat))
        return None if bound is None else bound.short()

    def alike(self, flat: Sequence[object]) -> Alike | None:
        """Short calls for arguments that differ in sizes from these, which have a short call: see
        `idgraph.frontends.alike`."""
        bound = self._known.get(key_of(flat))
        likeness = None if bound is None else bound.likeness()
        return None if likeness is None else alike_of(self.program, likeness)

    def prepare(self) -> None:
        """Emit all kernels before the first call, so that their errors come now."""
        for number, segment in enumerate(self.imported.segments):
            if segment.scheduled is not None and segment.outputs:
                self.kernels(number, segment.scheduled, segment, {}, {})

    def check(self) -> None:
        """Wait for the work of devices, and raise the first `IndexingError` that calls have left."""
        for program in [k for k in self.imported.kernels.values() if isinstance(k, Program)]:
            program.caller(bool(self.how.checked), self.how.device).check()
