"""Calls of a program with arrays of any kind: found by their shapes, frozen once, then as fast as the launch.

A *route* holds the steps of a call for arrays of certain shapes, types, strides and devices. Most often it is the
frozen program itself. Targets that run as Python, and numba's simulator, take NumPy arrays; others are converted to
these and back. A GPU's kernels take the host's arrays by way of the device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from idgraph.arith import Expr
from idgraph.errors import EmitError
from idgraph.ir import DType
from idgraph.runtime import array_backends as kinds
from idgraph.runtime.array_backends import HOST, NUMPY, ArrayBackend, check_writable
from idgraph.runtime.binding import BoundArray, OutputMemory, copies, mistyped
from idgraph.runtime.call_signature import Whole
from idgraph.runtime.cpu.launch import CpuMachine
from idgraph.runtime.cuda import device_arrays as calls
from idgraph.runtime.cuda.device_arrays import is_device
from idgraph.runtime.cuda.numba_cuda import need_device, simulated
from idgraph.runtime.cuda.simulator import Simulated
from idgraph.runtime.host_launch import HostPrepared
from idgraph.runtime.raw_input import DenseCall, bound_inputs, check_raw, memory_of, other_maps, raw_key
from idgraph.runtime.raw_output import RawOutput
from idgraph.runtime.shape_guards import KEPT, GuardSpec, ResizedCall, ShapeFamily, compile_shape_guards
from idgraph.runtime.shape_specialized import LaunchPlan, PreparedLaunch, ShapeSpecialization, Tell

if TYPE_CHECKING:
    from idgraph.runtime.loaded_program import LoadedKernels

Symbols = Mapping[str, int] | None
ROUTES = 512  # kept for a program; routes of more shapes are found again
_CPU = CpuMachine()
_ON_HOST = {HOST}
_KEYS: dict[type, Callable[[Any], Hashable]] = {}


class CallPath(Protocol):
    """The steps of a call."""

    def __call__(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | None,
        memory: OutputMemory | None,
        tell: Tell | None,
        wait: bool,
    ) -> list[Any]: ...


class Dispatcher:
    """A program's calls. Several threads may call at once."""

    __slots__ = ("_alike", "_routes", "_wholes", "checked", "device", "program")

    def __init__(self, program: LoadedKernels, checked: bool, device: str | None = None) -> None:
        self.program, self.checked, self.device = program, checked, device
        self._routes: dict[Hashable, CallPath] = {}
        self._wholes: dict[Hashable, Whole] = {}  # of frozen calls that give new arrays, without the steps before it
        self._alike: list[ShapeFamily] = []  # calls of other sizes

    def __call__(
        self,
        values: Sequence[Any],
        symbols: Symbols = None,
        out: Sequence[Any] | None = None,
        memory: OutputMemory | None = None,
        tell: Tell | None = None,
        wait: bool = True,
    ) -> list[Any]:
        """Outputs for ``values``, which stand in the order of the fusion's inputs. ``wait`` False: on a device a failed
        check may be raised by a later call; the first call for arrays of a shape waits."""
        strange = None
        try:
            keys: tuple[Any, ...] = tuple([_KEYS[type(v)](v) for v in values])
        except KeyError:
            if any(isinstance(v, RawOutput) for v in values):
                return self._of_raw(values, symbols)(values, out, memory, tell, wait)
            strange = next((v for v in values if hasattr(v, "__array_namespace__") and kind_of(v) is not NUMPY), None)
            values = [self._known(n, v) for n, v in zip(self.program.mold.input_names, values, strict=True)]
            try:
                keys = tuple([(kind_of(v) or NUMPY).key(v) for v in values])
            except RuntimeError:
                keys = tuple([(id(v),) for v in values])
        except RuntimeError:  # a tensor without strides
            keys = tuple([(id(v),) for v in values])
        key: Hashable = (keys, tuple(sorted(symbols.items()))) if symbols else keys
        if out is None and memory is None and strange is None and (whole := self._wholes.get(key)) is not None:
            return whole(values, tell, wait)
        route = self._routes.get(key)
        if route is None:
            route = self._remember(key, self._lookup(keys, values, symbols))
            wait = True
        found = route(values, out, memory, tell, wait)
        return found if strange is None else [_map_memory(x, partial(kinds.given_back, like=strange)) for x in found]

    def _of_raw(self, values: Sequence[Any], symbols: Symbols) -> DirectCall | DenseCall:
        """The route for arguments of which some are raw memory."""
        key = (raw_key(values, lambda v: (kind_of(v) or NUMPY).key(v)), tuple(sorted((symbols or {}).items())))
        found = self._routes.get(key)
        if not isinstance(found, (DirectCall, DenseCall)):
            self._remember(key, found := self._raw_route(values, symbols))
        return found

    def _raw_route(self, values: Sequence[Any], symbols: Symbols) -> DirectCall | DenseCall:
        """Kernels on memory as it lies, where each map is that of the declaration; else on copies of the elements."""
        inputs, target = self.program.fusion.inputs, self.program.target
        check_raw(inputs, values)
        found = {kind_of(v) for v in memory_of(values)}
        kind = next(iter(found))
        passed = any(t in self.program.fusion.outputs for t in inputs)
        if len(found) > 1 or kind is None or passed or target not in ("cpu", "cuda") or simulated():
            return DenseCall(self, symbols)
        given = bound_inputs(inputs, values, kind)
        devices = {g.device for g in given.values()}
        if len(devices) > 1 or (devices == _ON_HOST) != (target == "cpu"):
            return DenseCall(self, symbols)
        machine = _CPU if target == "cpu" else calls.machine_of(kind, next(iter(devices)), True)
        made = ShapeSpecialization(self.program, kind, machine, given, symbols, self.checked)
        why = other_maps(inputs, values, made.env)
        return DenseCall(self, symbols, why) if why else DirectCall(made, raw=True)

    def _lookup(self, keys: Sequence[Any], values: Sequence[Any], symbols: Symbols) -> CallPath:
        """The route for arrays with these keys: of arrays that differ only in sizes, most of it is the same, and so of
        symbols whose values are given."""
        counted = {s: e for s, e in self.program.fusion.symbols.items() if symbols and s in symbols}
        keys = [*keys, *((int, cast("Any", symbols)[s]) for s in counted)]
        for alike in self._alike:
            found = alike(keys)
            if found is not None and (not symbols or symbols.items() <= found.env.items()):
                return found
        route = self.route(values, symbols)
        learns = isinstance(route, DirectCall) and bool(self.program.fusion.symbols)
        if learns and all(alike(keys) is None for alike in self._alike):  # numbers may be known to fit since
            self._learn(cast("DirectCall", route).frozen, keys, [*counted.values()])
        return route

    def _learn(self, frozen: ShapeSpecialization, keys: Sequence[Any], counted: Sequence[Expr]) -> None:
        """Lay out calls of other sizes by what follows from these keys: of arrays, then of ``counted`` symbols."""
        mold = frozen.program.mold
        shapes = [mold.exprs[i.layout.shape] for i in mold.inputs]
        wanted = GuardSpec([*shapes, *counted], range(len(shapes)), frozen.program.fusion.symbols)
        made = compile_shape_guards(frozen, keys, wanted, self.frozen)
        if made is not None:
            self._alike = [made, *self._alike[: KEPT - 1]]

    def _remember(self, key: Hashable, route: CallPath) -> CallPath:
        if len(self._routes) >= ROUTES:
            self.check()  # the failures that routes have seen go with them
            self._routes.clear()
            self._wholes.clear()
        if isinstance(route, DirectCall) and route.frozen.gives_whole:
            self._wholes[key] = route.frozen.whole
        self._routes[key] = route
        return route

    def known(self, values: Sequence[Any], symbols: Symbols = None) -> CallPath | None:
        """The route that a call has found for arrays like these; None where calls look at each array anew."""
        try:
            key: Hashable = tuple([_KEYS[type(v)](v) for v in values])
        except (KeyError, RuntimeError):
            return None
        return self._routes.get((key, tuple(sorted(symbols.items()))) if symbols else key)

    def _known(self, name: str, value: Any) -> Any:
        """The array, or one over its memory, of a type whose keys are known."""
        if type(value) in _KEYS:
            return value
        found = kind_of(value)
        if found is None and hasattr(value, "__dlpack__"):
            return self._known(name, kinds.from_dlpack(name, value))
        if found is None or isinstance(value, np.generic):
            value = NUMPY.declared(name, value).data
            found = NUMPY
        found.declared(name, value)  # raises for a type whose arrays are not their memory: its keys are like plain ones
        if found is not calls.DEVICE_ARRAYS or not hasattr(value, "__array_namespace__"):
            _KEYS[type(value)] = found.key  # others are looked at each time, to give their kind back
        return value

    def frozen(self, values: Sequence[Any], symbols: Symbols = None) -> ShapeSpecialization:
        """The frozen program, where these arrays can be its own; raises `EmitError` elsewhere."""
        found = self.route(values, symbols)
        if isinstance(found, DirectCall):
            return found.frozen
        raise EmitError(f"the {self.program.target} target has no frozen calls for these arrays")

    def check(self, wait: bool = True) -> None:
        """Wait for the work of devices, and raise the first `IndexingError` that calls have left. ``wait`` False: only
        what stands there already."""
        for route in list(self._routes.values()):
            if isinstance(route, (DirectCall, ResizedCall)):
                route.launches.check(wait)

    def copies(self, values: Sequence[Any], symbols: Symbols) -> dict[str, str]:
        """The inputs that a call copies before it reads them, and why."""
        if any(isinstance(v, RawOutput) for v in values):
            raw = self._of_raw(values, symbols)
            return raw.frozen.reasons(memory_of(values)) if isinstance(raw, DirectCall) else dict(raw.why)
        found = self.route(values, symbols)
        if isinstance(found, DirectCall):
            return found.frozen.reasons(values)
        named = {t.name: v for t, v in zip(self.program.fusion.inputs, values, strict=True)}
        if isinstance(found, _Interpreted) and found.kind is NUMPY:
            return copies(self.program.fusion, named, symbols)
        return dict.fromkeys(named, f"the {self.program.target} target takes other arrays")

    def with_static_buffers(
        self, values: Sequence[Any], symbols: Symbols, poison: bool, overlap: bool = True
    ) -> PreparedLaunch:
        """The program with buffers that stay, for launches that are timed; the host's arrays are taken to a device."""
        found = self.route(values, symbols, overlap)
        if isinstance(found, _OnDevice):
            values = found.moved(values)
            found = self.route(values, symbols, overlap)
        if not isinstance(found, DirectCall):
            raise EmitError(f"the {self.program.target} target has no buffers that stay for these arrays")
        return found.frozen.hold(values, poison)

    def route(self, values: Sequence[Any], symbols: Symbols, overlap: bool = True) -> CallPath:
        """The steps of a call with arrays like these."""
        program = self.program
        names = program.mold.input_names
        values = [v if type(v) in _KEYS else self._known(n, v) for n, v in zip(names, values, strict=True)]
        found = [kind_of(v) or NUMPY for v in values]
        kind = next((k for k in found if k is not NUMPY), NUMPY)
        if any(k is not kind for k in found):
            return _MixedArrays(self, symbols, kind)
        given = {n: kind.declared(n, v) for n, v in zip(names, values, strict=True)}
        devices = {g.device for g in given.values()}
        if len(devices) > 1 and _has_lone_numbers(kind, values):
            return _MixedArrays(self, symbols, kind)
        if self.device is not None:
            _check_device(given, self.device)
        on_host = devices <= _ON_HOST
        if program.target in ("python", "numpy") or (program.target == "cuda" and simulated()):
            return _Interpreted(self, symbols, kind)
        if program.target == "cpu":
            if not on_host:
                return _OnHost(self, symbols, kind)
            return DirectCall(ShapeSpecialization(program, kind, _CPU, given, symbols, self.checked))
        need_device()
        if on_host:
            return _OnDevice(self, symbols, kind)
        machine = calls.machine_of(kind, next(iter(given.values())).device, overlap)
        return DirectCall(ShapeSpecialization(program, kind, machine, given, symbols, self.checked))


