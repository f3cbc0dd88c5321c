"""The cost of a program as it is emitted: bytes, sectors, arithmetic, atomics and time of each access and kernel.

sites (walk the kernels) -> points (count) -> traffic (sectors, distinct elements) -> cache -> estimate -> `Cost`.
Importing this package is light; NumPy is loaded with the first cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast

from idgraph.errors import IdGraphError, arguments, no_attribute, short_repr, user_line
from idgraph.ir.device import Device, current_device, device_of, devices, use_device
from idgraph.loading import LOADING, load

if TYPE_CHECKING:
    from idgraph.cost.report import AccessCost, Cost, KernelCost, TensorCost, TotalCost
    from idgraph.runtime.program import Program

__all__ = [
    "AccessCost", "Cost", "Device", "KernelCost", "TensorCost", "TotalCost", "cost", "devices", "measure_device",
    "use_device",
]  # fmt: skip

_LATER = {
    "AccessCost": "report", "Cost": "report", "KernelCost": "report", "TensorCost": "report",
    "TotalCost": "report",
}  # fmt: skip
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class _WithDevices(Protocol[P, R_co]):
    """A function that carries the devices with it: ``ig.cost(...)``, ``ig.cost.devices``."""

    devices: dict[str, Device]
    measure_device: Callable[..., Device]
    use_device: Callable[[Device | str], AbstractContextManager[Device]]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


@arguments(IdGraphError, first=True)
def measure_device(kind: Literal["cpu", "cuda"] = "cpu", *, name: str | None = None, size: int = 1 << 24) -> Device:
    """The device of this machine, with rates that programs of idgraph reach on it; takes half a minute.

    Each rate is the best of several rounds over arrays of ``size`` elements, so other work on the machine makes it too
    low, never too high. Limits of a multiprocessor and the size of the cache come from the driver, or from the system.
    Raises `IdGraphError` where there is no such device, or a size is less than 16384.

    >>> import idgraph as ig
    >>> ig.cost.measure_device("cpu", size=1)
    Traceback (most recent call last):
    idgraph.errors.IdGraphError: measure_device: size is 1
      at ...
      hint: from 16384 to 1073741824 elements
    """
    with LOADING:
        from idgraph.cost.calibrate import measured  # noqa: PLC0415 - loads NumPy and the targets

    return measured(kind, name, size)


def _with_devices(function: Callable[P, R_co]) -> _WithDevices[P, R_co]:
    made = cast("Any", function)
    made.devices, made.measure_device, made.use_device = devices, measure_device, use_device
    return made


@_with_devices
@arguments(IdGraphError)
def cost(
    program: Program,
    device: Device | str | None = None,
    *,
    symbols: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    assemble: bool = False,
    warm: bool = True,
) -> Cost:
    """The cost of the kernels of ``program`` on ``device``, counted from their statements and not from operations.

    ``device`` is a `Device` or a name in ``ig.cost.devices`` (default: the one in force, see `use_device`).
    ``symbols`` gives numbers to symbolic extents. ``inputs`` may hold arrays of indices, by input name: then gathers
    and atomics are counted where they really go; without them loaded indices count as all different. ``assemble``
    asks ``ptxas`` for registers and spills now, and not when they are first read. ``warm``: the caches hold what the
    program's last run left in them, as where it runs again and again; False: they are empty. Only time depends on it.

    Kernels count one by one: a tensor that two kernels read is read twice. Values in registers and private arrays are
    not memory. Raises `IdGraphError` for a device that is not known or a symbol without a number.

    >>> import idgraph as ig
    >>> f = ig.Fusion("sums")
    >>> x = f.input("x", (1024, 1024))
    >>> a, b = f.output(ig.sum(x, 0)), f.output(ig.sum(x, 1))
    >>> k = ig.cost(ig.emit(f, "python"), "H200")
    >>> len(k.kernels), k.total.bytes_read  # each of two kernels reads 4 MiB
    (2, 8388608)
    """
    with LOADING:
        from idgraph.cost.model import program_cost  # noqa: PLC0415 - loads NumPy
        from idgraph.runtime.program import Program as Emitted  # noqa: PLC0415 - there are other Programs

    if not isinstance(program, Emitted):  # pyright: ignore[reportUnnecessaryIsInstance] - users are not type checkers
        raise IdGraphError(
            f"cost: program is {short_repr(program)}, a {type(program).__name__}",
            where=user_line(),
            hint="ig.cost(ig.emit(fusion, target))",
        )
    if device is not None and not isinstance(device, Device | str):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
        raise IdGraphError(f"cost: device is {short_repr(device)}", hint="a name, or a Device")
    chosen = device_of(device) if device is not None else current_device("cuda" if program.target == "cuda" else "cpu")
    return program_cost(program, chosen, _mapping("symbols", symbols), _mapping("inputs", inputs), assemble, warm)


def _mapping(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(k, str) for k in given):  # pyright: ignore[reportUnnecessaryIsInstance] - users are not type checkers
        raise IdGraphError(f"cost: {name} is {short_repr(given)}", hint=f"{name}: a mapping from names")
    return dict(given)


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise no_attribute(sys.modules[__name__], name)
    return getattr(load(f"{__name__}.{_LATER[name]}"), name)


class _CostModule(ModuleType):
    """The module ``ig.cost`` as a function that can be called."""

    __call__ = staticmethod(cost)


sys.modules[__name__].__class__ = _CostModule
