"""Devices simulated in this process: arrays by rank, each step done for every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.errors import short_repr, user_line
from idgraph.ir.mesh import Mesh, MeshError, Reduction
from idgraph.runtime.array_backends import is_tensor, torch_kind
from idgraph.shard.regions import Region, local_region
from idgraph.shard.steps import DeviceSteps, Kernels
from idgraph.shard.transfers import PartialReduction, reductions_of, transfer_of

Array = npt.NDArray[Any]
Values = dict[str, Any]  # NumPy arrays, or torch's tensors
_UFUNCS = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_NOTHING: Mapping[Reduction, float] = {"sum": 0, "prod": 1}


def simulate(program: DeviceSteps, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """See `DeviceProgram.run`."""
    ranks = program.mesh.ranks
    arrays = {n: torch_kind().numpy(v) if is_torch_tensor(v) else v for n, v in inputs.items()}
    values: list[Values] = [local_inputs(program, arrays, r) for r in ranks]
    for step in program.steps:
        if isinstance(step, Kernels):
            for rank in ranks:
                run_kernels(step, values[rank], rank)
            continue
        before = [values[r][step.tensor] for r in ranks]
        sides = [transfer_of(program, step, r) for r in ranks]
        for r in reductions_of(program, step, sides):
            before = [simulate_reduction(before, program.mesh, rank, r) for rank in ranks]
        for rank, side in zip(ranks, sides, strict=True):
            found = np.zeros(prod(side.shape), before[rank].dtype)
            found[side.kept_to] = before[rank].reshape(-1)[side.kept_from]
            for source in ranks:
                found[side.gets[source]] = before[source].reshape(-1)[sides[source].sends[rank]]
            values[rank][step.name] = found.reshape(side.shape)
    return {
        t.name: assemble_output(program, t.name, [values[r][t.name] for r in ranks]) for t in program.fusion.outputs
    }


def local_inputs(program: DeviceSteps, inputs: Mapping[str, Any], rank: int) -> Values:
    """See `DeviceProgram.local_inputs`."""
    found: Values = {}
    at = program.mesh.coordinates(rank)
    for t in program.fusion.inputs:
        if t.name not in inputs:
            raise MeshError(f"no array for input {t.name}", where=user_line(), hint=f"it has the shape {t.shape}")
        value = inputs[t.name] if is_torch_tensor(inputs[t.name]) else np.asarray(inputs[t.name])
        if tuple(value.shape) != tuple(t.shape):
            raise MeshError(
                f"input {t.name} has the shape {short_repr(tuple(value.shape))}", hint=f"{t.shape}", where=user_line()
            )
        owner = program.owners[t.name]
        mine = _row_major_copy(value[_region_slices(local_region(owner, at))])
        for over, op in owner.placement.partials.items():
            if at[over] and op in _NOTHING:
                mine[...] = _NOTHING[op]
        found[t.name] = mine
    return found


def is_torch_tensor(value: object) -> bool:
    """True of torch's tensors; does not load torch."""
    return is_tensor(type(value))


def _row_major_copy(value: Any) -> Any:
    """A copy that lies row by row."""
    return value.contiguous().clone() if is_torch_tensor(value) else np.array(value, order="C")


def run_kernels(step: Kernels, values: Values, rank: int) -> None:
    """Run one device's kernels of a step."""
    program = step.programs[rank]
    given = {t.name: values[name] for t, name in zip(program.fusion.inputs, _input_names(step, program), strict=True)}
    made = program.run(given)
    for t, name in zip(program.fusion.outputs, step.makes, strict=True):
        values[name] = made[t.name]


def _input_names(step: Kernels, program: Any) -> Sequence[str]:
    return step.reads[: len(program.fusion.inputs)]


def _region_slices(region: Region) -> Any:
    return tuple(slice(s.start, s.stop, max(s.step, 1)) for s in region)


def reduced(parts: Sequence[Array], mesh: Mesh, rank: int, over: str, op: Reduction) -> Array:
    """The reduction of what the devices along a mesh axis have."""
    at = mesh.coordinates(rank)
    found = _UFUNCS[op].reduce([parts[mesh.rank(**{**at, over: k})] for k in range(mesh.sizes[over])])
    return (found / mesh.sizes[over]).astype(found.dtype) if op == "avg" else found


def simulate_reduction(parts: Sequence[Array], mesh: Mesh, rank: int, r: PartialReduction) -> Array:
    """The state of a device after a reduction: of a reduce-scatter only the elements that it goes on with, the others
    as they were."""
    whole = reduced(parts, mesh, rank, r.over, r.op)
    if r.kept is None:
        return whole
    found = parts[rank].copy()
    found.reshape(-1)[r.kept[rank]] = whole.reshape(-1)[r.kept[rank]]
    return found


def assemble_output(program: DeviceSteps, name: str, parts: Sequence[Array]) -> Array:
    """A whole output of what the devices have."""
    owner = program.owners[name]
    mesh = program.mesh
    for over, op in owner.placement.partials.items():
        parts = [reduced(parts, mesh, r, over, op) for r in mesh.ranks]
    shape = tuple(int(n) for n in owner.shape)
    found = np.zeros(shape, parts[0].dtype)
    seen = np.zeros(shape, np.bool_)
    for rank, part in enumerate(parts):
        at = _region_slices(local_region(owner, mesh.coordinates(rank)))
        known = seen[at]
        same = (found[at] == part) | ((found[at] != found[at]) & (part != part))
        if not same[known].all():
            raise MeshError(f"rank {rank} has other values of {name} than a rank that holds the same elements")
        found[at], seen[at] = part, True
    return found
