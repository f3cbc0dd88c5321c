"""Inductor's operations with torch's, at the points of one loop body."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from idgraph.arith import symbol
from idgraph.frontends.torch_arrays import load_torch

POINTS = 1 << 21  # points of a nest that are run; of more, some iterations
SCAN = 4096  # steps of a scan that are run one by one


class NotRun(Exception):
    """A body that is not run on numbers, and why; ``known``: as the page says."""

    def __init__(self, why: str, *, known: bool = False) -> None:
        super().__init__(why)
        self.known = known


class Outside(Exception):
    """An address outside of its memory."""

    def __init__(self, name: str, at: int, size: int) -> None:
        super().__init__(f"{name}[{at}], of a memory of {size} elements")
        self.name = name


class NumberedMemory(Protocol):
    """The memory that a body runs on."""

    torch: Any
    sizes: dict[str, int]
    home: dict[str, str]
    unfilled: set[str]
    constants: set[float]
    types: set[Any]

    def size_of(self, x: Any) -> int: ...

    def storage(self, name: str) -> Any: ...

    def base_of(self, name: str) -> int: ...


class LoopFormula:
    """A formula of Inductor's, of tensors of integers."""

    def __init__(self, torch: Any, names: Mapping[str, Any]) -> None:
        self.torch, self.names = torch, names

    def of(self, x: Any) -> Any:
        torch = self.torch
        if isinstance(x, (bool, int, float)):
            return torch.tensor(x)
        if x.is_Symbol:
            if str(x) not in self.names:
                raise NotRun(f"{x} has no number", known=True)
            return self.names[str(x)]
        if x.is_Integer:
            return torch.tensor(int(x))
        if x.is_Boolean and not x.args:
            return torch.tensor(bool(x))
        if x.is_number and not x.args:
            return torch.tensor(float(x), dtype=torch.float64)
        kind, args = type(x).__name__, [self.of(a) for a in x.args]
        made = _FORMULAS.get(kind)
        if made is None or not args:
            raise NotRun(f"a formula of {kind}")
        return made(torch, args)


def _folded(name: str) -> Callable[[Any, list[Any]], Any]:
    def fold(torch: Any, args: list[Any]) -> Any:
        out = args[0]
        for a in args[1:]:
            out = getattr(torch, name)(out, a)
        return out

    return fold


def _floor(torch: Any, args: list[Any]) -> Any:
    return torch.div(args[0], args[1], rounding_mode="floor")


_FORMULAS: Mapping[str, Callable[[Any, list[Any]], Any]] = {
    "Add": _folded("add"), "Mul": _folded("mul"), "Max": _folded("maximum"), "Min": _folded("minimum"),
    "And": _folded("logical_and"), "Or": _folded("logical_or"), "Not": lambda torch, a: torch.logical_not(a[0]),
    "Pow": _folded("pow"), "PowByNatural": _folded("pow"), "FloorDiv": _floor, "CleanDiv": _floor,
    "CeilDiv": lambda torch, a: -torch.div(-a[0], a[1], rounding_mode="floor"),
    "ModularIndexing": lambda torch, a: torch.remainder(torch.div(a[0], a[1], rounding_mode="floor"), a[2]),
    "Mod": lambda torch, a: torch.remainder(a[0], a[1]), "PythonMod": lambda torch, a: torch.remainder(a[0], a[1]),
    "Where": lambda torch, a: torch.where(a[0], a[1], a[2]), "Identity": lambda _, a: a[0],
    "Relational": _folded("eq"), "Equality": _folded("eq"), "Unequality": _folded("ne"),
    "StrictLessThan": _folded("lt"), "LessThan": _folded("le"), "StrictGreaterThan": _folded("gt"),
    "GreaterThan": _folded("ge"), "ToFloat": lambda torch, a: a[0].to(torch.float64),
    "TruncToInt": lambda torch, a: torch.trunc(a[0]).to(torch.int64),
    "FloorToInt": lambda torch, a: torch.floor(a[0]).to(torch.int64),
    "CeilToInt": lambda torch, a: torch.ceil(a[0]).to(torch.int64),
    "RoundToInt": lambda torch, a: torch.round(a[0]).to(torch.int64),
    "IntTrueDiv": lambda torch, a: a[0].to(torch.float64) / a[1], "FloatTrueDiv": lambda _, a: a[0] / a[1],
    "FloatPow": _folded("pow"), "Abs": lambda torch, a: torch.abs(a[0]), "sign": lambda torch, a: torch.sign(a[0]),
    "LShift": lambda torch, a: torch.bitwise_left_shift(a[0], a[1]),
    "RShift": lambda torch, a: torch.bitwise_right_shift(a[0], a[1]),
}  # fmt: skip


