"""Element types by torch's names, their sizes in bytes, and torch's type promotion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from idgraph.errors import OperationError, did_you_mean, short_repr, user_line

DType = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
Scalar = bool | int | float
DTypeLike: TypeAlias = object  # a name, or the type object of NumPy, ml_dtypes or torch; see `check_dtype`

DTYPES: tuple[DType, ...] = get_args(DType)

_SIZES: dict[DType, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTS = ("uint8", "int8", "int16", "int32", "int64")


def check_dtype(name: object) -> DType:
    """The type named (``"float32"``, ``np.float32``, ``torch.float32``), or an error that lists the names.

    >>> import numpy as np
    >>> check_dtype("int64"), check_dtype(np.float32), check_dtype(np.dtype("bool"))
    ('int64', 'float32', 'bool')
    """
    said = name if isinstance(name, str) else _type_name(name)
    for known in DTYPES:
        if said == known:
            return known
    hint = did_you_mean(str(name), DTYPES, f"one of {', '.join(DTYPES)}")
    raise OperationError(f"unknown dtype {short_repr(name)}", where=user_line(), hint=hint)


def _type_name(dtype: object) -> str | None:
    """The name of a type object of NumPy, ml_dtypes or torch, none of which is imported for it."""
    home = (dtype if isinstance(dtype, type) else type(dtype)).__module__.partition(".")[0]
    if home not in ("numpy", "ml_dtypes", "torch"):
        return None
    if home == "torch":
        return str(dtype).removeprefix("torch.")
    found = getattr(dtype, "__name__" if isinstance(dtype, type) else "name", None)
    return found if isinstance(found, str) else None


def item_size(dtype: DType) -> int:
    """Bytes of one element.

    >>> item_size("bfloat16")
    2
    """
    return _SIZES[dtype]


def int_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number that an integer type holds.

    >>> int_limits("uint8"), int_limits("int16"), int_limits("bool")
    ((0, 255), (-32768, 32767), (0, 1))
    """
    if dtype == "bool":
        return 0, 1
    bits = 8 * item_size(dtype)
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def is_float(dtype: DType) -> bool:
    """True of the four floating point types."""
    return dtype in _FLOATS


def is_integer(dtype: DType) -> bool:
    """True of the integer types; bool is not one."""
    return dtype in _INTS


def _category(dtype: DType) -> int:
    return 0 if dtype == "bool" else 1 if is_integer(dtype) else 2


def _promote_pair(a: DType, b: DType) -> DType:
    if a == b:
        return a
    ca, cb = _category(a), _category(b)
    if ca != cb:
        return a if ca > cb else b
    if ca == 2:
        if {a, b} == {"float16", "bfloat16"}:
            return "float32"
        return a if _FLOATS.index(a) > _FLOATS.index(b) else b
    if "uint8" in (a, b):  # torch: uint8 with int8 is int16, with wider ones the wider one
        other = b if a == "uint8" else a
        return "int16" if other == "int8" else other
    return a if _INTS.index(a) > _INTS.index(b) else b


def scalar_dtype(value: Scalar) -> DType:
    """torch's default type of a Python number.

    >>> scalar_dtype(2), scalar_dtype(2.0), scalar_dtype(True)
    ('int64', 'float32', 'bool')
    """
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) else "float32"


def promote(dtypes: Iterable[DType], scalars: Iterable[DType] = ()) -> DType:
    """torch's result type of tensors with ``dtypes`` and numbers of types ``scalars``.

    A number widens the result only when its category (bool, integer, float) is higher than every tensor's.

    >>> promote(["float16"], ["float32"]), promote(["int32"], ["float32"]), promote(["float16", "bfloat16"])
    ('float16', 'float32', 'float32')
    """
    result: DType | None = None
    for dtype in dtypes:
        result = dtype if result is None else _promote_pair(result, dtype)
    for dtype in scalars:
        if result is None or _category(dtype) > _category(result):
            result = dtype
    if result is None:
        raise OperationError("no operand to take a type from")
    return result