def kind_of(value: Any) -> ArrayBackend | None:
    """The kind of an array; None for any other object."""
    if isinstance(value, np.ndarray):
        return NUMPY
    if kinds.is_tensor(cast("Any", type(value))):
        return kinds.torch_kind()
    return calls.DEVICE_ARRAYS if is_device(value) else None


def _has_lone_numbers(kind: ArrayBackend, values: Sequence[Any]) -> bool:
    """Whether a host tensor without axes is among tensors of a device: torch treats it as a number."""
    if kind is NUMPY or not isinstance(kind, kinds.Torch):
        return False
    on_host = [v.device.type == "cpu" for v in values]
    return any(on_host) and not all(on_host) and all(v.ndim == 0 for v, h in zip(values, on_host, strict=True) if h)


def _check_device(given: Mapping[str, BoundArray], device: str) -> None:
    for name, g in given.items():
        if g.device not in (device, HOST):
            raise EmitError(
                f"input {name} is on {g.device}, the kernels are for {device}", hint=f"{name}.to({device!r})"
            )


@dataclass(slots=True, eq=False)
class DirectCall:
    """The frozen program itself, for arrays that its kernels take; ``raw``: some are given as their memory."""

    frozen: ShapeSpecialization
    raw: bool = False

    @property
    def launches(self) -> LaunchPlan:
        """The kernels."""
        return self.frozen.launches

    @property
    def like(self) -> ShapeSpecialization:
        """The frozen program that calls of other sizes are like."""
        return self.frozen

    @property
    def more(self) -> None:
        """See `Resized`: of the sizes that calls were bound for."""
        return None

    def run_all(self, values: Sequence[Any], tell: Tell | None, wait: bool) -> list[Any]:
        """See `Frozen.whole`."""
        return self.frozen.whole(values, tell, wait)

    @property
    def whole_shapes(self) -> list[tuple[int, ...]] | None:
        """The shapes of the memory that calls make for outputs; None where `run_all` does not serve."""
        return [m.shape for m in self.frozen.made if m.shape is not None] if self.frozen.gives_whole else None

    def __call__(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | None,
        memory: OutputMemory | None,
        tell: Tell | None,
        wait: bool,
    ) -> list[Any]:
        return self.frozen(memory_of(values) if self.raw else values, out, memory, tell, wait)


