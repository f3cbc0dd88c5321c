"""The operations of a function on DTensors as they run: torch's dispatch modes see each of them, and what it sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from idgraph.check.dtensor_decide import (
    Dependence,
    Operand,
    SharedMemory,
    Traced,
    argument_names,
    differences,
    here,
    mesh_from,
    movement,
    parameters_of,
    placements_of,
    without_communication,
    written_tensors,
)
from idgraph.check.dtensor_form import DTENSOR_DEVICES, DeviceElement, DTensorDevice, DTensorReport, DTensorRow
from idgraph.check.dtensor_random import Generators
from idgraph.check.dtensor_simulation import (
    devices,
    elements,
    numpy_of,
    partial_axes,
    random_parts,
    unknown_reduction,
    without_modes,
)
from idgraph.check.program import CheckError
from idgraph.errors import IdGraphError, short_repr
from idgraph.ir.mesh import Mesh

_COLLECTIVES = {
    "all_gather_into_tensor": "all-gather", "all_reduce": "all-reduce", "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all_single": "all-to-all", "shard_dim_alltoall": "all-to-all", "broadcast": "broadcast",
    "scatter": "scatter",
}  # fmt: skip
_SENDS = ("_c10d_functional", "c10d", "_dtensor", "c10d_functional")


def check_dtensor(
    fn: Callable[..., object],
    args: Sequence[object],
    mesh: object,
    placements: Mapping[str, Sequence[object]],
    device: DTensorDevice,
    name: str | None,
) -> DTensorReport:
    """See `idgraph.check.dtensor`."""
    grid = mesh_from(mesh)
    title = name or getattr(fn, "__name__", type(fn).__name__)
    names = argument_names(fn, args)
    if device not in DTENSOR_DEVICES:
        raise CheckError(
            f"check.dtensor: {short_repr(device)} is an unknown kind of device", hint='device="cuda", or device="cpu"'
        )
    unknown = [n for n in placements if n not in names and n not in parameters_of(fn)]
    if unknown:
        raise CheckError(
            f"placements name {short_repr(unknown[0])}, which is not an argument of {title}",
            hint=f"it takes {', '.join(names)}",
        )
    with devices(grid) as device_mesh:
        trace = Traced(grid, device_mesh, Generators(grid, device == "cuda"))
        try:
            run_traced(fn, names, args, placements, trace)
        except IdGraphError:
            raise
        except Exception as error:  # of the function, or of what DTensor cannot do at all
            what = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise CheckError(f"{title} cannot be run on DTensors: {what[:300]}") from None
    return DTensorReport(title, str(grid), tuple(trace.rows))


def run_traced(
    fn: Callable[..., object],
    names: Sequence[str],
    args: Sequence[object],
    placements: Mapping[str, Sequence[object]],
    trace: Traced,
) -> None:
    """Run ``fn`` on DTensors of ``args``; the rows go to ``trace``."""
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Sends(TorchDispatchMode):
        """Notes collectives on the devices' own tensors."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(t, DTensor) for t in types):
                return NotImplemented
            made = func(*args, **(kwargs or {}))
            _note_collective(func, args, made, trace)
            return made

    class Operations(TorchDispatchMode):
        """Judges each operation on DTensors."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not any(issubclass(t, DTensor) for t in types):
                made = func(*args, **kwargs)
                _note_collective(func, args, made, trace)
                return made
            _note_outside(trace)
            with Sends():
                return _judge_operation(func, args, kwargs, trace, shared)

    def spread(value: object, who: str) -> object:
        if not isinstance(value, torch.Tensor):
            if who in placements:
                raise CheckError(f"placements name {who}, which is not a tensor")
            return value
        given = placements.get(who, [None] * len(trace.mesh.axes))
        placed = placements_of(given, who, trace.mesh)
        wrong = [p for p in placed if getattr(p, "dim", 0) not in range(-value.ndim, value.ndim) and hasattr(p, "dim")]
        if wrong:
            raise CheckError(f"{who} has no axis for {wrong[0]}", hint=f"its shape is {tuple(value.shape)}")
        with without_modes():  # else torch makes what each device has of every tensor in it
            apart = distinct(value, crc32(who.encode()))
        return _distributed(apart, placed, trace, distribute_tensor)

    shared = SharedMemory()
    spread_args = [spread(a, n) for a, n in zip(args, names, strict=True)]
    own = {n: spread(p, n) for n, p in parameters_of(fn).items()}
    with Operations():
        if own:
            torch.func.functional_call(fn, own, tuple(spread_args))  # type: ignore[arg-type]
        else:
            fn(*spread_args)
        _note_outside(trace)


def _distributed(value: Any, placed: Sequence[Any], trace: Traced, distribute: Any) -> Any:
    """A DTensor of a value; a partial result is in random parts, so that what is done to each is seen."""
    import torch
    from torch.distributed._local_tensor import LocalTensor
    from torch.distributed.tensor import DTensor

    if all(p.is_replicate() for p in placed):
        return _on_every_device(value, trace)  # each has its own memory, which distribute_tensor does not give them
    if not any(p.is_partial() for p in placed):
        return distribute(value, trace.device_mesh, placed)
    parts = random_parts(numpy_of(value), partial_axes(placed, trace.mesh), trace.mesh)
    held = elements(tuple(value.shape), placed, trace.mesh)
    with without_modes():
        local = {
            rank: cast("Any", torch).from_numpy(part.ravel()[ids]).to(value.dtype)
            for rank, (part, ids) in enumerate(zip(parts, held, strict=True))
        }
    whole = {"shape": value.shape, "stride": value.contiguous().stride()}  # of unequal parts they cannot be guessed
    return DTensor.from_local(LocalTensor(local), trace.device_mesh, placed, run_check=False, **whole)


def distinct(value: Any, seed: int) -> Any:
    """A tensor like ``value`` whose elements differ, where its type has so many numbers: an element at the wrong
    address is seen then. Those of the user stay if they differ; else they become fractions of the same sign, in random
    order. Integers, which may be indices, and truth values stay."""
    import torch

    n, plain = value.numel(), value.detach().clone()
    fits = {torch.bfloat16: 1 << 8, torch.float16: 1 << 11}.get(value.dtype, 1 << 23)
    if not value.dtype.is_floating_point or n >= fits or plain.unique().numel() == n:
        return plain
    order = torch.tensor(np.random.default_rng(seed).permutation(n) + 1).reshape(plain.shape)
    return ((order / n) * torch.where(plain < 0, -1.0, 1.0)).to(plain.dtype)


def _note_collective(func: Any, args: Sequence[Any], made: Any, trace: Traced) -> None:
    """Note what a collective sends."""
    name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else ""
    if getattr(func, "namespace", "") not in _SENDS or name.rstrip("_") not in _COLLECTIVES:
        return
    kind = _COLLECTIVES[name.rstrip("_")]
    given, out = _bytes(args[0] if args else None), _bytes(made)
    n = _group_size(args)
    size = {
        "all-gather": out - given,
        "all-reduce": 2 * given * (n - 1) // n,
        "reduce-scatter": out * (n - 1),
        "all-to-all": given * (n - 1) // n,
    }.get(kind, out)
    trace.sent.append((kind, max(0, size)))


def _bytes(value: Any) -> int:
    first: Any = value
    while isinstance(first, (list, tuple)):
        first = cast("Sequence[Any]", first)[0] if first else None
    local: Mapping[int, Any] | None = getattr(first, "_local_tensors", None)
    parts: list[Any] = [first] if local is None else list(local.values())
    return max((int(p.numel()) * int(p.element_size()) for p in parts if hasattr(p, "numel")), default=0)


def _group_size(args: Sequence[Any]) -> int:
    """Devices of the group that the last argument, or the one before it, names."""
    from torch.distributed import distributed_c10d

    resolve: Any = getattr(distributed_c10d, "_resolve_process_group")  # noqa: B009 - of torch's functional collectives
    for a in reversed(args):
        if isinstance(a, str):
            try:
                return int(resolve(a).size())
            except (RuntimeError, ValueError, KeyError):
                continue
    return 1


def _note_outside(trace: Traced) -> None:
    """A row for what was sent outside of any operation: a redistribution that the function asks for."""
    kind, size = trace.collective()
    if kind is not None:
        trace.rows.append(
            DTensorRow("redistribute", "communication", "the function asks for it", collective=kind, bytes=size)
        )


def _judge_operation(func: Any, args: Any, kwargs: Any, trace: Traced, shared: SharedMemory) -> Any:
    """Run and judge one operation."""
    import torch
    from torch.distributed.tensor import DTensor
    from torch.utils import _pytree as tree

    flat, spec = tree.tree_flatten((args, kwargs))
    spread = [k for k, a in enumerate(flat) if isinstance(a, DTensor)]
    operands = [Operand.of(flat[k], trace) for k in spread]
    name = str(func.overloadpacket.__name__)
    line = here(str(Path(torch.__file__).parent))
    shown = tuple(_placement_text(flat[k].placements) for k in spread)
    odd = next((p for x in operands if (p := unknown_reduction(x.placements))), None)
    wholes = [] if odd else [x.assemble(trace.mesh) for x in operands]
    trace.sent.clear()  # what laid the operands out to look at them

    def alone(values: Sequence[npt.NDArray[Any]], keep: bool = True) -> Any:
        """The operation without devices, on whole operands."""
        return _alone(func, flat, spec, spread, values, keep)

    written = written_tensors(func, args, kwargs)
    random = torch.Tag.nondeterministic_seeded in func.tags
    try:
        made = func(*args, **kwargs)
    except Exception as error:  # DTensor raises many kinds
        trace.sent.clear()
        row = _refused_row(name, operands, alone, wholes, trace, shown, error, line, random, odd)
        trace.rows.append(row)
        if written:
            shared.forget()
        return _result_of_refused(func, flat, spec, spread, None if odd else lambda: alone(wholes), trace)
    kind, size = trace.collective()
    results = [x for x in tree.tree_leaves(made) if isinstance(x, DTensor)] or written
    head = DTensorRow(name, "local", "compared on every rank", None, kind, size, shown, line=line)
    if not results:
        return made
    head = replace(head, output=_placement_text(results[0].placements))
    odd = odd or next((p for x in results if (p := unknown_reduction(x.placements))), None)
    if odd is not None:
        row = replace(head, verdict="unknown", because=f"what {odd} adds up is not known here")
    elif random:
        row = _random_row(head, func, flat[spread[0]], results, trace)
    else:
        row = _compared_row(head, results, _tensor_leaves(alone(wholes)), trace)
    if row.verdict == "local" and not random:
        shared.run(func, flat, spec, wholes, made)
        row = _row_of_writes(row, shared, written, trace)
    if written and (random or row.verdict in ("unknown", "wrong")):
        shared.forget()
    if row.verdict == "local" and kind is not None:
        row = replace(row, verdict="communication", because="")
    trace.rows.append(row)
    return made


def _is_of_simulation(error: BaseException) -> bool:
    """Whether torch's simulation of devices gives up, which says nothing of processes: it has no list of tensors for
    parts that are cut into different numbers of chunks."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and Path(at.tb_frame.f_code.co_filename).parent.name == "_local_tensor"


