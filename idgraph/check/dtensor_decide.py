"""Each operation of a function on DTensors: local, communication, or wrong, decided on simulated devices.

An operation is run as DTensor runs it, on all devices, and once without devices on the same whole operands. What a
device has is compared with the elements that the placement of the result says are there.

DTensor without processes: all devices of a mesh in this one, as torch's own LocalTensorMode simulates them.

DTensor propagates shardings and redistributes as it does on real devices; what each device has is read off afterwards.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from threading import RLock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from idgraph.check.dtensor_form import DeviceElement, DTensorRow
from idgraph.check.program import CheckError
from idgraph.errors import SourceLine, short_repr
from idgraph.ir.mesh import Mesh

_ONE_AT_A_TIME: Final = RLock()  # torch has one default process group in a process
MAX_DEVICES: Final = 64
Table = npt.NDArray[np.int64]


@contextlib.contextmanager
def devices(mesh: Mesh) -> Generator[Any]:
    """Within, torch has that many devices; gives the DeviceMesh."""
    try:
        import torch.distributed as dist
        from torch.distributed._local_tensor import LocalTensorMode
        from torch.distributed.device_mesh import init_device_mesh
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise CheckError(f"check.dtensor needs torch with LocalTensorMode: {error}", hint="torch 2.13 has it") from None
    if mesh.size > MAX_DEVICES:
        raise CheckError(f"{mesh} has {mesh.size} devices", hint=f"at most {MAX_DEVICES} are simulated")
    with _ONE_AT_A_TIME, _quiet():
        if dist.is_initialized():
            raise CheckError(
                "this process has a process group of its own already",
                hint="check in another process (idgraph check --dtensor FILE.py), or before init_process_group",
            )
        dist.init_process_group("fake", rank=0, world_size=mesh.size, store=FakeStore())
        try:
            with LocalTensorMode(mesh.size):
                sizes = tuple(n for _, n in mesh.axes)
                yield init_device_mesh("cpu", sizes, mesh_dim_names=tuple(name for name, _ in mesh.axes))
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Advice of torch about the number of its collectives is not for whoever simulates them."""
    known = logging.getLogger("torch.distributed.tensor")
    before = known.level
    known.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="DTensor random operators may not")
            yield
    finally:
        known.setLevel(before)


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """Within, torch's tensors are those of one process."""
    from torch.utils import _python_dispatch

    return getattr(_python_dispatch, "_disable_current_modes")()  # noqa: B009 - torch has no public name for it


def numpy_of(tensor: Any) -> npt.NDArray[Any]:
    """The values as NumPy has them: 16-bit floats as float32."""
    import torch

    plain = tensor.detach()
    if plain.dtype in (torch.bfloat16, torch.float16):
        plain = plain.float()
    return plain.resolve_conj().resolve_neg().contiguous().numpy()


def by_rank(value: Any, ranks: int) -> list[npt.NDArray[Any]]:
    """The parts of a DTensor, device by device, or a tensor that all have. Rows that a sharded embedding looked up for
    another device's indices are zeros: what that placement adds up."""
    found = [x.copy() for x in _local_arrays(getattr(value, "_local_tensor", value), ranks)]
    for p in getattr(value, "placements", ()):
        mask = _mask_of(p)
        if mask is not None:
            for part, out in zip(found, _local_arrays(mask, ranks), strict=True):
                part[out] = 0
    return found


def _local_arrays(local: Any, ranks: int) -> list[npt.NDArray[Any]]:
    parts = getattr(local, "_local_tensors", None)
    return [numpy_of(local)] * ranks if parts is None else [numpy_of(parts[r]) for r in range(ranks)]


def _mask_of(placement: Any) -> Any:
    """The mask of torch's placement of sharded embeddings: which rows of each device count for nothing."""
    return getattr(getattr(placement, "mask_buffer", None), "data", None)


def unknown_reduction(placements: Sequence[Any]) -> str | None:
    """A placement of partial results whose reduction nothing here knows, as torch prints it."""
    for p in placements:
        kind = type(p).__name__
        known = kind in ("Partial", "_NormPartial") or (kind == "_MaskPartial" and _mask_of(p) is not None)
        if p.is_partial() and not known:
            return str(p)
    return None


