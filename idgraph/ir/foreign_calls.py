"""Errors for operations of other libraries' arrays that tensors of a fusion lack, each with the way to write it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from idgraph.errors import OperationError, nearest, user_line

ELSEWHERE = {
    "view": "ig.reshape(x, shape)", "size": "x.shape", "dim": "x.ndim", "t": "x.T", "to": "ig.cast(x, dtype)",
    "astype": "ig.cast(x, dtype)", "type": "ig.cast(x, dtype)", "float": 'ig.cast(x, "float32")',
    "half": 'ig.cast(x, "float16")', "int": 'ig.cast(x, "int32")', "clone": "ig.copy(x)", "contiguous": "ig.copy(x)",
    "numpy": "ig.emit(f).run(...)", "item": "ig.emit(f).run(...)", "tolist": "ig.emit(f).run(...)",
    "concatenate": "ig.cat([x, ...], dim=0)", "swapaxes": "ig.transpose(x, 0, 1)", "max": "ig.amax(x)",
    "min": "ig.amin(x)", "moveaxis": "ig.permute(x, dims)", "power": "ig.pow(x, y)", "absolute": "ig.abs(x)",
    "arctan2": "ig.atan2(x, y)", "less": "ig.lt(x, y)", "greater": "ig.gt(x, y)", "clip": "ig.maximum(x, y)",
    "clamp": "ig.minimum(ig.maximum(x, low), high)", "masked_fill": "ig.where(mask, value, x)", "numel": "x.shape",
    "backward": "ig.from_torch(function, args), which imports the backward too", "detach": "ig.copy(x)",
    "cpu": "ig.emit(f, target=...)", "cuda": "ig.emit(f, target=...)", "device": "ig.emit(f, target=...)",
    "compute_at": "x.inline(position)", "computeAt": "x.inline(position)", "inlineAt": "x.inline(position)",
    "compute_inline": "ig.schedule.inline_most(f)", "unroll": 'x.parallelize(axis, "unroll")',
    "bind": 'x.parallelize(axis, "threadIdx.x")', "fuse": "x.merge(outer, inner)", "tile": "x.split(axis, factor)",
    "set_scope": 'x.set_memory("shared")', "reorder_loops": "x.reorder({old: new})",
    **dict.fromkeys(
        ("sort", "argsort", "median", "argmax", "argmin", "quantile", "acos", "asin", "atan", "sinh", "cosh"),
        "ig.from_torch(function, args)",
    ),
    "gelu": "x * 0.5 * (1.0 + ig.erf(x * 0.7071067811865476))", "outer": "ig.unsqueeze(x, 1) * y",
    "logsumexp": "ig.log(ig.sum(ig.exp(x), 1))", "split": "x[:n]", "chunk": "x[:n]",
    "einsum": "ig.matmul(x, y), or unsqueeze, multiply and ig.sum", "linear": "ig.matmul(x, w.T) + b",
    "arange": "ig.iota(n, fusion=f)", "zeros": "ig.full(shape, 0.0, fusion=f)", "ones": "ig.full(shape, 1.0, fusion=f)",
    "tensor": 'f.input("x", shape)', "rfactor": "ig.reshape(x, shape), then one reduction for each part",
    "cache_read": "ig.copy(x)", "cache_write": "ig.copy(x)", "cacheAfter": "ig.copy(x)", "cacheBefore": "ig.copy(x)",
    "set_layout": "x.set_allocation(x.logical)", "stride_order": "x.set_allocation(x.logical)",
}  # fmt: skip
"""Names of torch, NumPy, nvFuser and TVM whose meaning has another name here, as it is written for a tensor x."""

_UFUNCS = {
    "add": "__add__", "subtract": "__sub__", "multiply": "__mul__", "divide": "__truediv__", "power": "__pow__",
    "floor_divide": "__floordiv__", "remainder": "__mod__", "less": "__lt__", "less_equal": "__le__",
    "greater": "__gt__", "greater_equal": "__ge__", "bitwise_and": "__and__", "bitwise_or": "__or__",
    "bitwise_xor": "__xor__",
}  # fmt: skip
_REFLECTED = {
    "__add__": "__radd__", "__sub__": "__rsub__", "__mul__": "__rmul__", "__truediv__": "__rtruediv__",
    "__pow__": "__rpow__", "__floordiv__": "__rfloordiv__", "__mod__": "__rmod__", "__lt__": "__gt__",
    "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__", "__and__": "__rand__", "__or__": "__ror__",
    "__xor__": "__rxor__",
}  # fmt: skip


class MissingAttribute(OperationError, AttributeError):
    """A tensor has no attribute of this name; the hint says which function does it.

    >>> import idgraph as ig
    >>> ig.Fusion("f").input("x", shape=(4,)).exp()
    Traceback (most recent call last):
    idgraph.ir.foreign_calls.MissingAttribute: tensor x has no attribute 'exp': operations are functions
      at ...
      hint: ig.exp(x)
    """


def _functions() -> dict[str, Callable[..., object]]:
    """The operations of the package by name, as far as it is loaded."""
    package = sys.modules[__name__.partition(".")[0]]
    names: list[str] = [*getattr(package, "__all__", ()), *getattr(package, "BUILTIN_NAMES", ())]
    return {n: vars(package)[n] for n in names if n.islower() and callable(vars(package).get(n))}


def _shown(tensor: str) -> str:
    return tensor if tensor.isidentifier() else "x"


def written(word: str, tensor: str, own: tuple[str, ...] = ()) -> str:
    """The form of another library's ``word`` for a tensor here; "" where nothing like it is known."""
    known = _functions()
    shown = _shown(tensor)
    if word not in own and (word.rstrip("_") in ELSEWHERE or word.rstrip("_") in known):
        word = word.rstrip("_")  # torch's name of what changes its argument
    if word in ELSEWHERE:
        return re.sub(r'(?<![.\w"])x\b', lambda _: shown, ELSEWHERE[word])
    if word in known:
        function: Any = known[word]
        code = getattr(function, "__wrapped__", function).__code__
        inner = getattr(function, "__wrapped__", function)
        needed = list(code.co_varnames[1 : code.co_argcount - len(inner.__defaults__ or ())])
        if code.co_flags & 4:  # inspect.CO_VARARGS
            needed.append(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        return f"ig.{word}({', '.join((shown, *needed))})"
    near = nearest(word, (*known, *own))
    return f"did you mean {shown}.{near}?" if near in own else f"did you mean ig.{near}({shown})?" if near else ""


class UnsupportedArrayApi:
    """The special methods by which Python, NumPy and torch ask a tensor for what an array can do."""

    __slots__ = ()

    def __getattr__(self, word: str) -> NoReturn:
        if word.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {word!r}")
        own = tuple(n for n in dir(type(self)) if not n.startswith("_"))
        name = _name(self)
        hint = written(word, name, own)
        why = ": operations are functions" if "ig." in hint or not hint else ""
        hint = hint or f"dir(ig) has the operations, dir({_shown(name)}) the schedule steps"
        raise MissingAttribute(f"tensor {name} has no attribute {word!r}{why}", where=user_line(), hint=hint)

    def __setitem__(self, index: object, value: object) -> NoReturn:
        name = _name(self)
        raise OperationError(
            f"tensor {name} cannot be written to: each tensor is made once, by one operation",
            where=user_line(),
            hint="ig.slice_scatter(x, source, ...) for a slice, ig.index_put(x, indices, values) for elements, "
            "ig.where(condition, value, x) where a condition holds; each makes a new tensor",
        )

    def __delitem__(self, index: object) -> NoReturn:
        raise OperationError(
            f"tensor {_name(self)} cannot be cut in place", where=user_line(), hint="take slices and join: ig.cat"
        )

    def __len__(self) -> NoReturn:
        raise OperationError(
            f"tensor {_name(self)} has no length while a fusion is built",
            where=user_line(),
            hint=f"{_shown(_name(self))}.shape[0] is the extent of its first axis",
        )

    def __float__(self) -> NoReturn:
        raise _no_numbers(self, "a number")

    def __int__(self) -> NoReturn:
        raise _no_numbers(self, "a number")

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise _no_numbers(self, "a NumPy array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> object:
        """NumPy's scalars are numbers to operators; nothing else of NumPy takes tensors."""
        operator = _UFUNCS.get(ufunc.__name__, "")
        if method == "__call__" and operator and not kwargs and len(inputs) == 2:
            a, b = inputs
            other = b if a is self else a
            if getattr(other, "shape", None) == () and hasattr(other, "item"):
                return getattr(self, operator if a is self else _REFLECTED[operator])(other.item())
        raise _unsupported(self, f"np.{ufunc.__name__}")

    def __array_function__(self, function: Any, _types: object, _args: object, _kwargs: object) -> NoReturn:
        raise _unsupported(self, f"np.{function.__name__}")

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: object, args: tuple[Any, ...] = (), _kwargs: Mapping[str, Any] | None = None
    ) -> NoReturn:
        mine = next((a for a in args if isinstance(a, cls)), None)
        raise _unsupported(mine, f"torch.{getattr(function, '__name__', 'function')}")


def _name(what: object) -> str:
    return str(getattr(what, "name", "x"))


def _no_numbers(what: object, wanted: str) -> OperationError:
    return OperationError(
        f"tensor {_name(what)} is not {wanted}: it has values when kernels of its fusion run",
        where=user_line(),
        hint='ig.emit(f).run({"x": array}) gives the arrays of the outputs',
    )


def _unsupported(what: object, function: str) -> OperationError:
    word = function.partition(".")[2]
    return OperationError(
        f"{function} takes arrays, and {_name(what)} is a tensor of a fusion",
        where=user_line(),
        hint=written(word, _name(what)) or "operations are functions of idgraph: dir(ig)",
    )