def _compared_row(head: DTensorRow, results: Sequence[Any], expected: Sequence[Any], trace: Traced) -> DTensorRow:
    """The row of an operation whose results are, or are not, those without devices."""
    for have, meant in zip(results, expected, strict=False):
        found = differences(Operand.of(have, trace), numpy_of(meant), trace.mesh)
        if found is not None:
            placed = _placement_text(have.placements)
            because = f"the result is placed {placed}, and its elements are others"
            return replace(head, verdict="wrong", output=placed, witness=found, because=because)
    return head


def _random_row(head: DTensorRow, func: Any, first: Any, results: Sequence[Any], trace: Traced) -> DTensorRow:
    """The row of an operation that draws random numbers: each element has its own, on whichever devices it is."""
    rule = trace.generators.rule(func)
    have = [Operand.of(x, trace) for x in results]
    sizes = next((wrong for x in have if (wrong := x.wrong_size()) is not None), None)
    if sizes is not None:
        return replace(head, verdict="wrong", witness=sizes, because="the placement of the result has other parts")
    for x, t in zip(have, results, strict=True):
        _give_replicas_one_value(x, t, trace)
    if not trace.generators.known:
        because = "devices drew for parts of different size before, and how far a CPU's generator went is not known"
        return replace(head, verdict="unknown", because=because)
    found = trace.generators.draw(func, first._spec, have[0].shape, have[0].ids)
    if found is not None:
        return replace(head, verdict="wrong", witness=found, because=rule)
    return replace(head, because=f"{rule}: each element has a random number of its own")