def chunks(shape: Sequence[int], placements: Sequence[Any], mesh: Mesh) -> list[Table] | None:
    """The numbers of the elements on each device, by the definition of ``Shard``: torch.chunk of what is there; None
    where another kind of placement is among them."""
    if not all(p.is_replicate() or p.is_partial() or type(p).__name__ == "Shard" for p in placements):
        return None
    found: list[Table] = []
    for at in product(*(range(n) for _, n in mesh.axes)):
        ids = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        for p, r, (_, n) in zip(placements, at, mesh.axes, strict=True):
            if type(p).__name__ == "Shard":
                block = -(-ids.shape[p.dim] // n)
                ids = ids[(slice(None),) * p.dim + (slice(r * block, (r + 1) * block),)]
        found.append(ids)
    return found


def elements(shape: Sequence[int], placements: Sequence[Any], mesh: Mesh) -> list[Table]:
    """The numbers of the elements that each device has, in its order; placements that are not torch.chunk's split as
    they themselves say (torch's own splitting of a tensor, one mesh axis after the other)."""
    known = chunks(shape, placements, mesh)
    if known is not None:
        return known
    import torch

    found: list[Table] = []
    with without_modes():
        for at in product(*(range(n) for _, n in mesh.axes)):
            ids = torch.arange(int(np.prod(shape)), dtype=torch.int64).reshape(tuple(shape))
            for p, r, (_, n) in zip(placements, at, mesh.axes, strict=True):
                if hasattr(p, "dim"):
                    ids = p._split_tensor(ids, n, with_padding=False, contiguous=True)[0][r]
            found.append(ids.numpy())
    return found


def assembled(
    locals_: Sequence[npt.NDArray[Any]],
    ids: Sequence[Table],
    shape: Sequence[int],
    placements: Sequence[Any],
    mesh: Mesh,
) -> npt.NDArray[Any]:
    """The whole tensor of what the devices have, where the placements say that it lies; partial results are reduced."""
    parts = partial_axes(placements, mesh)
    if parts:
        locals_ = reduced(locals_, parts, mesh)
    whole = np.zeros(int(np.prod(shape)), locals_[0].dtype)
    for local, mine in zip(locals_, ids, strict=True):
        if local.shape == mine.shape:
            whole[mine.ravel()] = local.ravel()
    return whole.reshape(tuple(shape))


def partial_axes(placements: Sequence[Any], mesh: Mesh) -> dict[str, str]:
    """The reduction along each mesh axis over which a tensor is partial; "norm 2.0" where parts are 2-norms."""
    return {name: _reduction(p) for p, (name, _) in zip(placements, mesh.axes, strict=True) if p.is_partial()}


def _reduction(placement: Any) -> str:
    power = getattr(placement, "norm_type", None)
    return str(placement.reduce_op) if power is None else f"norm {float(power)}"


def reduced(locals_: Sequence[npt.NDArray[Any]], parts: Mapping[str, str], mesh: Mesh) -> list[npt.NDArray[Any]]:
    """The parts that each device would have if partial results along these mesh axes were reduced."""
    found: list[npt.NDArray[Any]] = []
    power = next((float(op.removeprefix("norm ")) for op in parts.values() if op.startswith("norm ")), None)
    if power is not None:  # the p-norm of p-norms: the sum of their powers, and its root
        locals_ = [np.abs(x) ** power for x in locals_]
    for rank in mesh.ranks:
        at = mesh.coordinates(rank)
        value = None
        for other in mesh.ranks:
            theirs = mesh.coordinates(other)
            if all(theirs[m] == at[m] for m in at if m not in parts):
                value = (
                    locals_[other] if value is None else _combine_partials(value, locals_[other], set(parts.values()))
                )
        assert value is not None  # a device is in its own group
        if "avg" in parts.values():
            value = value / np.prod([mesh.sizes[m] for m, op in parts.items() if op == "avg"])
        found.append(value if power is None else value ** (1 / power))
    return found


def _combine_partials(a: npt.NDArray[Any], b: npt.NDArray[Any], ops: set[str]) -> npt.NDArray[Any]:
    if len(ops) != 1:
        raise CheckError(f"partial results of several kinds at once: {', '.join(sorted(ops))}")
    match next(iter(ops)):
        case "max":
            return np.maximum(a, b)
        case "min":
            return np.minimum(a, b)
        case "product":
            return a * b
        case _:
            return a + b


MAX_ELEMENTS = 1 << 22


@dataclass(slots=True)
class Traced:
    """The rows that are made while a function runs, and the collectives of the operation under way."""

    mesh: Mesh
    device_mesh: Any
    rows: list[DTensorRow] = field(default_factory=list[DTensorRow])
    sent: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def collective(self) -> tuple[str | None, int]:
        """The collectives since the last call: their names, and bytes that a device receives."""
        names = list(dict.fromkeys(name for name, _ in self.sent))
        size = sum(n for _, n in self.sent)
        self.sent.clear()
        return (", ".join(names) or None), size


def mesh_from(mesh: object) -> Mesh:
    """A mesh of ours, of torch, or of sizes by name."""
    if isinstance(mesh, Mesh):
        return mesh
    names, shape = getattr(mesh, "mesh_dim_names", None), getattr(mesh, "shape", None)
    if shape is not None:
        from idgraph.ir.mesh import mesh_of  # noqa: PLC0415

        given = names or tuple(f"d{k}" for k in range(len(shape)))
        return mesh_of(dict(zip(given, (int(n) for n in shape), strict=True)))
    raise CheckError(f"check.dtensor: {short_repr(mesh)} is not a mesh", hint="mesh=ig.Mesh(x=2, y=2)")


def argument_names(fn: Callable[..., object], args: Sequence[object]) -> list[str]:
    """A name for each positional argument."""
    try:
        target = getattr(fn, "forward", fn)
        found = [
            p.name for p in inspect.signature(target).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]  # fmt: skip
    except (TypeError, ValueError):
        found = []
    return [*found[: len(args)], *(f"arg{k}" for k in range(len(found), len(args)))]


def parameters_of(fn: object) -> dict[str, Any]:
    """Parameters and buffers of a module, by name."""
    named = getattr(fn, "named_parameters", None)
    if not callable(named):
        return {}
    buffers = getattr(fn, "named_buffers")  # noqa: B009 - both are a module's
    return {**dict(named()), **dict(buffers())}  # type: ignore[call-overload]


def placement_of(given: object, who: str) -> Any:
    """A placement of torch: one of its own, "S(1)", "R", "P(sum)", an axis number, or None (replicated)."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import Placement

    if isinstance(given, Placement):
        return given
    if isinstance(given, bool):
        pass
    elif given is None or given == "R":
        return Replicate()
    elif isinstance(given, int):
        return Shard(given)
    elif isinstance(given, str):
        inside = given[2:-1] if given[1:2] == "(" and given.endswith(")") else ""
        if given.startswith("S(") and inside.lstrip("-").isdigit():
            return Shard(int(inside))
        if given == "P" or (given.startswith("P(") and inside in ("sum", "avg", "max", "min", "product")):
            return Partial(inside or "sum")
    raise CheckError(f"{short_repr(given)} is not a placement of {who}", hint='Shard(1), Replicate(), or "S(1)", "R"')


def placements_of(given: Sequence[object], who: str, mesh: Mesh) -> list[Any]:
    """One placement for each axis of the mesh."""
    if isinstance(given, str) or len(given) != len(mesh.axes):
        raise CheckError(
            f"{who} has {short_repr(given)}: one placement for each of the {len(mesh.axes)} axes of {mesh}",
            hint="[Shard(0), Replicate()]",
        )
    return [placement_of(p, who) for p in given]


@dataclass(frozen=True, slots=True)
class Operand:
    """One DTensor: its whole shape, placements, what each device has, and which elements the placements say it is."""

    shape: tuple[int, ...]
    placements: tuple[Any, ...]
    locals: list[npt.NDArray[Any]]
    ids: list[Table]

    @staticmethod
    def of(value: Any, trace: Traced) -> Operand:
        """The state of a DTensor now."""
        shape, placed = tuple(int(n) for n in value.shape), tuple(value.placements)
        if int(np.prod(shape)) > MAX_ELEMENTS:
            raise CheckError(
                f"a tensor of {int(np.prod(shape))} elements", hint=f"at most {MAX_ELEMENTS}: check smaller sizes"
            )
        return Operand(shape, placed, by_rank(value, trace.mesh.size), elements(shape, placed, trace.mesh))

    def assemble(self, mesh: Mesh) -> npt.NDArray[Any]:
        """All of it."""
        return assembled(self.locals, self.ids, self.shape, self.placements, mesh)


def differences(result: Operand, expected: npt.NDArray[Any], mesh: Mesh) -> DeviceElement | None:
    """The first element that a device has otherwise than the operation gives it."""
    parts = partial_axes(result.placements, mesh)
    locals_ = reduced(result.locals, parts, mesh) if parts else result.locals
    flat = expected.ravel()
    for rank, (local, ids) in enumerate(zip(locals_, result.ids, strict=True)):
        if local.shape != ids.shape:
            first = int(ids.ravel()[0]) if ids.size else 0
            at = tuple(int(x) for x in np.unravel_index(first, result.shape)) if expected.size else ()
            return DeviceElement(rank, at, float(ids.size), float(local.size))
        meant = flat[ids.ravel()]
        same = _equal_values(local.ravel(), meant)
        if not same.all():
            k = int(np.argmin(same))
            value = local.ravel()[k]
            twins = np.flatnonzero(flat == value)
            where = tuple(int(x) for x in np.unravel_index(int(twins[0]), result.shape)) if len(twins) == 1 else None
            at = tuple(int(x) for x in np.unravel_index(int(ids.ravel()[k]), result.shape))
            return DeviceElement(rank, at, float(meant[k].real), float(value.real), where)
    return None


def _equal_values(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if a.dtype.kind not in "fc":
        return (a == b) | ((a != a) & (b != b))
    wide = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    return np.isclose(a, b, rtol=1e-4, atol=1e-4 * wide, equal_nan=True)


def movement(operands: Sequence[Operand], run: Callable[[list[Table]], object], shape: tuple[int, ...]) -> Table | None:
    """The number of the element that each element of the result is, for an operation of one operand that moves
    elements only; None for any other."""
    if len(operands) != 1:
        return None
    count = int(np.prod(operands[0].shape))
    found: list[Table] = []
    for numbers in (np.arange(count), (np.arange(count) * 7 + 3) * 11):  # what moves elements moves any numbers
        made = np.asarray(run([numbers.reshape(operands[0].shape).astype(np.int64)]))
        if made.shape != shape:
            return None
        found.append(made)
    at = found[0].astype(np.int64)
    inside = ((at >= 0) & (at < count)).all()
    return at if inside and ((at * 7 + 3) * 11 == found[1]).all() else None


def without_communication(
    source: Operand, reads: Table, mesh: Mesh
) -> tuple[tuple[Any, ...] | None, DeviceElement | None]:
    """A placement of the result under which each device holds all that its elements are; else what one lacks."""
    from torch.distributed.tensor import Replicate, Shard

    lacking: DeviceElement | None = None
    every = [*(Shard(d) for d in range(reads.ndim)), Replicate()]
    for candidate in product(*([every] * len(mesh.axes))):
        made = chunks(reads.shape, candidate, mesh)
        assert made is not None  # shards and replicas
        missing = _lacking(source, reads, made, mesh)
        if missing is None:
            return candidate, None
        lacking = lacking or missing
    return None, lacking


def _lacking(source: Operand, reads: Table, made: Sequence[Table], mesh: Mesh) -> DeviceElement | None:
    for rank in mesh.ranks:
        needs = reads.ravel()[made[rank].ravel()]
        there = np.isin(needs, source.ids[rank])
        if not there.all():
            k = int(np.argmin(there))
            element = np.unravel_index(int(made[rank].ravel()[k]), reads.shape)
            read = np.unravel_index(int(needs[k]), source.shape)
            owners = tuple(r for r in mesh.ranks if needs[k] in source.ids[r])
            return DeviceElement(rank, tuple(map(int, element)), operand=0, reads=tuple(map(int, read)), owners=owners)
    return None


def here(skip: str) -> str:
    """The user's line: outside of this package, of Python's own, and of ``skip``, torch's folder."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - inspect costs an import of 10 ms
    ours = str(Path(__file__).resolve().parent.parent)
    python = str(Path(linecache.__file__).parent)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((ours, skip, "<frozen")) and not (
            file.startswith(python) and "site-packages" not in file
        ):
            return str(SourceLine(file, frame.f_lineno, linecache.getline(file, frame.f_lineno).strip()))
        frame = frame.f_back
    return ""
