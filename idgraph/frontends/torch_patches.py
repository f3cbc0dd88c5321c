"""Functions of torch that cannot be captured as they stand, in a form that can.

Torch checks the variances of a loss, or the weights of a covariance, by reading numbers. While a program is captured
there are none; the checks become operations of the program. What torch says wrong of a result (how many elements a mask
can select that is larger than the tensor, the shape along an axis counted from the end) is asked in a form that it says
right.

The arguments of `from_torch`: example arguments, and functions made into modules that torch.export takes.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from idgraph.errors import FrontendError
from idgraph.frontends.decompositions import multilabel_margin
from idgraph.frontends.torch_arrays import load_torch

Function = Callable[..., Any]
_REDUCTIONS = ("none", "mean", "sum")  # by torch's numbers
FILE = __file__  # its lines run below the user's


def export_patches(strict: bool = False) -> Any:
    """A context in which torch's functions are replaced by those here; a strict capture reads code and calls none."""
    return contextlib.nullcontext() if strict else _mode()(_table())


@cache
def _mode() -> Any:
    torch: Any = load_torch("which from_torch reads programs of")

    class Replaced(torch.overrides.TorchFunctionMode):
        """Calls of the functions in a table go to those of ours."""

        def __init__(self, table: Mapping[Function, Function]) -> None:
            torch.overrides.TorchFunctionMode.__init__(self)
            self.table = table

        def __torch_function__(
            self, func: Function, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            given = dict(kwargs or {})
            own = self.table.get(func)
            if own is None:
                return func(*args, **given)
            return own(given.pop("input"), **given) if "input" in given else own(*args, **given)

    return Replaced


@cache
def _table() -> dict[Function, Function]:
    torch: Any = load_torch("which from_torch reads programs of")
    return {
        torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
        torch.masked_select: _masked_select, torch.Tensor.masked_select: _masked_select,
        torch.unique_consecutive: _unique_consecutive,
        torch.cov: _cov, torch.Tensor.cov: _cov, torch.corrcoef: _corrcoef, torch.Tensor.corrcoef: _corrcoef,
        torch.nn.functional.multilabel_margin_loss: _multilabel_margin_loss,
    }  # fmt: skip


def patched(module: Any) -> Any:
    """A graph of torch's functions with the loss that torch would take apart wrongly replaced; ``module`` stays.

    Of the others torch captures what they do; it has called them before it made the graph.
    """
    torch: Any = load_torch("whose graph it is")
    own = {f: _table()[f] for f in (torch.nn.functional.multilabel_margin_loss,)}
    if not any(node.op == "call_function" and node.target in own for node in module.graph.nodes):
        return module
    found = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    for node in found.graph.nodes:
        if node.op == "call_function":
            node.target = own.get(node.target, node.target)
    found.recompile()
    return found


def _gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Half of log(var) + (x - target)^2 / var; what torch refuses is refused in its words."""
    torch: Any = load_torch("which from_torch reads programs of")
    ways: dict[str, Function] = {"none": torch.positive, "mean": torch.mean, "sum": torch.sum}
    reduced = ways.get(reduction)
    if reduced is None:
        raise ValueError(f"{reduction} is not valid")
    if not isinstance(var, torch.Tensor):  # a number is checked without a tensor's value
        return torch.nn.functional.gaussian_nll_loss(x, target, var, full=full, eps=eps, reduction=reduction)
    wide = var if var.shape == x.shape else var.unsqueeze(-1) if var.shape == x.shape[:-1] else var
    unequal = [n for m, n in zip(x.shape, wide.shape, strict=False) if m != n]
    if wide.ndim != x.ndim or (unequal and sum(unequal) != 1):
        raise ValueError("var is of incorrect size")
    torch._assert_async(~(var < 0).any(), "var has negative entry/entries")
    limited = wide.clone()
    with torch.no_grad():  # the gradient is that of var itself
        limited.clamp_(min=eps)
    loss = 0.5 * (torch.log(limited) + (x - target) ** 2 / limited)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss)


def _multilabel_margin_loss(x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """The loss in which targets end at the first negative number; what torch refuses is refused in its words.

    Torch's own decomposition, which reads on behind that number, comes before those that a capture is given.
    """
    torch: Any = load_torch("which from_torch reads programs of")
    fits = x.shape == target.shape and 1 <= x.ndim <= 2 and x.numel() and x.is_floating_point()
    if args or not fits or not kwargs.keys() <= {"reduction"} or kwargs.get("reduction", "mean") not in _REDUCTIONS:
        return torch.nn.functional.multilabel_margin_loss(x, target, *args, **kwargs)
    return multilabel_margin(x, target, _REDUCTIONS.index(kwargs.get("reduction", "mean")))[0]


def _masked_select(x: Any, mask: Any) -> Any:
    """Both of one shape first: torch counts only the elements of the first as those that a mask can select."""
    torch: Any = load_torch("which from_torch reads programs of")
    return torch.masked_select(*torch.broadcast_tensors(x, mask))


def _unique_consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """With the axis counted from the front: torch describes another shape where it is counted from the end."""
    torch: Any = load_torch("which from_torch reads programs of")
    at = dim if dim is None or not -x.ndim <= dim < 0 else dim + x.ndim
    return torch.unique_consecutive(x, return_inverse=return_inverse, return_counts=return_counts, dim=at)


def _cov(x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """The covariances of rows, with weights of columns; where torch would refuse, torch is asked."""
    torch: Any = load_torch("which from_torch reads programs of")
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    given: list[Any] = [w for w in (fweights, aweights) if w is not None]
    whole = fweights is None or not (fweights.is_floating_point() or fweights.dtype == torch.bool)
    real = aweights is None or aweights.is_floating_point()
    fits = all(w.ndim < 2 and w.numel() == rows.shape[1] and not w.is_complex() for w in given)
    if x.ndim > 2 or x.dtype == torch.bool or not (whole and real and fits):
        return torch.cov(x, correction=correction, fweights=fweights, aweights=aweights)
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is not None and w.numel():
            torch._assert_async((w >= 0).all(), f"cov(): {name} cannot be negative")
    weights: Any = None if not given else given[0] if len(given) == 1 else given[0] * given[1]
    if weights is None:
        count = rows.shape[1]
        centred = rows - (rows.sum(1) / count).unsqueeze(1)
        return (centred @ centred.t().conj() / max(count - correction, 0)).squeeze()
    total = weights.sum()
    if weights.numel():
        torch._assert_async(total != 0, "cov(): weights sum to zero, can't be normalized")
    centred = rows - ((rows * weights).sum(1) / total).unsqueeze(1)
    less = correction if aweights is None or not correction else correction * (weights * aweights).sum() / total
    factor = (total - less).clamp(min=0)
    return (centred @ (centred * weights).t().conj() / factor).squeeze()


def _corrcoef(x: Any) -> Any:
    """Covariances divided by both deviations, within -1 and 1."""
    torch: Any = load_torch("which from_torch reads programs of")
    if x.is_complex():
        return torch.corrcoef(x)
    found = _cov(x)
    if not found.ndim:
        return found / found
    deviations = found.diag().sqrt()
    return (found / deviations.view(-1, 1) / deviations.view(1, -1)).clip(-1, 1)


def arguments_of(torch: Any, given: object) -> tuple[object, ...] | None:
    """The example arguments; a single tensor is one argument (a tuple of its rows is never meant)."""
    if given is None or isinstance(given, (tuple, list)):
        return None if given is None else tuple(cast("Sequence[object]", given))
    if isinstance(given, torch.Tensor):
        return (given,)
    raise FrontendError(
        f"example_args: {type(given).__name__} is not a list or tuple of arguments", hint="from_torch(f, (x, y))"
    )


def as_module(torch: Any, f: Callable[..., object]) -> object:
    """A module around a function. torch notes lines of frames called ``forward`` only, so that a copy has this name."""

    def called(*args: object, **kwargs: object) -> object:
        return f(*args, **kwargs)

    renamed: Callable[..., object] = f if has_signature(f) else called  # torch.sin has none, and export asks for it
    if isinstance(f, types.FunctionType):
        renamed = types.FunctionType(
            f.__code__.replace(co_name="forward"), f.__globals__, "forward", f.__defaults__, f.__closure__
        )
        renamed.__kwdefaults__ = f.__kwdefaults__
    module = torch.nn.Module()
    module.forward = renamed
    return module


def has_signature(f: Callable[..., object]) -> bool:
    try:
        inspect.signature(f)
    except (TypeError, ValueError):
        return False
    return True