def _give_replicas_one_value(x: Operand, value: Any, trace: Traced) -> None:
    """The generators of the simulation are those of a CPU: where the devices' are other ones, replicas agree."""
    import torch

    whole = x.assemble(trace.mesh).ravel()
    with without_modes(), torch.no_grad():
        for rank, ids in enumerate(x.ids):
            local = value._local_tensor._local_tensors[rank]
            local.copy_(cast("Any", torch).from_numpy(whole[ids]).to(local.dtype))


def _row_of_writes(head: DTensorRow, shared: SharedMemory, written: Sequence[Any], trace: Traced) -> DTensorRow:
    """The row of an operation that writes memory which other tensors have too, on the devices or without them only."""
    stale = shared.stale(written, trace) if written else None
    if stale is None:
        return head
    other, found = _placement_text(stale[0].placements), stale[1]
    because = f"it writes memory that a tensor placed {other} has too without devices; on a device that one is a copy"
    return replace(head, verdict="wrong", witness=found, because=because)


def _placement_text(placements: Sequence[Any]) -> str:
    return f"({', '.join(map(str, placements))})"


def _alone(
    func: Any, flat: Sequence[Any], spec: Any, spread: Sequence[int], values: Sequence[npt.NDArray[Any]], keep: bool
) -> Any:
    import torch
    from torch.utils import _pytree as tree

    with without_modes(), torch.no_grad():
        given = list(flat)
        for k, v in zip(spread, values, strict=True):
            plain: Any = cast("Any", torch).from_numpy(np.array(v, order="C"))
            given[k] = plain.to(flat[k].dtype) if keep else plain
        args, kwargs = tree.tree_unflatten(given, spec)
        return func(*args, **kwargs)


