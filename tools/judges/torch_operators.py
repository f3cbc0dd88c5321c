"""Samples of PyTorch's own operator database as functions of tensors, and what their results are judged by."""

# torch gives its private modules no types:
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch

torch: Any = import_module("torch")  # its types are not known to the checker

Tensor = Any  # torch.Tensor
NARROW = (torch.float32, torch.float16, torch.bfloat16)
# Not functions of tensors alone: random numbers, factories of uninitialised memory, and tests of the harness itself.
NO_FUNCTIONS = ("rand", "empty", "normal", "bernoulli", "multinomial", "dropout", "uniform", "exponential", "geometric",
                "cauchy", "log_normal", "new_empty", "jiterator", "fractional_max_pool", "rrelu",
                "lowrank")  # fmt: skip


def described(only: str = "") -> list[Any]:
    """Operators that are functions, of those whose full name has ``only`` in it; made on the first call of torch's six
    hundred descriptions."""
    op_db: list[Any] = import_module("torch.testing._internal.common_methods_invocations").op_db
    return [o for o in op_db if only in o.full_name and not any(w in o.name for w in NO_FUNCTIONS)]


def function_of(op: Callable[..., Any], sample: Any) -> tuple[Callable[..., Any], tuple[Tensor, ...]] | None:
    """The call of a sample as a function of its tensors only, and these; None where it has none."""
    flat: list[Tensor] = []

    def hole(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            flat.append(value)
            return len(flat) - 1, "hole"
        if isinstance(value, (list, tuple)):
            return [hole(v) for v in value]
        return value

    args, kwargs = [hole(a) for a in (sample.input, *sample.args)], {k: hole(v) for k, v in sample.kwargs.items()}
    if not flat or any(t.layout is not torch.strided or t.is_complex() for t in flat) or kwargs.get("dropout_p"):
        return None

    def filled(value: Any, tensors: Sequence[Tensor]) -> Any:
        if isinstance(value, tuple) and len(value) == 2 and value[1] == "hole":
            return tensors[value[0]]
        return [filled(v, tensors) for v in value] if isinstance(value, list) else value

    def call(*tensors: Tensor) -> Any:
        exact = any(t.dtype is torch.float64 for t in tensors)  # in float64 no argument asks for less
        given = {k: torch.float64 if exact and v in NARROW else filled(v, tensors) for k, v in kwargs.items()}
        return op(*(filled(a, tensors) for a in args), **given)

    return call, tuple(flat)


def likeness(value: Any) -> Hashable:
    """What calls have in common that differ in the values of their tensors only."""
    match value:
        case torch.Tensor():
            return tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.is_neg()
        case list() | tuple():
            return type(value), tuple(map(likeness, value))
        case dict():
            return tuple((k, likeness(v)) for k, v in value.items())
        case None | bool() | int() | float() | complex() | str() | slice() | torch.dtype() | torch.memory_format():
            return type(value), repr(value)  # 0.0 is not -0.0, nor False
        case _:
            return id(value)


def no_farther(call: Callable[..., Any], tensors: Sequence[Tensor], found: Any, wanted: Any) -> bool:
    """True where results are at most twice as far from float64 as eager's, which rounds between steps."""
    whole = not any(t.is_floating_point() for t in tensors)  # whole numbers of which a float is made
    try:
        exact = call(*(t.double() if whole or t.is_floating_point() else t.clone() for t in tensors))
    except Exception:  # an index is not a float
        return False
    rows = [x if isinstance(x, (list, tuple)) else (x,) for x in (found, wanted, exact)]
    if not any(w.is_floating_point() for w in rows[1]):
        return False
    return all(_as_good(f, w, e) if w.is_floating_point() else torch.equal(f, w) for f, w, e in zip(*rows))


def _as_good(found: Tensor, wanted: Tensor, exact: Tensor) -> bool:
    """Of one result: eager's ``wanted`` where it is finite, else the float64 result rounded to its type."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype or exact.shape != wanted.shape:
        return False
    rounded = exact.to(wanted.dtype)
    lost = ~wanted.isfinite() & rounded.isfinite()
    try:
        torch.testing.assert_close(found[lost], rounded[lost])
        rest = ~lost & exact.isfinite() & wanted.isfinite()
        torch.testing.assert_close(found[~lost & ~rest], wanted[~lost & ~rest], equal_nan=True)
    except AssertionError:
        return False
    near, far = ((x.double() - exact.double())[rest].abs() for x in (found, wanted))
    return near.numel() == 0 or float(near.max()) <= 2 * float(far.max())


# behind torch.compile -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """A sample of an operator as a function of its tensors."""

    name: str
    call: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    gradients: bool


def cases(first: int = 0, every: int = 1, only: str = "", names: Container[str] | None = None) -> Iterator[Case]:
    """A case of each operator that is a function of tensors, gives tensors, and that eager torch can do."""
    for op in described(only)[first::every]:
        if names is not None and op.full_name not in names:
            continue
        if torch.float32 not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        sample = _first_sample(op)
        made = None if sample is None else function_of(op.op, sample)
        if made is None:
            continue
        call, tensors = made
        try:
            results = flat(call(*(t.clone() for t in tensors)))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        if results and all(isinstance(r, torch.Tensor) for r in results):
            yield Case(op.full_name, call, tensors, op.supports_autograd)


def _first_sample(op: Any) -> Any:
    """The operator's first sample; None where it has none.

    For each sample torch reads the sources of the whole stack, to find a test case of its own that asks: here is none.
    """
    modules = ("common_utils", "opinfo.core")
    with ExitStack() as stack:
        for name in modules:
            stack.enter_context(patch(f"torch.testing._internal.{name}.extract_test_fn", lambda: None))
        return next(iter(op.sample_inputs("cpu", torch.float32)), None)


def flat(results: Any) -> list[Any]:
    """One result, or those of a tuple."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def together(group: Sequence[Case]) -> tuple[Callable[..., Any], list[Tensor]]:
    """The cases as one function, which gives all results, and all their tensors."""
    counts = [len(c.tensors) for c in group]
    calls = [c.call for c in group]

    def work(*given: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        at = 0
        for call, count in zip(calls, counts, strict=True):
            made = call(*given[at : at + count])
            found += list(made) if isinstance(made, (tuple, list)) else [made]
            at += count
        return found

    return work, [t for c in group for t in c.tensors]


def step(call: Callable[..., Any], tensors: Sequence[Tensor], wanted: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Results, and the gradients of the tensors that want one."""
    given = [t.clone().requires_grad_(w and t.is_floating_point()) for t, w in zip(tensors, wanted, strict=True)]
    results = flat(call(*given))
    ends = [r for r in results if r.requires_grad and r.is_floating_point()]
    asked = [t for t in given if t.requires_grad]
    if not ends or not asked:
        return results, []
    seeds = [torch.linspace(-1, 1, r.numel(), dtype=r.dtype).reshape(r.shape) for r in ends]
    return results, list(torch.autograd.grad(ends, asked, seeds, allow_unused=True))


def differences(group: Sequence[Case], log: Callable[[str], object]) -> list[str]:
    """A line for each result or gradient that is not eager's."""
    torch._dynamo.reset()
    call, tensors = together(group)
    wants = [_differentiable(c) for c in group for _ in c.tensors]
    results, gradients = step(call, tensors, wants)
    fast = torch.compile(call, backend="idgraph", options={"log": log})
    found, mine = step(fast, tensors, wants)
    told: list[str] = []
    for what, a, b in (("result", found, results), ("gradient", mine, gradients)):
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            if x is None or y is None:  # torch captures a gradient that is zero everywhere as zeros
                given = y if x is None else x
                if given is not None and bool(given.any()):
                    told.append(f"{what} {n} of {', '.join(c.name for c in group)} is none")
            elif not _alike(x, y):
                told.append(f"{what} {n} of {', '.join(c.name for c in group)}: {_apart(x, y)}")
    if told and len(group) > 1:  # one by one, to name it, and to compare it with float64
        return [t for c in group for t in differences([c], log)]
    if told and all(t.startswith("result") for t in told):
        return [] if no_farther(group[0].call, group[0].tensors, tuple(found), tuple(results)) else told
    return told


def _differentiable(c: Case) -> bool:
    """Whether eager torch has gradients of it."""
    if not c.gradients:
        return False
    try:
        step(c.call, c.tensors, [True] * len(c.tensors))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _alike(x: Tensor, y: Tensor) -> bool:
    try:
        torch.testing.assert_close(x, y, equal_nan=True)
    except AssertionError:
        return False
    return True


def _apart(x: Tensor, y: Tensor) -> str:
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{x.dtype}{tuple(x.shape)}, not {y.dtype}{tuple(y.shape)}"
    return f"{float((x.double() - y.double()).abs().nan_to_num().max()):.3g} apart"
