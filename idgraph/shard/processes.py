"""One device's program in a process of its own: torch.distributed moves what the devices lack (gloo, NCCL or MPI).

Nothing here opens a connection: the process group is the caller's, of torchrun or `init_process_group`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from idgraph.errors import arguments, user_line
from idgraph.ir.mesh import MeshError, Reduction
from idgraph.shard.execution import Array, gather_elements, place, run_kernels, start
from idgraph.shard.steps import DeviceSteps, Exchange, Kernels

_OPS: Mapping[Reduction, str] = {"sum": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN"}


@arguments(MeshError, first=True)
def run_rank(program: DeviceSteps, inputs: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Run this process' device of a program: what it holds of each output, from what it holds of each input, by name.

    The rank is torch.distributed's, whose world is as large as the mesh; with NCCL rank r sends from GPU r. An
    all-reduce is one of the group along its mesh axis, every other move one ``all_to_all_single`` with the sizes that
    each pair of devices exchanges. Raises `MeshError` where there is no process group, or of another size.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> _ = f.output(f.input("t", shape=(4,)).shard(0, "x") * 2.0)
    >>> run_rank(ig.shard.emit(f), {})
    Traceback (most recent call last):
    idgraph.ir.mesh.MeshError: there is no process group
      ...
    """
    dist = _distributed()

    if not dist.is_available() or not dist.is_initialized():
        raise MeshError(
            "there is no process group", hint='torch.distributed.init_process_group("gloo")', where=user_line()
        )
    if dist.get_world_size() != program.mesh.size:
        raise MeshError(
            f"{program.mesh} has {program.mesh.size} devices, the process group {dist.get_world_size()}",
            where=user_line(),
        )
    rank = dist.get_rank()
    groups = _mesh_groups(program)
    values: dict[str, Array] = {t.name: np.ascontiguousarray(inputs[t.name]) for t in program.fusion.inputs}
    for step in program.steps:
        if isinstance(step, Kernels):
            run_kernels(step, values, rank)
        else:
            values[step.name] = _exchange_operand(program, step, values[step.tensor], rank, groups)
    return {t.name: values[t.name] for t in program.fusion.outputs}


def _mesh_groups(program: DeviceSteps) -> dict[str, Any]:
    """The group of this device along each mesh axis that partial results are reduced over; all devices make all."""
    dist = _distributed()

    mesh, rank = program.mesh, dist.get_rank()
    over = sorted({m for s in program.steps if isinstance(s, Exchange) for m in s.reduces})
    found: dict[str, Any] = {}
    for name in over:
        for first in mesh.ranks:
            at = mesh.coordinates(first)
            if at[name]:
                continue
            members = [mesh.rank(**{**at, name: k}) for k in range(mesh.sizes[name])]
            made = dist.new_group(members)
            if rank in members:
                found[name] = made
    return found


def _exchange_operand(program: DeviceSteps, step: Exchange, mine: Array, rank: int, groups: Mapping[str, Any]) -> Array:
    """The part of a tensor that a device needs, after a move."""
    dist = _distributed()

    for over, op in step.reduces.items():
        whole = _torch_array(mine)
        dist.all_reduce(whole, op=getattr(dist.ReduceOp, _OPS[op]), group=groups[over])
        mine = whole.cpu().numpy()
    owner = program.owners[step.tensor]
    found = start(step, owner, mine, rank)
    if not len(step.source):
        return found
    ranks = program.mesh.ranks
    sends = [step.element[(step.source == rank) & (step.destination == r)] for r in ranks]
    gets = [step.element[(step.source == r) & (step.destination == rank)] for r in ranks]
    parts = [gather_elements(mine, owner, rank, rows) for rows in sends]
    sent = _torch_array(np.concatenate(parts) if parts else mine[:0])
    received = sent.new_empty(sum(len(g) for g in gets))
    dist.all_to_all_single(received, sent, [len(g) for g in gets], [len(s) for s in sends])
    values, at = received.cpu().numpy(), 0
    for rows in gets:
        place(found, step.needs[rank], rows, values[at : at + len(rows)].astype(found.dtype, copy=False))
        at += len(rows)
    return found


def _distributed() -> Any:
    import torch.distributed

    return torch.distributed


def _torch_array(values: Array) -> Any:
    """A tensor where the process group's backend reads it: NCCL sends from GPUs, one a rank."""
    import torch

    dist = _distributed()
    tensor = cast("Any", torch).from_numpy(np.array(values, order="C"))
    if "nccl" not in str(dist.get_backend()):
        return tensor
    return tensor.to(f"cuda:{dist.get_rank() % torch.cuda.device_count()}")
