"""Inputs that loop bodies run on: random numbers, numbers that the bodies have, and the limits of the element types.

An integer input is drawn at the limits of the types as a float is, where the graph takes any integer. One that says
where something lies takes any integer too if the graph brings it into range; else the integers given, in another order.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EDGES = (0.0, 1.0, 300.0, 7e4)  # numbers that inputs are, beside the bodies' constants
LARGEST = 1e10  # of a float that is drawn: its square is finite
MOST_NUMBERS, MOST_SCALES = 24, 4
SAMPLES, MOST_TRIES = 192, 6  # elements of inputs that are drawn of one kind, small inputs more often
# Results that are numbers of the operands, or the same with another sign.
EXACT = frozenset((
    "_to_copy", "abs", "alias", "amax", "amin", "as_strided", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clone",
    "constant_pad_nd", "convert_element_type", "copy", "detach", "diagonal", "embedding", "empty", "expand", "flip",
    "floor", "full", "full_like", "gather", "index", "index_put", "index_select", "lift_fresh_copy", "maximum",
    "minimum", "neg", "new_zeros", "permute", "reflection_pad1d", "reflection_pad2d", "relu", "repeat",
    "replication_pad2d", "reshape", "roll", "round", "scalar_tensor", "scatter", "select", "select_scatter",
    "sign", "slice", "slice_scatter", "squeeze", "stack", "t", "transpose", "tril", "triu", "trunc", "unbind",
    "unfold", "unsqueeze", "view", "where", "zeros", "zeros_like",
))  # fmt: skip
_REDUCED = frozenset((
    "all", "any", "argmax", "argmin", "cummax", "cummin", "cumprod", "cumsum", "max", "mean", "min", "prod", "sort",
    "std", "sum", "topk", "var",
))  # fmt: skip
_AT = frozenset((  # they raise at an index that is out of range
    "embedding", "gather", "index", "index_add", "index_copy", "index_put", "index_select", "scatter", "scatter_add",
    "scatter_reduce",
))  # fmt: skip
# How the integers of an input are drawn, that are values and that are indices; what the graph does not take is refused.
_WAYS = (("any", "any"), ("but 0", "any"), ("any", "given"), ("but 0", "given"), ("same", "same"))


@dataclass(frozen=True, slots=True)
class Draw:
    """Inputs of one kind: as they are given (``scale`` is None), as small as ``scale``, or half of them ``numbers``."""

    scale: float | None = None
    numbers: tuple[float, ...] = ()
    salt: int = 0


@dataclass(slots=True)
class LoopInputs:
    """The inputs of one graph; ``constants`` and ``types`` are those that its bodies have, known once they ran."""

    torch: Any
    module: Any
    constants: set[float] = field(default_factory=set[float])
    types: set[Any] = field(default_factory=set[Any])
    _ways: int = 0  # the first of `_WAYS` that the graph may take
    _roles: dict[int, str] | None = None  # of integer inputs, by their number

    def draws(self, values: Sequence[Any]) -> Iterator[Draw]:
        """Each draw; those after the first ask for the constants and types that are known then."""
        torch = self.torch
        yield Draw()
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        floats = sum(v.numel() for v in tensors if v.is_floating_point())
        tries = min(max(SAMPLES // max(floats or sum(v.numel() for v in tensors), 1), 1), MOST_TRIES)
        for v in (n.meta.get("val") for n in self.module.graph.nodes):
            self.types |= {v.dtype} if isinstance(v, torch.Tensor) else set()
        edges = sorted({s * c for c in (*self.constants, *EDGES) for s in (1, -1) if c <= 1e5}, key=abs)
        kinds = [tuple(edges[:MOST_NUMBERS])] if floats or self._integers(values) else []
        kinds += [_limits(torch, t) for t in sorted(self.types, key=str)] if len(self.types) > 1 else []
        salt = 0
        for numbers in kinds:
            for _ in range(tries):
                salt += 1
                yield Draw(1.0, numbers, salt)
        for scale in self._scales() if floats else ():
            salt += 1
            yield Draw(scale, (), salt)

    def drawn(self, values: Sequence[Any], draw: Draw) -> Iterator[list[Any]]:
        """Inputs of a draw, others after them where the graph refuses those."""
        roles = self._integers(values)
        if not draw.numbers or not roles:
            yield [self._one(v, draw, k, "same") for k, v in enumerate(values)]
            return
        for way in range(self._ways, len(_WAYS)):
            self._ways = way
            how = dict(zip(("value", "index"), _WAYS[way], strict=True)) | {"": "same"}
            yield [self._one(v, draw, k, how[roles.get(k, "")]) for k, v in enumerate(values)]

    def _scales(self) -> list[float]:
        """Sizes of inputs at which constants matter: `rsqrt(v + 1e-5)` of variances as small."""
        small = sorted({10.0 ** round(math.log10(r)) for c in self.constants if 1e-12 < c < 0.1 for r in (c, c**0.5)})
        return small[:MOST_SCALES]

    def _one(self, v: Any, draw: Draw, k: int, how: str) -> Any:
        torch = self.torch
        if not isinstance(v, torch.Tensor) or draw.scale is None or not (v.is_floating_point() or how != "same"):
            return copied_input(torch, v)
        flat = flattened(v)
        if v.is_floating_point() and draw.scale != 1.0:
            return (flat * draw.scale).as_strided(v.shape, v.stride())
        maker = torch.Generator().manual_seed(100 * draw.salt + k)
        if how == "given":
            return flat[torch.randperm(len(flat), generator=maker)].as_strided(v.shape, v.stride())
        few = self._of_type(draw.numbers, v.dtype, how)
        which = torch.randint(0, len(few), flat.shape, generator=maker)
        some = torch.rand(flat.shape, generator=maker) < 0.5
        return torch.where(some, few[which], flat if how != "but 0" else flat + (flat == 0)).as_strided(
            v.shape, v.stride()
        )

    def _of_type(self, numbers: Sequence[float], dtype: Any, how: str) -> Any:
        """The numbers that a type has."""
        torch = self.torch
        if dtype.is_floating_point:
            return torch.tensor([x for x in numbers if abs(x) <= LARGEST], dtype=torch.float64).to(dtype)
        if dtype == torch.bool:
            return torch.tensor([False, True])
        info = torch.iinfo(dtype)
        least = info.min + (info.bits >= 32)  # the least by -1 is a trap of the machine
        whole = sorted({int(x) for x in numbers if least <= int(x) <= info.max} - ({0} if how == "but 0" else set()))
        return torch.tensor(whole or [1], dtype=dtype)

    def _integers(self, values: Sequence[Any]) -> Mapping[int, str]:
        """Roles of the integer inputs, by their number: an index, a value; none for what is not drawn."""
        if self._roles is None:
            torch = self.torch
            given = [n for n in self.module.graph.nodes if n.op == "placeholder"]
            whole = {
                k for k, v in enumerate(values)
                if isinstance(v, torch.Tensor) and not v.is_floating_point() and not v.is_complex() and v.numel()
            }  # fmt: skip
            self._roles = {k: role for k in whole if k < len(given) and (role := self._role(given[k]))}
        return self._roles

    def _role(self, given: Any) -> str:
        """Role of the integers of an input; empty where an operation may take some only, or not say so."""
        torch, role = self.torch, "value"
        seen, work = set[Any](), [given]
        while work:
            n = work.pop()
            val: Any = getattr(n, "meta", {}).get("val")
            if n in seen or n.op == "output" or (isinstance(val, torch.Tensor) and val.is_floating_point()):
                continue
            seen.add(n)
            for user in n.users:
                name = _aten_name(user)
                if name in _AT and n is not user.args[0]:
                    role = "index"
                elif user.op != "output" and name not in EXACT | _REDUCED | _AT and not _pointwise(torch, user):
                    return ""
                work.append(user)
        return role


def _aten_name(n: Any) -> str:
    schema = getattr(n.target, "_schema", None)
    return "" if schema is None else schema.name.rpartition("::")[2]


def _pointwise(torch: Any, n: Any) -> bool:
    return str(n.target) == "<built-in function getitem>" or torch.Tag.pointwise in getattr(n.target, "tags", ())


def _limits(torch: Any, dtype: Any) -> tuple[float, ...]:
    """Numbers at which a type ends or rounds: another type has others of them.

    >>> import torch
    >>> _limits(torch, torch.int8)[:4]
    (-128, 127, -129, 128)
    """
    if dtype == torch.bool:
        return (0, 0.5, -1, 2, 256, 1 << 32)
    if not dtype.is_floating_point and not dtype.is_complex:
        info = torch.iinfo(dtype)
        low, high = info.min, info.max
        return (low, high, low - 1, high + 1, low + 1, high // 2 + 1, 2 * high + 3, 0, 1, -1, 1.5, -1.5, -high)
    info = torch.finfo(dtype)
    whole = round(2 / info.eps)  # integers from here on are rounded
    ends = (info.max, -info.max, 1.07 * info.max, info.tiny * info.eps / 8) if info.max < LARGEST else ()
    return (0, 1, -1, 1 / 3, -0.5, 2.5, whole + 1, -whole - 3, whole * 8 + 9, *ends)


def flattened(v: Any) -> Any:
    """The memory of a tensor from its first element to its last, copied."""
    v = v.detach()
    count = 1 + sum((n - 1) * s for n, s in zip(v.shape, v.stride(), strict=True))
    return v.as_strided((0 if 0 in v.shape else count,), (1,)).clone()


def copied_input(torch: Any, v: Any) -> Any:
    return flattened(v).as_strided(v.shape, v.stride()) if isinstance(v, torch.Tensor) else v
