"""Each operation of a function on DTensors: local, communication, or wrong, decided on simulated devices.

An operation is run as DTensor runs it, on all devices, and once without devices on the same whole operands. What a
device has is compared with the elements that the placement of the result says are there.

Tensors that share memory: without devices a write to a view is seen in what it views, whatever DTensor copied.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from idgraph.check.dtensor_form import DeviceElement, DTensorRow
from idgraph.check.dtensor_random import Generators
from idgraph.check.dtensor_simulation import (
    Table,
    assembled,
    by_rank,
    chunks,
    elements,
    numpy_of,
    partial_axes,
    reduced,
    unknown_reduction,
    without_modes,
)
from idgraph.check.program import CheckError
from idgraph.errors import SourceLine, short_repr
from idgraph.ir.mesh import Mesh


def _by_identity() -> Any:
    from torch.utils.weak import WeakIdKeyDictionary

    return WeakIdKeyDictionary()


@dataclass(slots=True)
class SharedMemory:
    """For each DTensor that is alive, the tensor that it would be without devices: views of one memory are views."""

    plain: Any = field(default_factory=_by_identity)

    def run(self, func: Any, flat: Sequence[Any], spec: Any, wholes: Sequence[npt.NDArray[Any]], made: Any) -> None:
        """Run an operation as without devices, beside ``made``, its result on DTensors."""
        import torch
        from torch.distributed.tensor import DTensor
        from torch.utils import _pytree as tree

        given, values = list(flat), iter(wholes)
        with without_modes(), torch.no_grad():
            for k, t in enumerate(flat):
                if isinstance(t, DTensor):
                    given[k] = self._plain(t, next(values))
                elif hasattr(t, "_local_tensors"):  # a number that all devices have
                    given[k] = t._local_tensors[0]
            args, kwargs = tree.tree_unflatten(given, spec)
            results = func(*args, **kwargs)
        for have, meant in zip(_leaves(made), _leaves(results), strict=False):
            if isinstance(have, DTensor) and have not in self.plain:
                self.plain[have] = meant

    def _plain(self, t: Any, whole: npt.NDArray[Any]) -> Any:
        import torch

        if t not in self.plain:
            own = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            memory = own.as_strided((own.untyped_storage().nbytes() // own.element_size(),), (1,))
            places = torch.arange(memory.numel()).as_strided(t.shape, t.stride())
            memory[places] = cast("Any", torch).from_numpy(whole).to(t.dtype)  # elements may share one place
            self.plain[t] = own
        return self.plain[t]

    def stale(self, written: Sequence[Any], trace: Traced) -> tuple[Any, DeviceElement] | None:
        """A DTensor whose memory is that of ``written`` without devices, and one of its elements that is another."""
        memory = {self.plain[t].untyped_storage().data_ptr() for t in written}
        for t, plain in list(self.plain.items()):
            if plain.untyped_storage().data_ptr() in memory and unknown_reduction(t.placements) is None:
                found = differences(Operand.of(t, trace), numpy_of(plain), trace.mesh)
                if found is not None:
                    return t, found
        return None

    def forget(self) -> None:
        """Nothing is known of what shares memory, after an operation whose result is not that without devices."""
        self.plain.clear()


def _leaves(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as tree

    return [x for x in tree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def written_tensors(func: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    """The DTensors that an operation writes, by its schema."""
    from torch.distributed.tensor import DTensor

    arguments = func._schema.arguments
    given = [*zip(arguments, args, strict=False), *((a, kwargs[a.name]) for a in arguments if a.name in kwargs)]
    return [
        t for a, value in given if a.alias_info is not None and a.alias_info.is_write
        for t in _leaves(value) if isinstance(t, DTensor)
    ]  # fmt: skip


MAX_ELEMENTS = 1 << 22
_PLACEMENT_TEXT: Final = re.compile(
    r"(?:S|Shard)\((?:dim=)?(?P<axis>-?[0-9]{1,3})\)|R(?:eplicate)?(?:\(\))?"
    r"|(?P<partial>P(?:artial)?)(?:\((?:(?:reduce_op=)?'?(?P<op>sum|avg|max|min|product)'?)?\))?"
)
TRIALS = 3  # sets of other numbers that show which elements a result is made of


@dataclass(slots=True)
class Traced:
    """The rows that are made while a function runs, and the collectives of the operation under way."""

    mesh: Mesh
    device_mesh: Any
    generators: Generators
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
    """A placement of torch: one of its own, "S(1)", "R", "P(sum)" or as torch prints it, "Shard(dim=1)", "Replicate()",
    "Partial(sum)"; an axis number, or None (replicated)."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import Placement

    if isinstance(given, Placement):
        return given
    if given is None:
        return Replicate()
    if isinstance(given, int) and not isinstance(given, bool):
        return Shard(given)
    if isinstance(given, str) and (found := _PLACEMENT_TEXT.fullmatch(given.strip())) is not None:
        axis, op = found["axis"], found["op"]
        return Shard(int(axis)) if axis else Partial(op or "sum") if found["partial"] else Replicate()
    raise CheckError(
        f"{short_repr(given)} is not a placement of {who}",
        hint='torch\'s Shard(1), Replicate(), or texts: "Shard(1)", "Replicate()", "Partial(sum)", "S(1)", "R", "P"',
    )


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

    def wrong_size(self) -> DeviceElement | None:
        """The first device whose part has another shape than the placements say."""
        for rank, (local, ids) in enumerate(zip(self.locals, self.ids, strict=True)):
            if local.shape != ids.shape:
                first = int(ids.ravel()[0]) if ids.size else 0
                at = _unraveled(first, self.shape) if np.prod(self.shape) else ()
                return DeviceElement(rank, at, float(ids.size), float(local.size), sizes=True)
        return None

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
            return result.wrong_size()
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


