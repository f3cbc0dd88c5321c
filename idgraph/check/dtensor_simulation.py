"""DTensor without processes: all devices of a mesh in this one, as torch's own LocalTensorMode simulates them.

DTensor propagates shardings and redistributes as it does on real devices; what each device has is read off afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import product
from threading import RLock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from idgraph.check.program import CheckError
from idgraph.ir.mesh import Mesh

_ONE_AT_A_TIME: Final = RLock()  # torch has one default process group in a process
MAX_DEVICES: Final = 64
REDUCTIONS: Final = ("sum", "avg", "max", "min", "product")
Table = npt.NDArray[np.int64]


@contextlib.contextmanager
def devices(mesh: Mesh) -> Generator[Any]:
    """Within, torch has that many devices; gives the DeviceMesh."""
    try:
        import torch.distributed as dist
        from torch.distributed._local_tensor import LocalTensorMode
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, debug
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise CheckError(
            f"check.dtensor needs torch with LocalTensorMode: {error}", hint="pip install 'torch>=2.13'"
        ) from None
    if mesh.size > MAX_DEVICES:
        raise CheckError(f"{mesh} has {mesh.size} devices", hint=f"at most {MAX_DEVICES} are simulated")
    with _ONE_AT_A_TIME, _quiet(), _memory_filled():
        if dist.is_initialized():
            raise CheckError(
                "this process has a process group of its own already",
                hint="check in another process (idgraph check --dtensor FILE.py), or before init_process_group",
            )
        getattr(debug, "_clear_sharding_prop_cache")()  # noqa: B009 - else verdicts follow what was checked before
        rules: Any = getattr(DTensor, "_op_dispatcher")._custom_op_handlers  # noqa: B009 - loss_parallel adds to them
        before = dict(rules)
        dist.init_process_group("fake", rank=0, world_size=mesh.size, store=FakeStore())
        try:
            with LocalTensorMode(mesh.size):
                sizes = tuple(n for _, n in mesh.axes)
                yield init_device_mesh("cpu", sizes, mesh_dim_names=tuple(name for name, _ in mesh.axes))
        finally:
            dist.destroy_process_group()
            rules.clear()
            rules.update(before)  # what an error in the middle of loss_parallel leaves there


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Advice of torch about the number of its collectives is not for whoever simulates them."""
    known = logging.getLogger("torch.distributed.tensor")
    before = known.level
    known.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="DTensor random operators may not")
            warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation")
            yield
    finally:
        known.setLevel(before)


@contextlib.contextmanager
def _memory_filled() -> Generator[None]:
    """Elements that nothing was written to are NaN, on devices and without them: they are compared as others are."""
    import torch

    filled: Any = torch.utils.deterministic
    before, fills = torch.are_deterministic_algorithms_enabled(), filled.fill_uninitialized_memory
    only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    filled.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only)
        filled.fill_uninitialized_memory = fills


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
                if part.shape[: out.ndim] != out.shape:
                    raise CheckError(
                        f"{p} has a mask of shape {out.shape} for a part of shape {part.shape}: what was gathered of "
                        "it since it was looked up cannot be added up",
                        hint="redistribute what an embedding gives before other operations: Replicate() or Shard(...)",
                    )
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
    for p in (p for p in placements if p.is_partial()):
        kind = type(p).__name__
        known = (kind == "Partial" and p.reduce_op in REDUCTIONS) or (
            kind == "_MaskPartial" and _mask_of(p) is not None
        )
        if not known and kind != "_NormPartial":
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
    match next(iter(ops - {"avg"}), "sum"):
        case "max":
            return np.maximum(a, b)
        case "min":
            return np.minimum(a, b)
        case "product":
            return a * b
        case _:
            return a + b


def random_parts(value: npt.NDArray[Any], parts: Mapping[str, str], mesh: Mesh) -> list[npt.NDArray[Any]]:
    """For each device what it adds to ``value``, which is partial over the axes of ``parts``: other devices have values
    of other elements, so that no operation on the parts by themselves is that on their sum."""
    rng = np.random.default_rng(len(parts))

    def others() -> npt.NDArray[Any]:
        moved = rng.permutation(value.ravel()).reshape(value.shape)
        return np.where(np.isfinite(value) & np.isfinite(moved), moved, np.zeros_like(value)).astype(value.dtype)

    made: dict[tuple[int, ...], npt.NDArray[Any]] = {(): value}
    for name, op in parts.items():
        n = mesh.sizes[name]
        made = {(*at, r): x for at, whole in made.items() for r, x in enumerate(_parts_of(whole, n, op, others, rng))}
    places = (mesh.coordinates(rank) for rank in mesh.ranks)
    return [made[tuple(at[name] for name in parts)] for at in places]  # one for all replicas


def _parts_of(
    whole: npt.NDArray[Any], n: int, op: str, others: Callable[[], npt.NDArray[Any]], rng: np.random.Generator
) -> list[npt.NDArray[Any]]:
    if n == 1:
        return [whole]
    if op in ("max", "min"):
        weaker = np.minimum if op == "max" else np.maximum
        owner = rng.integers(0, n, whole.shape)
        return [np.where(owner == r, whole, weaker(whole, others())) for r in range(n)]
    if op == "product":
        signs = [rng.choice(np.array([-1, 1]), whole.shape).astype(whole.dtype) for _ in range(n - 1)]
        return [whole * np.prod(signs, 0, whole.dtype), *signs]
    rest = [others() if whole.dtype != np.bool_ else np.zeros_like(whole) for _ in range(n - 1)]
    total = whole * np.asarray(n, whole.dtype) if op == "avg" else whole
    return [total ^ sum(rest) if whole.dtype == np.bool_ else total - sum(rest), *rest]
