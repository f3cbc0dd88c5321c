"""Rewrites before Inductor's loops (decompositions, passes over the graph) judged by values: both run and compared.

Not a proof: random numbers for floats, the given integers. A wrong element is another number almost surely. Results in
float32 are given 1e-3, narrower ones 5e-2, of the size of the values; results of random operations are not compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

from idgraph.check.report import CheckRow, Difference
from idgraph.frontends.torch_arrays import load_torch

STAGE = "graph"


def copies(args: Sequence[Any], *, drawn: bool) -> tuple[Any, ...] | None:
    """Arguments with memory of their own, strides kept; ``drawn``: floats are random numbers. None where two share
    memory: an update of one is an update of the other.
    """
    torch = load_torch("whose Inductor is checked")
    seen: set[int] = set()
    maker = torch.Generator().manual_seed(0)  # the same numbers in each run: a verdict is the same too

    def fresh(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        if t.layout != torch.strided or t.untyped_storage().data_ptr() in seen - {0}:
            raise _Shared
        seen.add(t.untyped_storage().data_ptr())
        made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        with torch.no_grad():
            made.copy_(torch.randn(t.shape, generator=maker) if drawn and t.is_floating_point() else t)
        return made.requires_grad_(t.requires_grad)

    try:
        return cast("tuple[Any, ...]", torch.utils._pytree.tree_map(fresh, tuple(args)))
    except (_Shared, RuntimeError):
        return None


class _Shared(Exception):
    """Two arguments in one memory, or one that is not an array."""


def results(torch: Any, out: Any, args: Sequence[Any]) -> list[Any]:
    """Every tensor that a call gives: results, arguments as they are then, gradients of the sum of the results."""
    flat = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    given = [t for t in torch.utils._pytree.tree_leaves(tuple(args)) if isinstance(t, torch.Tensor)]
    wanted = [t for t in flat if t.requires_grad]
    if wanted and all(t.grad is None for t in given):
        torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])
    grads = [t.grad for t in given if t.is_leaf and t.grad is not None]
    return [t.detach().clone() for t in (*flat, *given, *grads)]


def judged(name: str, what: str, wanted: Sequence[Any], found: Sequence[Any], again: Sequence[Any] | None) -> CheckRow:
    """Whether two runs gave the same; ``again``: the first one once more, with other random numbers of its own."""
    if again is not None and any(differs(a, b) is not None for a, b in zip(wanted, again, strict=False)):
        return CheckRow(
            name, "", "unknown", because=f"{what}: its values are random, they are not compared", stage=STAGE
        )
    if len(wanted) != len(found):
        because = f"{what}: {len(found)} tensors for {len(wanted)}"
        return CheckRow(name, "", "unknown", because=because, stage=STAGE)
    for k, (a, b) in enumerate(zip(wanted, found, strict=True)):
        gap = differs(a, b)
        if gap is not None:
            told = Difference({}, f"result {k}{list(gap[0])}", gap[2], gap[1], "")
            because = f"{what}: another value than the program's"
            return CheckRow(name, f"result {k}", "refuted", "write", because, told, STAGE, name)
    return CheckRow(
        name, "", "tested", "write", f"{what}: {len(found)} results equal at random inputs", None, STAGE, name
    )


def differs(a: Any, b: Any, least: float = 1.0, slack: float | None = None) -> tuple[tuple[int, ...], str, str] | None:
    """The first element in which two tensors differ, with both values; shapes that differ, at no element. Numbers below
    ``least`` are small; ``slack``: what may differ, of the size of the values.
    """
    torch = load_torch("whose Inductor is checked")
    if a.shape != b.shape:
        return (), f"shape {list(a.shape)}", f"shape {list(b.shape)}"
    if a.dtype != b.dtype:
        return (), str(a.dtype), str(b.dtype)
    if not (a.is_floating_point() or a.is_complex()):
        bad = a != b
    else:
        wide = torch.complex128 if a.is_complex() else torch.float64
        x, y = a.to(wide), b.to(wide)
        slack = slack or (5e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-3)
        finite = x.abs()[x.abs().isfinite()]
        size = finite.mean() if finite.numel() else x.abs().sum()
        bad = ~(((x - y).abs() <= slack * (least + size + x.abs())) | (x == y) | (x.isnan() & y.isnan()))
    if not bool(bad.any()):
        return None
    at = tuple(int(k) for k in bad.nonzero()[0])
    return at, f"{a[at].item():g}", f"{b[at].item():g}"


def eager(fn: Callable[..., Any], args: Sequence[Any], seed: int) -> list[Any] | Exception | None:
    """The program's results without a compiler, or the error that it raises; None where it cannot be run twice."""
    torch = load_torch("whose Inductor is checked")
    try:
        own = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
        given = copies(args, drawn=False)
    except Exception:  # a module that cannot be copied
        return None
    if given is None:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            out = own(*given)
        except Exception as error:  # the program may raise anything
            return error
        try:
            return results(torch, out, given)
        except Exception:  # of its gradients: it is run for its values alone
            return None


def accepted(name: str, error: Exception) -> CheckRow:
    """A row for a program that raises an error without a compiler, and gives a result with one."""
    because = "graphs that torch made of it: they take arguments that the program refuses"
    what = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:120]}"
    return CheckRow(name, "", "refuted", "read", because, Difference({}, "result 0", "a value", what, ""), STAGE, name)


def sharing(
    name: str, wanted: Sequence[Any], given: Sequence[Any], names: Sequence[str], found: Sequence[str]
) -> list[CheckRow]:
    """A row for each result in the memory of an argument, where the graph's is in its own; ``found``: the memories."""

    def memory(t: Any) -> Any:
        return t.untyped_storage().data_ptr() if hasattr(t, "untyped_storage") else None

    rows: list[CheckRow] = []
    for k, (t, home) in enumerate(zip(wanted, found, strict=False)):
        own = memory(t)
        if own and home in names and own not in {memory(x) for x in given}:
            told = Difference({}, f"result {k}", f"the memory of {home}", "memory of its own", "")
            because = "a result shares memory with an argument that is updated in place"
            rows.append(CheckRow(f"result {k}", home, "refuted", "write", because, told, "after", name))
    return rows