def _replicated(func: Any, flat: Sequence[Any], spec: Any, spread: Sequence[int]) -> Any:
    """The operation on replicated operands, which DTensor does not refuse."""
    from torch.distributed.tensor import Replicate
    from torch.utils import _pytree as tree

    given = list(flat)
    for k in spread:
        given[k] = flat[k].redistribute(placements=[Replicate()] * flat[k].device_mesh.ndim)
    args, kwargs = tree.tree_unflatten(given, spec)
    return func(*args, **kwargs)


def _result_of_refused(
    func: Any, flat: Sequence[Any], spec: Any, spread: Sequence[int], alone: Callable[[], Any] | None, trace: Traced
) -> Any:
    """The value that the function goes on with."""
    try:
        made = _replicated(func, flat, spec, spread)
    except Exception:  # an operation that DTensor has not at all: what follows goes on with its whole results
        if alone is None:
            raise
        made = _on_every_device(alone(), trace)
    trace.sent.clear()
    return made


def _placement_of_results(
    operands: Sequence[Operand], alone: Any, wholes: Sequence[Any], whole: Any, mesh: Mesh
) -> tuple[tuple[Any, ...] | None, DeviceElement | None]:
    """A placement of the first result, if each has one under which no element moves; else what a device lacks."""
    first: tuple[Any, ...] | None = None
    for k in range(len(_tensor_leaves(whole))):
        tried = Dependence.of(operands, lambda v, k=k: numpy_of(_tensor_leaves(alone(v))[k]), wholes, mesh)
        placed, lacking = tried.placement(mesh)
        if placed is None:
            return None, lacking
        first = first or placed
    return first, None


def _tensor_leaves(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as tree

    return [x for x in tree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in value.shape)


def _on_every_device(made: Any, trace: Traced) -> Any:
    """The results of an operation that ran without devices, as replicated DTensors."""
    import torch
    from torch.distributed._local_tensor import LocalTensor
    from torch.distributed.tensor import DTensor, Replicate
    from torch.utils import _pytree as tree

    def spread(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        parts = LocalTensor({rank: value.clone() for rank in trace.mesh.ranks})
        return DTensor.from_local(parts, trace.device_mesh, [Replicate()] * len(trace.mesh.axes), run_check=False)

    return tree.tree_map(spread, made)


def _refused_row(
    name: str, operands: Sequence[Operand], alone: Any, wholes: Sequence[Any], trace: Traced, shown: tuple[str, ...],
    error: Exception, line: str, random: bool, odd: str | None,
) -> DTensorRow:  # fmt: skip
    """The row of an operation that DTensor refuses: whether it needs communication is decided on the elements."""
    refused = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    head = DTensorRow(name, "unknown", inputs=shown, refused=refused, line=line)
    if _is_of_simulation(error):
        return replace(head, because=f"torch's simulation of the devices cannot run it ({refused})", refused="")
    if odd is not None:
        return replace(head, because=f"DTensor refuses it ({refused}); what {odd} adds up is not known here")
    try:
        whole = alone(wholes)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise CheckError(f"{name} fails without devices too: {str(error).splitlines()[0][:200]}") from None
    try:
        reads = movement(operands, lambda v: numpy_of(alone(v, False)), _shape_of(whole))
    except (RuntimeError, TypeError, ValueError, AttributeError):
        reads = None  # several results, or an operation that takes no numbers of elements
    if reads is not None:
        placed, lacking = without_communication(operands[0], reads, trace.mesh)
    elif random or any(p.is_partial() for x in operands for p in x.placements):
        does = "draws random numbers" if random else "does more than move elements"
        return replace(head, because=f"DTensor refuses it ({refused}); it {does}")
    else:
        placed, lacking = _placement_of_results(operands, alone, wholes, whole, trace.mesh)
    if placed is not None:
        because = f"DTensor refuses it ({refused}); placed {_placement_text(placed)} no element moves"
        return replace(head, verdict="local", output=_placement_text(placed), because=because)
    because = f"DTensor refuses it ({refused}); under every placement of its result some element moves"
    return replace(head, verdict="communication", bytes=None, witness=lacking, because=because)
