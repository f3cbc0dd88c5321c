"""One device's program in a process of its own: torch.distributed moves what the devices lack (gloo, NCCL or MPI).

Nothing here opens a connection: the process group is the caller's, of torchrun or `init_process_group`. torch's tensors
stay where they are from the inputs to the outputs: kernels and collectives read and write them on their device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from idgraph.errors import arguments, short_repr, user_line
from idgraph.ir.mesh import MeshError, Reduction
from idgraph.runtime.array_backends import torch_kind
from idgraph.shard.execution import is_torch_tensor, run_kernels
from idgraph.shard.regions import local_region
from idgraph.shard.steps import DeviceSteps, Exchange, Kernels
from idgraph.shard.transfers import PartialReduction, RankTransfer, ranks_along, reductions_of, transfer_of

_OPS: Mapping[Reduction, str] = {"sum": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN", "avg": "SUM"}


@arguments(MeshError, first=True)
def run_rank(program: DeviceSteps, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run this process' device of a program: what it holds of each output, from what it holds of each input, by name.

    Inputs are NumPy arrays, or torch's tensors, which stay on their device: with NCCL pass tensors of this rank's GPU.
    Outputs are of the same kind. The rank is torch.distributed's, whose world is as large as the mesh. An all-reduce
    and a reduce-scatter are those of the group along their mesh axis, every other move one ``all_to_all_single`` with
    the sizes that each pair of devices exchanges. All ranks call it, in the same order of programs. Raises `MeshError`
    where there is no process group, or of another size, and for an input that is missing or has not the shape of
    `idgraph.shard.local`.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> _ = f.output(f.input("t", shape=(4,)).shard(0, "x") * 2.0)
    >>> run_rank(ig.shard.emit(f), {})
    Traceback (most recent call last):
    idgraph.ir.mesh.MeshError: there is no process group
      ...
    """
    rank = _checked_rank(program)
    values = {t.name: _local_input(program, inputs, t.name, rank) for t in program.fusion.inputs}
    device = _common_device(values)
    known = _rank_state(program)
    for step in program.steps:
        if isinstance(step, Kernels):
            run_kernels(step, values, rank)
            if device is not None:
                for name in step.makes:
                    values[name] = _torch_tensor(values[name]).to(device)
        else:
            values[step.name] = known.exchange(program, step, values[step.tensor], rank)
    return {t.name: values[t.name] for t in program.fusion.outputs}


def _checked_rank(program: DeviceSteps) -> int:
    """This process' rank in a world that is as large as the mesh."""
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
    return dist.get_rank()


def _local_input(program: DeviceSteps, inputs: Mapping[str, Any], name: str, rank: int) -> Any:
    """The part of an input on this device, of the shape that it must have."""
    owner = program.owners[name]
    shape = tuple(s.count for s in local_region(owner, program.mesh.coordinates(rank)))
    if name not in inputs:
        raise MeshError(f"no array for input {name}", where=user_line(), hint=f"rank {rank} holds {shape} of it")
    value = inputs[name] if is_torch_tensor(inputs[name]) else np.asarray(inputs[name])
    if tuple(value.shape) != shape:
        raise MeshError(
            f"input {name} has the shape {short_repr(tuple(value.shape))}, rank {rank} holds {shape} of it",
            where=user_line(),
            hint="program.local_inputs(inputs, rank) cuts it out of whole arrays",
        )
    return value


def _common_device(values: Mapping[str, Any]) -> Any:
    """The device that all inputs are on, as torch's tensors; None of NumPy arrays."""
    tensors = {n: v for n, v in values.items() if is_torch_tensor(v)}
    devices = {v.device: n for n, v in tensors.items()}
    if len(devices) > 1 or (tensors and len(tensors) < len(values)):
        where = [f"{n} {'on ' + str(v.device) if n in tensors else 'a NumPy array'}" for n, v in values.items()]
        raise MeshError(
            f"inputs lie apart: {', '.join(where)}", where=user_line(), hint="pass all as tensors on one device"
        )
    return next(iter(devices), None)


