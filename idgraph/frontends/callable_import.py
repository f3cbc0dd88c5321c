"""An import as a callable, in one way: arguments flattened as the program takes them, results packed as it gives them.

How arguments are nested is found out once for arrays in the same places. Segments run through kernels, opaque
operations by torch, on the caller's own arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from time import perf_counter
from typing import Any, cast

import numpy as np

from idgraph.errors import FrontendError
from idgraph.frontends.call_plan import KEYS, CallPlan, Env, FastCall, FastPathTemplate, key_of
from idgraph.frontends.call_source import Wrapper
from idgraph.frontends.graph import short
from idgraph.frontends.imported import Imported
from idgraph.frontends.session import CompileOptions, Session
from idgraph.frontends.torch_arrays import is_torch
from idgraph.runtime.cpu import compiler as cpu_entry
from idgraph.runtime.cuda.compiler import submit as cuda_submit
from idgraph.runtime.dispatch import ROUTES
from idgraph.runtime.loaded_program import LoadedKernels
from idgraph.runtime.program import Program
from idgraph.runtime.shape_guards import KEPT, ResizedCall, ShapeFamily


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
        self._counted: tuple[Any, ...] | None = None  # the key of the last such call without its counters
        self._last: Wrapper | None = None  # of graphs of torch's, whose guards have seen types and devices

    def __call__(
        self, flat: Sequence[object], out: Sequence[Any] | None = None, key: tuple[Any, ...] | None = None
    ) -> list[Any]:
        """Results, those of mutated arguments first. Kernels write into arrays of ``out``, one for each other result,
        where these lie as the kernels write them; the result is the array then. ``key``: that of ``flat``."""
        given: Sequence[Any] = (*flat, *self.imported.bound.values()) if self.imported.bound else flat
        if self.program.mutated and not self.how.trusting:
            self.check_written(flat)
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
        return self._run_all(key, flat, given, out)

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

    def _run_all(
        self, key: tuple[Any, ...] | None, flat: Sequence[object], given: Sequence[Any], out: Sequence[Any] | None
    ) -> list[Any]:
        """A call that does all that there is to do."""
        bound = None if key is None else self._known.get(key)
        # Of programs with dynamic sizes, a size that comes once is not worth a function of its own.
        writes = out is None and key is not None and key not in self.shorts
        writes = writes and (bound is not None or not self.program.sizes.symbols or self._counts_on(key))
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

    def _counts_on(self, key: tuple[Any, ...] | None) -> bool:
        """Whether graphs of torch's were called with a key that differs in counters only: one function serves all."""
        if not self.program.counters or not self.how.trusting or key is None:
            return False
        counters = {self.names.index(n) for n in self.program.counters.values()}
        before, self._counted = self._counted, tuple([k for n, k in enumerate(key) if n not in counters])
        return before == self._counted

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
            self.imported.written[self.how.target] = wrapper.text
            self._last = wrapper if self.how.trusting else None
        if likeness is None:
            if writes:
                self._keep(key, None if wrapper is None else self._straight(bound, wrapper))
            return
        made = likeness.kernels.short(likeness)
        self._keep(key, made(likeness.route))
        known = any(a(key) is not None for a, other, _ in self._alike if other.kernels.is_current())
        alike = None if known else likeness.kernels.family_of(likeness, key)
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
        """Emit all kernels before the first call, so that their errors come now; processes compile them meanwhile."""
        self.submit()
        found: list[Program] = []
        for number, segment in enumerate(self.imported.segments):
            if segment.scheduled is not None and segment.outputs:
                kernels = self.kernels(number, segment.scheduled, segment, {}, {})
                if isinstance(kernels, Program) and kernels not in found:
                    found.append(kernels)
                    start_compiling(kernels, bool(self.how.checked))
        began = perf_counter()
        share_compiling(found, bool(self.how.checked))
        self.imported.stages.add("compile", perf_counter() - began)

    def check(self, wait: bool = True) -> None:
        """Wait for the work of devices, and raise the first `IndexingError` that calls have left. ``wait`` False: only
        what stands there already."""
        for program in [k for k in self.imported.kernels.values() if isinstance(k, Program)]:
            program.caller(bool(self.how.checked), self.how.device).check(wait)


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

    def __repr__(self) -> str:
        return f"CompiledImport({self._imported.program.name!r}, {self.runner.how.target!r})"

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
                straight = key is not None and out is None and not self._imported.program.mutated
                short = self.runner.shorts.get(key) if straight else None
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
            self._packed = "one", _single_result
        elif type(shown) is tuple and _same_objects(cast("tuple[Any, ...]", shown), marks):
            self._packed = "tuple", tuple
        else:
            self._packed = "nested", unflatten
        return self._packed


def _single_result(found: list[Any]) -> Any:
    return found[0]


def _same_objects(found: Sequence[Any], marks: Sequence[Any]) -> bool:
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


def start_compiling(program: LoadedKernels, checked: bool) -> None:
    """Have other processes compile the kernels, for the device there is, while this one emits others."""
    match program.target:
        case "cpu":
            cpu_entry.submit(program, _lazy(program, checked), checked)
        case "cuda":
            cuda_submit(program, checked)
        case _:
            pass


def share_compiling(programs: Sequence[LoadedKernels], checked: bool) -> None:
    """Compile kernels here, beside the other processes, until all have been begun with."""
    cpu_entry.share_waiting([k for p in programs if p.target == "cpu" for k in _lazy(p, checked)])


def _lazy(program: LoadedKernels, checked: bool) -> list[cpu_entry.LazyKernel]:
    return [k for k in program.functions(checked).values() if isinstance(k, cpu_entry.LazyKernel)]
