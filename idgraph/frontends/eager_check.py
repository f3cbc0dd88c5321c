"""The first call of a compiled function beside the same function in eager mode: results, arguments, gradients.

What is compared is what torch captured of the user's function, operation by operation as Python calls them, not a graph
that torch has rewritten: a decomposition of torch's that means something else is found too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from idgraph.errors import FrontendError
from idgraph.frontends.torch_arrays import load_torch

FARTHER = 4  # where terms cancel: the largest error over that of eager, or of inputs moved by one rounding
DRAWS = 3  # of inputs moved by one rounding each
# Relative to each value and to the largest one: eager and kernels each round once for each step.
NEAR = {"float64": 1e-9, "float32": 1e-4, "float16": 2.0**-6, "bfloat16": 2.0**-4}

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state that a call leaves: ``results`` flat, ``arguments`` after it, ``gradients`` by the number of the
    argument (None: it has none) for random gradients of the results, ``memory``: for each result the first argument in
    whose memory it lies."""

    results: tuple[Any, ...]
    arguments: tuple[Any, ...]
    memory: tuple[int | None, ...]
    gradients: Mapping[int, Any] | None = None  # None: the function has no derivative

    def parts(self) -> list[tuple[str, Any, bool]]:
        """(its words, the value, whether its strides are compared)."""
        found = [(f"result {n}", v, True) for n, v in enumerate(self.results)]
        found += [(f"argument {n} after the call", v, False) for n, v in enumerate(self.arguments)]
        return found + [(f"the gradient of argument {n}", v, False) for n, v in (self.gradients or {}).items()]


def compare_with_eager(compiled: Function, eager: Function, args: Sequence[Any], title: str) -> None:
    """Call both with copies of ``args`` and compare what they leave.

    Raises `FrontendError` for the first difference beyond rounding, and where eager raises and the kernels do not.
    """
    torch: Any = load_torch("whose results are compared")
    devices = {a.device.index for a in args if isinstance(a, torch.Tensor) and a.device.type == "cuda"}
    with torch.random.fork_rng(sorted(devices)):
        try:
            expected = _outcome(torch, eager, args)
        except Exception as refused:  # torch raises many kinds
            _raises_too(torch, compiled, args, title, refused)
            return
        found = _outcome(torch, compiled, args, expected.gradients is not None)
        _compare_outcomes(torch, eager, args, title, found, expected)


def _raises_too(torch: Any, compiled: Function, args: Sequence[Any], title: str, refused: Exception) -> None:
    try:
        with torch.no_grad():
            compiled(*_copies(torch, args))
    except Exception:
        return  # the call itself will raise it
    raise FrontendError(
        f"{title}: eager raises {type(refused).__name__}, the kernels do not",
        because=[str(refused).strip().partition("\n")[0][:200]],
    )


def _compare_outcomes(
    torch: Any, eager: Function, args: Sequence[Any], title: str, found: Outcome, expected: Outcome
) -> None:
    if len(found.results) != len(expected.results):
        raise FrontendError(f"{title}: {len(found.results)} results, eager has {len(expected.results)}")
    memory = [*found.memory, *(None for _ in (*found.arguments, *(found.gradients or ())))]
    theirs = [*expected.memory, *memory[len(found.memory) :]]
    wide: list[list[Any]] | None = None
    for number, ((words, x, strided), (_, y, _)) in enumerate(zip(found.parts(), expected.parts(), strict=True)):
        why = difference(torch, x, y, strided)
        if why is None and memory[number] != theirs[number]:
            why = f"it lies in {_owner(memory[number])}, eager's in {_owner(theirs[number])}"
        if why is None:
            continue
        if why.startswith("the largest difference"):
            wide = _in_float64(torch, eager, args) if wide is None else wide
            if _no_farther(torch, x, y, [values[number] for values in wide]):
                continue
        raise FrontendError(
            f"{title}: {words} is not eager's",
            because=[why],
            hint="please report it: options={'check': None} runs on, and the function in eager mode is right",
        )


def difference(torch: Any, x: Any, y: Any, strided: bool = True) -> str | None:
    """In what ``x`` is not ``y``, beyond rounding; None where it is."""
    if not isinstance(y, torch.Tensor) or not isinstance(x, torch.Tensor):
        same = x is y or (type(x) is type(y) and x == y)
        return None if same else f"it is {_repr_of(x)}, eager's {_repr_of(y)}"
    for word, a, b in (("shape", tuple(x.shape), tuple(y.shape)), ("dtype", x.dtype, y.dtype)):
        if a != b:
            return f"its {word} is {a}, eager's {b}"
    steps = [(s, t) for s, t, n in zip(x.stride(), y.stride(), x.shape, strict=True) if n > 1]
    if strided and x.numel() and any(s != t for s, t in steps):
        return f"its strides are {x.stride()}, eager's {y.stride()}"
    if not y.numel():
        return None
    a, b = _reals(torch, x), _reals(torch, y)
    near = NEAR.get(str(a.dtype).removeprefix("torch."))
    if near is None:
        return None if bool(torch.equal(a, b)) else f"{int((a != b).sum())} of {a.numel()} elements differ"
    a, b = a.double(), b.double()
    size = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
    if bool(torch.allclose(a, b, rtol=near, atol=near * size, equal_nan=True)):
        return None
    return f"the largest difference is {float((a - b).abs().nan_to_num(float('inf')).max()):.3g}"


