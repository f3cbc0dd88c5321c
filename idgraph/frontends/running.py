"""Running an imported program: its segments through kernels, opaque operations by torch, on the caller's own arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from idgraph.frontends.bound import KEYS, CallPlan, Env, FastCall, FastPathTemplate, key_of
from idgraph.frontends.call_source import Wrapper
from idgraph.frontends.imported import Imported
from idgraph.frontends.kept import CompileOptions, Session
from idgraph.runtime.caller import ROUTES
from idgraph.runtime.program import Program
from idgraph.runtime.resized import KEPT, ResizedCall, ShapeFamily


class Runner(Session):
    """An import's calls in one way. A call with arguments of other shapes, types or devices is bound once (`Bound`)."""

    def __init__(self, imported: Imported, how: CompileOptions) -> None:
        super().__init__(imported, how)
        self._known: dict[Hashable, CallPlan] = {}
        self.shorts: dict[Hashable, FastCall | None] = {}  # the rest of a call by its key; None where more is done
        self._alike: list[
            tuple[ShapeFamily, FastPathTemplate, Callable[[ResizedCall], FastCall]]
        ] = []  # calls of other sizes
        self._parts: list[tuple[Callable[[Any], Env | None], CallPlan]] = []  # those that are not short
        self._last: Wrapper | None = None  # of graphs of torch's, whose guards have seen types and devices

    def __call__(
        self, flat: Sequence[object], out: Sequence[Any] | None = None, key: tuple[Any, ...] | None = None
    ) -> list[Any]:
        """Results, those of mutated arguments first. Kernels write into arrays of ``out``, one for each other result,
        where these lie as the kernels write them; the result is the array then. ``key``: that of ``flat``."""
        given: Sequence[Any] = (*flat, *self.imported.bound.values()) if self.imported.bound else flat
        if key is None or given is not flat:
            try:
                key = tuple([KEYS[type(v)](v) for v in given])
            except (KeyError, RuntimeError):  # a tensor without strides, say
                key = key_of(given)
        if key is not None:
            short = self.shorts.get(key)
            first = short is None and key not in self.shorts
            if first and self._alike:
                short = self._resized(key)
            found = None if short is None else short(given, out, first)
            if found is not None:
                return found
            if short is not None:
                del self.shorts[key]  # the kernels have changed
        return self._whole(key, flat, given, out)

    def boxed(self, args: list[Any]) -> list[Any]:
        """The same for a graph of torch's; ``args`` is emptied, and what only it holds is freed after its last use."""
        wrapper = self._last
        if wrapper is not None:
            args.extend(self.imported.bound.values())
            if wrapper.fits(args):
                return wrapper(args, self._tell, self.how.checked == "now")
            del args[len(args) - len(self.imported.bound) :]
        given = tuple(args)
        args.clear()
        return self(given)

    def _whole(
        self, key: tuple[Any, ...] | None, flat: Sequence[object], given: Sequence[Any], out: Sequence[Any] | None
    ) -> list[Any]:
        """A call that does all that there is to do."""
        bound = None if key is None else self._known.get(key)
        # Of programs with dynamic sizes, a size that comes once is not worth a function of its own.
        writes = out is None and key is not None and key not in self.shorts
        writes = writes and (bound is not None or not self.program.sizes.symbols)
        if bound is None:
            bound = self._bound(key, flat)
            if key is not None:
                if len(self._known) >= ROUTES:
                    self._known.clear()
                self._known[key] = bound
        found, wrapper = bound.written(given) if writes else (bound(given, out), None)
        if key is not None and key not in self.shorts:
            self._remember(key, bound, given, wrapper, writes)
        return found

    def _bound(self, key: tuple[Any, ...] | None, flat: Sequence[object]) -> CallPlan:
        """The call of these arguments; like others of other sizes where there are some."""
        for symbols, like in self._parts if key is not None else ():
            env = symbols(key)
            if env is not None:
                return like.resized(env)
        bound = CallPlan(self, flat)
        symbols = None if key is None else bound.learned(key)
        if symbols is not None:
            self._parts = [(symbols, bound), *self._parts[: KEPT - 1]]
        return bound

    def _remember(
        self, key: tuple[Any, ...], bound: CallPlan, given: Sequence[Any], wrapper: Wrapper | None, writes: bool
    ) -> None:
        """Keep the shortest call for arguments with this key, or that there is none."""
        likeness = None if self.imported.bound else bound.likeness(given)
        if wrapper is not None:
            self.imported.wrapper = wrapper.text
            self._last = wrapper if self.how.trusting else None
        if likeness is None:
            if writes:
                self._keep(key, None if wrapper is None else self._straight(bound, wrapper))
            return
        made = likeness.kernels.short(likeness)
        self._keep(key, made(likeness.route))
        known = any(a(key) is not None for a, other, _ in self._alike if other.kernels.is_current())
        alike = None if known else likeness.kernels.alike(likeness, key)
        if alike is not None:
            self._alike = [(alike, likeness, made), *self._alike[: KEPT - 1]]

    @property
    def _tell(self) -> Callable[[str, str], None] | None:
        return None if self.how.layout is None else self.tell

    def _straight(self, bound: CallPlan, wrapper: Wrapper) -> FastCall:
        """The call by the function that is written for it."""
        versions, tell, now = bound.versions(), self._tell, self.how.checked == "now"

        def call(given: Sequence[Any], out: Sequence[Any] | None = None, first: bool = False) -> list[Any] | None:
            if bound.versions() != versions:
                return None
            return bound(given, out) if out is not None else wrapper(list(given), tell, now or first)

        return call

    def _resized(self, key: tuple[Any, ...]) -> FastCall | None:
        """The call for arguments of sizes that none has had, where others like them have a short one."""
        for alike, likeness, made in self._alike:
            found = alike(key) if likeness.kernels.is_current() else None
            if found is not None:
                short = made(found)
                self._keep(key, short)
                return short
        return None

    def _keep(self, key: Hashable, short: FastCall | None) -> None:
        if len(self.shorts) >= ROUTES:
            self.shorts.clear()
        self.shorts[key] = short

    def prepare(self) -> None:
        """Emit all kernels before the first call, so that their errors come now."""
        for number, segment in enumerate(self.imported.segments):
            if segment.scheduled is not None and segment.outputs:
                self.kernels(number, segment.scheduled, segment, {}, {})

    def check(self) -> None:
        """Wait for the work of devices, and raise the first `IndexingError` that calls have left."""
        for program in [k for k in self.imported.kernels.values() if isinstance(k, Program)]:
            program.caller(bool(self.how.checked), self.how.device).check()