def _map_memory(result: Any, turned: Callable[[Any], Any]) -> Any:
    """A result, or the memory of one, turned into another kind of array."""
    return result.with_buffer(turned(result.buffer)) if isinstance(result, RawOutput) else turned(result)


@dataclass(frozen=True, slots=True)
class ConvertedCall:
    """Arrays turned into others, for the route of those; results turned back."""

    caller: Dispatcher
    symbols: Symbols
    kind: ArrayBackend

    def __call__(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | None,
        memory: OutputMemory | None,
        tell: Tell | None,
        wait: bool,
    ) -> list[Any]:
        results = self.run(self.moved(values), memory, tell)
        found = [
            _map_memory(r, partial(self.back, dtype=t.dtype, values=values))
            for r, t in zip(results, self.caller.program.fusion.outputs, strict=True)
        ]
        if out is None:
            return found
        if len(out) != len(found):
            raise EmitError(f"{self.caller.program.fusion.name} has {len(found)} outputs, out has {len(out)}")
        kind = next((kind_of(x) for x in out if x is not None), None)
        _check_no_overlap([t.name for t in self.caller.program.fusion.outputs], out, kind)
        for target, result in zip(out, found, strict=True):
            if target is None:
                continue
            if kind is None or kind_of(target) is not kind:
                raise EmitError("out= has other kinds of arrays than the inputs")
            if tuple(target.shape) != tuple(result.shape) or target.dtype != result.dtype:
                raise EmitError(
                    f"an array of out= is {target.dtype}{tuple(target.shape)}, "
                    f"the result {result.dtype}{tuple(result.shape)}"
                )
            there, here = (kind.declared("out", x).device for x in (target, result))
            if there != here:
                raise EmitError(f"an array of out= is on {there}, the result on {here}", hint="give memory there")
            kind.assign(target, result)
        return [result if target is None else target for target, result in zip(out, found, strict=True)]

    def moved(self, values: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for v, t in zip(values, self.caller.program.fusion.inputs, strict=True):
            kind = kind_of(v) or NUMPY
            g = kind.declared(t.name, v)  # raises for a tensor without memory, which has the key of one that has it
            if isinstance(kind, kinds.Torch) and g.dtype != t.dtype:
                raise mistyped(t, g)  # NumPy has no words for some of torch's types
            found.append(self.there(v, t.dtype, values))
        return found

    def run(self, values: list[Any], memory: OutputMemory | None, tell: Tell | None) -> list[Any]:
        return self.caller(values, self.symbols, None, memory, tell)

    def there(self, value: Any, dtype: DType, values: Sequence[Any]) -> Any:
        """One of the ``values``, turned."""
        raise NotImplementedError

    def back(self, result: Any, dtype: DType, values: Sequence[Any]) -> Any:
        raise NotImplementedError


def _check_no_overlap(names: Sequence[str], out: Sequence[Any], kind: ArrayBackend | None) -> None:
    """Raise where an array of ``out`` cannot be written, or two of them share memory."""
    if kind is None or any(x is not None and kind_of(x) is not kind for x in out):
        return  # refused by the caller, which names the kind
    spans: list[tuple[int, int]] = []
    for name, x in zip(names, out, strict=False):
        if x is not None:
            check_writable(kind, name, x)
            low, high = (kind.address(x) + n for n in kind.placing(x).span)
            if any(low < end and first < high for first, end in spans):
                raise EmitError(f"out of {name} shares memory with another array of out", hint="give memory of its own")
            spans.append((low, high))


def as_numpy(value: Any, dtype: DType) -> Any:
    """Any kind of array as NumPy's; a copy of what is on a device, whose 16-bit words may be of ``dtype`` bfloat16."""
    kind = kind_of(value)
    if isinstance(kind, kinds.Torch):
        return kind.numpy(value)
    return value if kind is NUMPY else _words(calls.on_host(value), dtype)


def _words(array: Any, dtype: DType) -> Any:
    words = dtype == "bfloat16" and array.dtype.str in ("<u2", "|V2")
    return array.view(kinds.numpy_type(dtype)) if words else array


def _like(result: Any, kind: ArrayBackend, values: Sequence[Any]) -> Any:
    """NumPy's array as the kind and on the device of these."""
    if isinstance(kind, kinds.Torch):
        made = kind.tensor(result)
        device = next(v.device for v in values if kind_of(v) is kind)
        return made if device.type == "cpu" else made.to(device)
    return result if kind is NUMPY else calls.on_device(result, _device_of(values))


def _device_of(values: Sequence[Any]) -> str:
    """The device of the first device array."""
    first = next(v for v in values if kind_of(v) is calls.DEVICE_ARRAYS)
    return calls.device_of(first.__cuda_array_interface__)


class _MixedArrays(ConvertedCall):
    """Arrays of several kinds: all as the first which is not NumPy's; lone numbers on the device of the rest."""

    def run(self, values: list[Any], memory: OutputMemory | None, tell: Tell | None) -> list[Any]:
        if isinstance(self.kind, kinds.Torch):
            device = next((v.device for v in values if v.device.type != "cpu"), None)
            if device is not None:
                values = [v.to(device) if v.ndim == 0 else v for v in values]
        return self.caller(values, self.symbols, None, memory, tell)

    def there(self, value: Any, dtype: DType, values: Sequence[Any]) -> Any:
        kind = kind_of(value)
        if kind is self.kind:
            return value
        if isinstance(self.kind, kinds.Torch):
            return (
                self.kind.tensor(value)
                if kind is NUMPY
                else self.kind.torch.as_tensor(value, device=_device_of([value]))
            )
        return calls.on_device(value, _device_of(values))

    def back(self, result: Any, dtype: DType, values: Sequence[Any]) -> Any:
        return result


class _OnHost(ConvertedCall):
    """A device's arrays for kernels of the host."""

    def there(self, value: Any, dtype: DType, values: Sequence[Any]) -> Any:
        return as_numpy(value, dtype)

    def back(self, result: Any, dtype: DType, values: Sequence[Any]) -> Any:
        return _like(result, self.kind, values)


class _Interpreted(_OnHost):
    """NumPy's arrays, for targets that run as Python, and for the simulator."""

    def run(self, values: list[Any], memory: OutputMemory | None, tell: Tell | None) -> list[Any]:
        program = self.caller.program
        named = {t.name: v for t, v in zip(program.fusion.inputs, values, strict=True)}
        kind = Simulated if program.target == "cuda" else HostPrepared
        ready = kind(program, named, self.symbols, self.caller.checked, memory)
        ready.launch()
        found = ready.results(memory is not None and memory.raw)
        return [found[t.name] for t in program.fusion.outputs]


class _OnDevice(ConvertedCall):
    """The host's arrays for kernels of a device."""

    def run(self, values: list[Any], memory: OutputMemory | None, tell: Tell | None) -> list[Any]:
        caller = self.caller
        if values:
            return caller(values, self.symbols, None, memory, tell)
        device = caller.device or calls.current()
        machine = calls.machine_of(calls.DEVICE_ARRAYS, device)
        frozen = ShapeSpecialization(
            caller.program, calls.DEVICE_ARRAYS, machine, {}, self.symbols, caller.checked, device
        )
        return frozen((), None, memory)

    def there(self, value: Any, dtype: DType, values: Sequence[Any]) -> Any:
        return calls.on_device(as_numpy(value, dtype), self.caller.device)

    def back(self, result: Any, dtype: DType, values: Sequence[Any]) -> Any:
        return _like(_words(calls.on_host(result), dtype), self.kind, values)