def _owner(argument: int | None) -> str:
    return "memory of its own" if argument is None else f"the memory of argument {argument}"


def _repr_of(value: Any) -> str:
    return repr(value)[:80]


def _reals(torch: Any, x: Any) -> Any:
    return torch.view_as_real(x.detach().resolve_conj().resolve_neg()) if x.is_complex() else x.detach()


def _outcome(torch: Any, f: Function, args: Sequence[Any], derived: bool | None = None) -> Outcome:
    """A call with copies of ``args``; ``derived``: whether with gradients, None: where the function has them (one that
    writes to an argument that asks for a gradient has none)."""
    asks = [k for k, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]
    if derived or (derived is None and asks and torch.is_grad_enabled()):
        values = _copies(torch, args)
        try:
            return _outcome_of(torch, f, values, asks)
        except RuntimeError:
            if derived:
                raise
    values = [a.requires_grad_(False) if isinstance(a, torch.Tensor) else a for a in _copies(torch, args)]
    with torch.no_grad():
        return _outcome_of(torch, f, values, None)


def _outcome_of(torch: Any, f: Function, values: Sequence[Any], asks: Sequence[int] | None) -> Outcome:
    tree: Any = torch.utils._pytree
    torch.manual_seed(0)
    results = tree.tree_leaves(f(*values))
    gradients: dict[int, Any] | None = None
    if asks is not None:
        ends = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        gradients = dict(zip(asks, _gradients(torch, ends, [values[k] for k in asks]), strict=True))
    owners = [_memory_of(torch, v) for v in values]
    lies = [_memory_of(torch, r) for r in results]
    memory = tuple(owners.index(m) if m is not None and m in owners else None for m in lies)
    return Outcome(tuple(_detached(torch, results)), tuple(_detached(torch, values)), memory, gradients)


def _memory_of(torch: Any, value: Any) -> int | None:
    """Where the memory of a tensor with elements begins."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or not value.numel():
        return None
    return value.untyped_storage().data_ptr()


def _detached(torch: Any, values: Sequence[Any]) -> list[Any]:
    return [v.detach() if isinstance(v, torch.Tensor) else v for v in values]


def _gradients(torch: Any, ends: Sequence[Any], starts: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of ``starts`` for the same random gradients of ``ends`` in each call."""
    if not ends:
        return tuple(None for _ in starts)
    drawn = torch.Generator().manual_seed(0)
    given = [
        torch.randn(e.shape, generator=drawn, dtype=torch.complex128 if e.is_complex() else torch.float64).to(e)
        for e in ends
    ]
    return tuple(torch.autograd.grad(ends, starts, given, allow_unused=True))


def _copies(torch: Any, args: Sequence[Any]) -> list[Any]:
    """Copies of tensors that lie as they do: with their strides, and in one memory where they are."""
    memories: dict[int, Any] = {}

    def copy(a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return a
        if a.layout != torch.strided or a.is_conj() or a.is_neg():
            return a.detach().clone().requires_grad_(a.requires_grad)
        storage = a.untyped_storage()
        memory = memories.setdefault(storage.data_ptr(), storage.clone() if storage.data_ptr() else storage)
        made = torch.empty(0, dtype=a.dtype, device=a.device)
        return made.set_(memory, a.storage_offset(), a.shape, a.stride()).requires_grad_(a.requires_grad)

    return [copy(a) for a in args]


def _in_float64(torch: Any, eager: Function, args: Sequence[Any]) -> list[list[Any]]:
    """Results of eager in float64, then those for inputs moved by one rounding each, up or down, `DRAWS` times.

    Empty where an operation takes single precision only.
    """
    drawn: Any = torch.Generator().manual_seed(0)

    def moved(a: Any, roundings: int) -> Any:
        if not isinstance(a, torch.Tensor) or not (a.is_floating_point() or a.is_complex()):
            return a
        signs = torch.randint(0, 2, a.shape, generator=drawn).to(a.device) * 2 - 1
        made = a.detach().to(torch.complex128 if a.is_complex() else torch.float64)
        return (made * (1 + roundings * torch.finfo(a.dtype).eps * signs.double())).requires_grad_(a.requires_grad)

    try:
        made = [_outcome(torch, eager, [moved(a, min(n, 1)) for a in args]) for n in range(1 + DRAWS)]
    except (RuntimeError, TypeError):
        return []
    return [[v for _, v, _ in one.parts()] for one in made]


def _no_farther(torch: Any, x: Any, y: Any, wide: Sequence[Any]) -> bool:
    """Whether ``x`` is about as near to float64 as eager's ``y``, or as the result of inputs moved by one rounding.

    Where terms cancel (the gradient of a key's bias in attention, or of the sum of a layer norm) the result is
    nothing but rounding error. No tolerance relative to its size holds, and eager's own error may happen to be small.
    """
    if not wide or any(not isinstance(w, torch.Tensor) or w.shape != x.shape for w in wide):
        return False
    near, far, *rest = (_reals(torch, v).double() for v in (x, y, *wide))
    exact = rest[0]
    allowed = max(float((w - exact).abs().max()) for w in (far, *rest[1:]))
    return float((near - exact).abs().max()) <= FARTHER * allowed
