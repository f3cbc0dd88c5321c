"""Devices simulated in this process: arrays by rank, each step done for every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.errors import short_repr, user_line
from idgraph.ir.mesh import Mesh, MeshError, Reduction
from idgraph.shard.ownership import Ownership
from idgraph.shard.regions import Region, local_region
from idgraph.shard.steps import DeviceSteps, Exchange, Kernels

Array = npt.NDArray[Any]
Values = dict[str, Array]
_UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_NOTHING: Mapping[Reduction, float] = {"sum": 0, "prod": 1}


def simulate(program: DeviceSteps, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """See `DeviceProgram.run`."""
    ranks = program.mesh.ranks
    values: list[Values] = [local_inputs(program, inputs, r) for r in ranks]
    for step in program.steps:
        if isinstance(step, Kernels):
            for rank in ranks:
                run_kernels(step, values[rank], rank)
            continue
        owner = program.owners[step.tensor]
        before = [values[r][step.tensor] for r in ranks]
        for over, op in step.reduces.items():
            before = [reduced(before, program.mesh, r, over, op) for r in ranks]
        for rank in ranks:
            found = start(step, owner, before[rank], rank)
            for source in ranks:
                rows = (step.source == source) & (step.destination == rank)
                place(
                    found,
                    step.needs[rank],
                    step.element[rows],
                    gather_elements(before[source], owner, source, step.element[rows]),
                )
            values[rank][step.name] = found
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
        value = np.asarray(inputs[t.name])
        if value.shape != tuple(t.shape):
            raise MeshError(
                f"input {t.name} has the shape {short_repr(value.shape)}", hint=f"{t.shape}", where=user_line()
            )
        owner = program.owners[t.name]
        mine = np.ascontiguousarray(value[_region_slices(local_region(owner, at))])
        for over, op in owner.placement.partials.items():
            if at[over] and op in _NOTHING:
                mine = np.full_like(mine, _NOTHING[op])
        found[t.name] = mine
    return found


def run_kernels(step: Kernels, values: Values, rank: int) -> None:
    """Run one device's kernels of a step."""
    program = step.programs[rank]
    given = {t.name: values[name] for t, name in zip(program.fusion.inputs, _input_names(step, program), strict=True)}
    made = program.run(given)
    for t, name in zip(program.fusion.outputs, step.makes, strict=True):
        values[name] = np.asarray(made[t.name])


def _input_names(step: Kernels, program: Any) -> Sequence[str]:
    return step.reads[: len(program.fusion.inputs)]


def start(step: Exchange, owner: Ownership, mine: Array, rank: int) -> Array:
    """An array for what a device needs, with what it holds of that."""
    needs = step.needs[rank]
    have = local_region(owner, owner.mesh.coordinates(rank))
    found = np.zeros(tuple(s.count for s in needs), mine.dtype)
    to: list[Array] = []
    of: list[Array] = []
    for need, has in zip(needs, have, strict=True):
        _, a, b = np.intersect1d(np.array(need.numbers()), np.array(has.numbers()), return_indices=True)
        to.append(a)
        of.append(b)
    found[np.ix_(*to)] = mine[np.ix_(*of)]
    return found


def gather_elements(mine: Array, owner: Ownership, rank: int, element: npt.NDArray[np.int64]) -> Array:
    """The values of elements that a device holds."""
    return mine[_local_positions(local_region(owner, owner.mesh.coordinates(rank)), element)]


def place(found: Array, needs: Region, element: npt.NDArray[np.int64], values: Array) -> None:
    """Put values of elements where a device needs them."""
    found[_local_positions(needs, element)] = values


def _local_positions(region: Region, element: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    return tuple((element[:, k] - s.start) // max(s.step, 1) for k, s in enumerate(region))


def _region_slices(region: Region) -> Any:
    return tuple(slice(s.start, s.stop, max(s.step, 1)) for s in region)


def reduced(parts: Sequence[Array], mesh: Mesh, rank: int, over: str, op: Reduction) -> Array:
    """The reduction of what the devices along a mesh axis have."""
    at = mesh.coordinates(rank)
    return _UFUNCS[op].reduce([parts[mesh.rank(**{**at, over: k})] for k in range(mesh.sizes[over])])


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