@dataclass(slots=True)
class _RankState:
    """State that stays from call to call of this device's program: groups along mesh axes, and positions of moves,
    by the move and by the device that they lie on."""

    world: Any
    groups: dict[str, Any]
    transfers: dict[str, RankTransfer] = field(default_factory=dict[str, RankTransfer])
    reductions: dict[str, tuple[PartialReduction, ...]] = field(
        default_factory=dict[str, "tuple[PartialReduction, ...]"]
    )
    positions: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict[tuple[str, str], tuple[Any, ...]])

    def exchange(self, program: DeviceSteps, step: Exchange, mine: Any, rank: int) -> Any:
        """The part of a tensor that this device needs, after a move."""
        given = _torch_tensor(mine)
        flat = given.to(_link_device(given)).contiguous().reshape(-1)
        if step.name not in self.transfers:
            self._plan(program, step, rank)
        for r in self.reductions[step.name]:
            if r.kept is None:
                flat = _all_reduce(flat, r.op, self.groups[r.over])
            else:
                parts = [r.kept[k] for k in ranks_along(program.mesh, rank, r.over)]
                flat = _reduce_scatter(flat, parts, program.mesh.coordinates(rank)[r.over], r.op, self.groups[r.over])
        transfer = self.transfers[step.name]
        kept_from, kept_to, sends, gets = self._positions(step.name, str(flat.device))
        found = flat.new_zeros(prod(transfer.shape))
        found[kept_to] = flat[kept_from]
        if len(step.source):
            found[gets] = _all_to_all(flat[sends], [len(p) for p in transfer.sends], [len(p) for p in transfer.gets])
        result = found.reshape(transfer.shape).to(given.device)
        return result if mine is given else torch_kind().numpy(result)

    def _plan(self, program: DeviceSteps, step: Exchange, rank: int) -> None:
        """Find the positions of a move; those of all devices where partial results are reduced first."""
        every = [transfer_of(program, step, r) for r in program.mesh.ranks] if step.reduces else []
        self.transfers[step.name] = every[rank] if every else transfer_of(program, step, rank)
        self.reductions[step.name] = reductions_of(program, step, every) if every else ()

    def _positions(self, name: str, device: str) -> tuple[Any, ...]:
        """Positions that are kept (from, to), sent and got, as tensors of a device."""
        if (name, device) not in self.positions:
            t = self.transfers[name]
            lists = (t.kept_from, t.kept_to, np.concatenate(t.sends), np.concatenate(t.gets))
            self.positions[name, device] = tuple(_torch_tensor(p).to(device) for p in lists)
        return self.positions[name, device]


_states: WeakKeyDictionary[DeviceSteps, _RankState] = WeakKeyDictionary()


def _rank_state(program: DeviceSteps) -> _RankState:
    """The state of a program in this process, made anew for another process group."""
    world = _distributed().group.WORLD
    found = _states.get(program)
    if found is None or found.world is not world:
        found = _states[program] = _RankState(world, _mesh_groups(program))
    return found


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


def _all_reduce(flat: Any, op: Reduction, group: Any) -> Any:
    """The reduction of what the devices of a group have."""

    def collective(sent: Any, how: Any) -> Any:
        whole = sent.clone()
        _distributed().all_reduce(whole, op=how, group=group)
        return whole

    return _reduce_by(collective, flat, op, _distributed().get_world_size(group))


def _reduce_scatter(flat: Any, parts: Sequence[Any], mine: int, op: Reduction, group: Any) -> Any:
    """The part of this device, with the reduction at the positions ``parts[mine]`` of what the devices of a group have
    there; the others have theirs at the other parts."""
    torch = _load_torch()
    at = [torch.from_numpy(p).to(flat.device) for p in parts]
    wide = max(len(p) for p in at)
    sent = flat.new_zeros((len(at), wide))
    for row, p in zip(sent, at, strict=True):
        row[: len(p)] = flat[p]

    def collective(sent: Any, how: Any) -> Any:
        received = sent.new_empty(wide)
        _distributed().reduce_scatter_tensor(received, sent.reshape(-1), op=how, group=group)
        return received

    found = flat.clone()
    if wide:
        found[at[mine]] = _reduce_by(collective, sent, op, len(at))[: len(at[mine])]
    return found


def _reduce_by(collective: Callable[[Any, Any], Any], sent: Any, op: Reduction, devices: int) -> Any:
    """A collective that reduces, in a type that each backend reduces; NaN is the largest and the smallest number, as it
    is to torch."""
    torch, how = _load_torch(), _distributed().ReduceOp
    wide = {torch.bool: torch.uint8, torch.int16: torch.int32}.get(sent.dtype, sent.dtype)
    whole = collective(sent.to(wide), getattr(how, _OPS[op]))
    if op in ("max", "min") and wide.is_floating_point:
        undefined = collective(sent.isnan().to(torch.uint8), how.MAX)
        whole = whole.masked_fill(undefined.bool(), float("nan"))
    return (whole / devices if op == "avg" else whole).to(sent.dtype)


def _all_to_all(sent: Any, sizes: Sequence[int], gets: Sequence[int]) -> Any:
    """The elements that the other devices send, by rank; as bytes, which each backend moves."""
    torch, item = _load_torch(), sent.element_size()
    received = sent.new_empty(sum(gets))
    _distributed().all_to_all_single(
        received.view(torch.uint8), sent.view(torch.uint8), [n * item for n in gets], [n * item for n in sizes]
    )
    return received


def _load_torch() -> Any:
    import torch

    return torch


def _distributed() -> Any:
    import torch.distributed

    return torch.distributed


def _torch_tensor(value: Any) -> Any:
    """A tensor as it is, an array as a tensor of the host that shares its memory."""
    _load_torch()
    return value if is_torch_tensor(value) else torch_kind().tensor(np.asarray(value))


def _link_device(tensor: Any) -> str:
    """Where the backend reads: NCCL sends from GPUs, one a rank."""
    dist = _distributed()
    if tensor.device.type == "cuda" or "nccl" not in str(dist.get_backend()):
        return str(tensor.device)
    return f"cuda:{dist.get_rank() % _load_torch().cuda.device_count()}"