class NoEffects:
    """Inductor's operations that neither read nor compute anything."""

    def check_bounds(self, *args: Any, **kwargs: Any) -> None:
        return None

    def device_assert_async(self, condition: Any, message: str) -> Any:
        return condition

    def output(self, *args: Any) -> None:
        return None


class LoopPoints(NoEffects):
    """Operations at the points of a body; a value is a tensor [iterations, reduced points], or broadcasts to it."""

    def __init__(self, run: NumberedMemory, body: Any) -> None:
        torch = self.torch = run.torch
        self.run, self.noise = run, torch.Generator().manual_seed(0)
        loops = [(v, run.size_of(body.var_ranges[v])) for v in body.iter_vars if v in body.var_ranges]
        inner = [(v, run.size_of(body.var_ranges[v])) for v in body.reduce_vars if v in body.var_ranges]
        rows, self.width = math.prod(n for _, n in loops), math.prod(n for _, n in inner)
        most = max(POINTS // max(self.width, 1), 1)
        if self.width > POINTS:
            raise NotRun("it reduces over more points than are run", known=True)
        self.partly = rows > most
        flat = (
            torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:most]
            if self.partly
            else torch.arange(rows)
        )
        self.names: dict[str, Any] = {k: torch.tensor(v) for k, v in run.sizes.items()}
        for flat_of, group, shape in ((flat, loops, (-1, 1)), (torch.arange(self.width), inner, (1, -1))):
            for v, n in reversed(group):
                self.names[str(v)] = (flat_of % max(n, 1)).reshape(shape)
                flat_of = flat_of // max(n, 1)
        self.rows_run = len(flat)
        self.live: list[Any] = []  # masks around what runs
        self.written: dict[str, Any] = {}
        self.several: set[str] = set()

    # elements ---------------------------------------------------------------------------------------------------------

    def _at(self, index: Any) -> Any:
        return LoopFormula(self.torch, self.names).of(index)

    def _address(self, name: str, index: Any) -> Any:
        return self._at(index).to(self.torch.int64) + self.run.base_of(name)

    def _inside(self, name: str, at: Any, size: int) -> Any:
        """Addresses, those of points that are masked out within the memory; raises where one is outside."""
        bad = (at < 0) | (at >= size)
        for m in self.live:
            bad = bad & m
        if bool(bad.any()):
            wrong = at.expand(bad.shape)[bad]
            raise Outside(name, int(wrong[0]), size)
        return at.clamp(0, max(size - 1, 0))

    def load(self, name: str, index: Any) -> Any:
        home = self.run.home.get(name, name)
        flat = self.run.storage(name)
        if home in self.run.unfilled:
            raise NotRun(f"it reads {name}, whose numbers are not known", known=True)
        at = self._address(name, index)
        if not len(flat):
            return self.torch.zeros(at.shape, dtype=flat.dtype)
        return self._computed(flat[self._inside(name, at, len(flat))])

    def _computed(self, x: Any) -> Any:
        """Numbers of two bytes are computed with in four."""
        return x.to(self.torch.float32) if x.dtype in (self.torch.bfloat16, self.torch.float16) else x

    def store(self, name: str, index: Any, value: Any, mode: Any = None) -> None:
        torch, flat = self.torch, self.run.storage(name)
        at, value = torch.broadcast_tensors(self._address(name, index), torch.as_tensor(value))
        wide = torch.broadcast_shapes(at.shape, (self.rows_run, 1))
        at, value = (
            at.expand(wide).reshape(-1),
            converted(torch, value.expand(wide).reshape(-1), flat.dtype, self.noise),
        )
        if not len(at):
            return
        at = self._inside(name, at, len(flat))
        home = self.run.home.get(name, name)
        if mode is None:
            flat[at] = value
            same = (flat[at] == value) | (value != value)
            if not bool(same.all()):
                self.several.add(home)
        elif mode == "atomic_add":
            if self.partly:
                raise NotRun("it adds at more points than are run", known=True)
            flat.index_put_((at,), value, accumulate=True)
        else:
            raise NotRun(f"a store of mode {mode!r}")
        before = self.written.get(home)
        self.written[home] = at if before is None else torch.cat([before, at])

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        self.store(name, index, value)

    def indirect_indexing(self, value: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
        torch, n = self.torch, self._at(size)
        at = torch.as_tensor(value).to(torch.int64)
        name = f"at{len(self.names)}"
        self.names[name] = torch.where(at < 0, at + n, at) if wrap_neg else at
        return symbol(name).sympy()

    def index_expr(self, index: Any, dtype: Any) -> Any:
        return self._own(self._at(index), dtype)

    value_expr = index_expr

    def _number(self, value: Any) -> Any:
        """A Python number as a tensor that loses nothing of it."""
        return self.torch.tensor(value, dtype=self.torch.float64 if isinstance(value, float) else None)

    def constant(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, float) and math.isfinite(value):
            self.run.constants.add(abs(value))
        return self._computed(self._own(self._number(value), dtype))

    def _own(self, x: Any, dtype: Any) -> Any:
        """A number of a type of its own, which the other operand's does not change."""
        self.run.types.add(dtype)
        return x.to(dtype).reshape(x.shape or (1, 1))

    def masked(self, mask: Any, body: Callable[[], Any], other: Any) -> Any:
        self.live.append(mask)
        try:
            inner = body()
        finally:
            self.live.pop()
        return self.torch.where(mask, inner, self._number(other).to(inner.dtype))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return self.torch.where(condition.to(self.torch.bool), self._tensor(a), self._tensor(b))

    def _tensor(self, a: Any) -> Any:
        return a if isinstance(a, self.torch.Tensor) else self.torch.tensor(a)

    def to_dtype(self, x: Any, dtype: Any, src_dtype: Any = None, use_compute_types: bool = True) -> Any:
        self.run.types.add(dtype)
        made = converted(self.torch, self._tensor(x), dtype, self.noise)
        return self._computed(made) if use_compute_types else made

    def to_dtype_bitcast(self, x: Any, dtype: Any, src_dtype: Any) -> Any:
        return self._computed(x.to(src_dtype).view(dtype))

    # over reduced points ----------------------------------------------------------------------------------------------

    def _spread(self, x: Any) -> Any:
        return self._tensor(x).expand(self.rows_run, self.width)

    def reduction(self, dtype: Any, src_dtype: Any, kind: str, value: Any) -> Any:
        torch = self.torch
        self.run.types.add(dtype)
        parts = [self._spread(v) for v in (value if isinstance(value, (tuple, list)) else (value,))]
        x = parts[0]
        if kind in ("argmax", "argmin"):
            number = parts[1] if len(parts) > 1 else torch.arange(self.width).expand(x.shape)
            x = x.to(torch.int8) if x.dtype == torch.bool else x
            best = (x.amax if kind == "argmax" else x.amin)(1, keepdim=True)
            hit = (x == best) | x.isnan()
            hit = torch.where(x.isnan().any(1, keepdim=True), x.isnan(), hit)
            return torch.where(hit, number.to(torch.int64), torch.iinfo(torch.int64).max).amin(1, keepdim=True)
        if kind == "any":
            return x.to(torch.bool).any(1, keepdim=True)
        if kind in ("sum", "prod"):
            wide = dtype if not dtype.is_floating_point else torch.float64
            return self._computed(getattr(x.to(wide), kind)(1, keepdim=True).to(dtype))
        if kind in ("max", "min"):
            return (x.amax if kind == "max" else x.amin)(1, keepdim=True)
        if kind == "xor_sum":
            out = x[:, :1]
            for k in range(1, self.width):
                out = out ^ x[:, k : k + 1]
            return out
        if kind == "welford_reduce":
            mean = x.to(torch.float64).mean(1, keepdim=True)
            square = (x - mean).square().sum(1, keepdim=True)
            return mean.to(x.dtype), square.to(x.dtype), torch.full_like(mean, self.width).to(x.dtype)
        if kind == "welford_combine":
            means, squares, counts = (p.to(torch.float64) for p in parts)
            count = counts.sum(1, keepdim=True)
            mean = (means * counts).sum(1, keepdim=True) / count
            square = (squares + counts * (means - mean).square()).sum(1, keepdim=True)
            return tuple(v.to(x.dtype) for v in (mean, square, count))
        if kind == "online_softmax_reduce":
            top = x.amax(1, keepdim=True)
            return top, (x - top).exp().sum(1, keepdim=True)
        if kind == "dot":
            return (x * parts[1]).sum(1, keepdim=True)
        raise NotRun(f"a reduction {kind}")

    def scan(self, dtypes: Any, combine_fn: Any, values: Any) -> Any:
        if self.width > SCAN:
            raise NotRun("a scan of more steps than are run", known=True)
        parts = [self._spread(v).to(d) for v, d in zip(values, dtypes, strict=True)]
        steps = [tuple(p[:, :1] for p in parts)]
        for k in range(1, self.width):
            steps.append(tuple(combine_fn(steps[-1], tuple(p[:, k : k + 1] for p in parts))))
        return tuple(self.torch.cat([s[j].expand(self.rows_run, 1) for s in steps], 1) for j in range(len(parts)))

    def sort(self, dtypes: Any, values: Any, stable: bool, descending: bool) -> Any:
        parts = [self._spread(v) for v in values]
        found = self.torch.sort(parts[0], dim=1, stable=True, descending=descending)
        return (found.values, *(p.gather(1, found.indices) for p in parts[1:]))

    # elementwise ------------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _RANDOM:
            raise NotRun("its numbers are random", known=True)
        torch = self.torch
        found = _OPERATIONS.get(name) or getattr(torch, name, None) or getattr(torch.special, name, None)
        if found is None or name in _OTHERS:
            raise NotRun(f"the operation {name}")
        if isinstance(found, str):
            found = getattr(torch, found, None) or getattr(torch.special, found)

        def computed(*args: Any, **kwargs: Any) -> Any:
            try:
                return found(*(self._tensor(a) if isinstance(a, (bool, int, float)) else a for a in args), **kwargs)
            except (RuntimeError, TypeError) as error:
                raise NotRun(f"the operation {name}: {str(error)[:80]}") from None

        return computed


UNDEFINED = 16  # integers of which a float out of range may be any


def converted(torch: Any, x: Any, dtype: Any, noise: Any, turn: int = 0) -> Any:
    """``x`` of another type; a float that an integer type has not may be any integer there: another one at each of
    `UNDEFINED` turns of the same noise.
    """
    made = x.to(dtype)
    if not x.is_floating_point() or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return made
    info, whole = torch.iinfo(dtype), x.double().trunc()
    inside = (whole >= info.min) & (whole < float(info.max) + 1)
    if bool(inside.all()):
        return made
    some = torch.tensor([info.min, info.max, *range(UNDEFINED - 2)], dtype=dtype)
    drawn = torch.randint(0, UNDEFINED, made.shape, generator=noise)
    return torch.where(inside, made, some[(drawn + turn) % UNDEFINED])


def _truncated(a: Any, b: Any) -> Any:
    torch = load_torch("whose Inductor is checked")
    return torch.div(a, _divisor(torch, a, b), rounding_mode="trunc")


def _floored(a: Any, b: Any) -> Any:
    torch = load_torch("whose Inductor is checked")
    return torch.div(a, _divisor(torch, a, b), rounding_mode="floor")


def _divisor(torch: Any, a: Any, b: Any) -> Any:
    """``b``; 1 in place of 0 and, under the least integer, of -1: both stop the process."""
    least = (a == torch.iinfo(a.dtype).min) & (b == -1) if not a.is_floating_point() else False
    return torch.where((b == 0) | least, 1, b)


def _rounding(name: str) -> Callable[..., Any]:
    def rounded(x: Any, dtype: Any) -> Any:
        return (x if name == "round" and not x.is_floating_point() else getattr(x, name)()).to(dtype)

    return rounded


_OPERATIONS: Mapping[str, Any] = {
    "truediv": "true_divide", "int_truediv": "true_divide", "mod": "fmod", "floordiv": _floored, "truncdiv": _truncated,
    "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift", "identity": lambda x: x, "relu": "relu",
    "fma": lambda a, b, c: a * b + c, "mul_rn": "mul", "div_rn": "true_divide", "floor_to_int": _rounding("floor"),
    "ceil_to_int": _rounding("ceil"), "trunc_to_int": _rounding("trunc"), "round_to_int": _rounding("round"),
    "modified_bessel_i0": "i0", "gammainc": "gammainc", "igamma": "gammainc", "igammac": "gammaincc",
    "add": lambda a, b: a | b if a.dtype == b.dtype and str(a.dtype) == "torch.bool" else a + b,
}  # fmt: skip
_RANDOM = frozenset({"rand", "rand_eager", "randn", "randint64", "load_seed"})
_OTHERS = frozenset({"bucketize", "inline_asm_elementwise", "partial_accumulate", "dot", "halide_clamp"})