@dataclass(frozen=True, slots=True)
class Dependence:
    """Which elements of an operation's result change with what a device lacks: a table for each rank, tried with other
    numbers in place of that; ``run`` is the operation on whole operands."""

    operands: Sequence[Operand]
    run: Callable[[Sequence[npt.NDArray[Any]]], npt.NDArray[Any]]
    wholes: Sequence[npt.NDArray[Any]]
    result: npt.NDArray[Any]
    changed: Sequence[npt.NDArray[np.bool_]]

    @staticmethod
    def of(
        operands: Sequence[Operand],
        run: Callable[[Sequence[npt.NDArray[Any]]], npt.NDArray[Any]],
        wholes: Sequence[npt.NDArray[Any]],
        mesh: Mesh,
    ) -> Dependence:
        """Try each device on ``TRIALS`` sets of numbers."""
        result = run(wholes)
        found = Dependence(operands, run, wholes, result, [np.zeros(result.shape, np.bool_) for _ in mesh.ranks])
        for rank, table in enumerate(found.changed):
            lacks = [
                np.isin(np.arange(w.size), x.ids[rank], invert=True) for w, x in zip(wholes, operands, strict=True)
            ]
            if any(x.any() for x in lacks):
                for trial in range(TRIALS):
                    table |= found.differs(lacks, trial)
        return found

    def differs(self, lacks: Sequence[npt.NDArray[np.bool_]], trial: int) -> npt.NDArray[np.bool_]:
        """Where the result is another with other numbers at some elements; an operand's own ones, as they may be
        indices."""
        rng = np.random.default_rng(trial)
        made: list[npt.NDArray[Any]] = []
        for whole, at in zip(self.wholes, lacks, strict=True):
            flat = whole.ravel().copy()
            flat[at] = rng.choice(whole.ravel(), int(at.sum())) if whole.size else flat[at]
            made.append(flat.reshape(whole.shape))
        other = self.run(made)
        if other.shape != self.result.shape:  # as many as the values say
            return np.ones(self.result.shape, np.bool_)
        return ~_equal_values(other.ravel(), self.result.ravel()).reshape(self.result.shape)

    def placement(self, mesh: Mesh) -> tuple[tuple[Any, ...] | None, DeviceElement | None]:
        """A placement of the result under which no device needs what it lacks; else an element of one that does."""
        from torch.distributed.tensor import Replicate, Shard

        every = [*(Shard(d) for d in range(self.result.ndim)), Replicate()]
        first: tuple[int, int] | None = None
        for candidate in product(*([every] * len(mesh.axes))):
            parts = chunks(self.result.shape, candidate, mesh)
            assert parts is not None  # shards and replicas
            needs = [ids.ravel()[self.changed[r].ravel()[ids.ravel()]] for r, ids in enumerate(parts)]
            if not any(len(n) for n in needs):
                return candidate, None
            first = first or next((r, int(n[0])) for r, n in enumerate(needs) if len(n))
        return None, None if first is None else self._witness(*first, mesh)

    def _witness(self, rank: int, element: int, mesh: Mesh) -> DeviceElement | None:
        """An element of an operand that a device lacks and that changes an element of its result: half of those in
        question are tried at a time."""
        own = np.concatenate(
            [np.isin(np.arange(w.size), x.ids[rank]) for w, x in zip(self.wholes, self.operands, strict=True)]
        )
        ends: list[int] = np.cumsum([0, *(w.size for w in self.wholes)]).tolist()
        pool: npt.NDArray[np.int64] = np.flatnonzero(~own)

        def seen(some: npt.NDArray[np.int64]) -> bool:
            lacks = [np.isin(np.arange(a, b), some) for a, b in pairwise(ends)]
            return any(self.differs(lacks, t).ravel()[element] for t in range(TRIALS))

        while len(pool) > 1:
            half = pool[: len(pool) // 2]
            pool = half if seen(half) else pool[len(pool) // 2 :]
        k = bisect_right(ends, int(pool[0])) - 1
        if not seen(pool):
            return None  # only several together change it
        at = int(pool[0] - ends[k])
        owners = tuple(r for r in mesh.ranks if at in self.operands[k].ids[r])
        made, read = _unraveled(element, self.result.shape), _unraveled(at, self.wholes[k].shape)
        return DeviceElement(rank, made, operand=k, reads=read, owners=owners)


def _unraveled(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(x) for x in np.unravel_index(number, shape))


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
