"""Element types by torch's names, their sizes in bytes, and torch's type promotion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from idgraph.errors import OperationError, one_of, short_repr, user_line

DType = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
Scalar = bool | int | float
DTypeLike: TypeAlias = object  # a name, or the type object of NumPy, ml_dtypes or torch; see `check_dtype`

DTYPES: tuple[DType, ...] = get_args(DType)


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type as every part asks about it: a new one is a row of `ELEMENT_TYPES`, and the words that its
    ``code`` names.

    ``bytes`` of an element. ``code`` is the function of each target's library that brings a value to the type's grid or
    range: "f16" beside "f16_load" and "f16_word", where elements in memory are ``words`` (integers of as many bytes)
    that kernels decode. ``numpy`` is NumPy's type of elements in memory. Of floats: ``significand`` in bits, the first
    one included; ``largest``: numbers beyond it are taken for infinite; ``tolerance``: the allowed difference of two
    results, relative to them and the largest of them (2 to 80 units in the last place).
    """

    name: DType
    kind: Literal["bool", "int", "float"]
    bytes: int
    code: str = ""
    numpy: str = ""
    words: bool = False
    signed: bool = True
    significand: int = 0
    largest: float = 0.0
    tolerance: float = 0.0


ELEMENT_TYPES: Mapping[DType, ElementType] = {
    t.name: t
    for t in (
        ElementType("bool", "bool", 1),
        ElementType("uint8", "int", 1, "u8", signed=False),
        ElementType("int8", "int", 1, "int8"),
        ElementType("int16", "int", 2, "int16"),
        ElementType("int32", "int", 4, "i32"),
        ElementType("int64", "int", 8, "i64"),
        ElementType("float16", "float", 2, "f16", words=True, significand=11, largest=65504.0, tolerance=2.0**-9),
        ElementType("bfloat16", "float", 2, "bf16", "uint16", words=True, significand=8, largest=3.38e38,
                    tolerance=2.0**-6),
        ElementType("float32", "float", 4, "f32", significand=24, largest=3.4e38, tolerance=1e-5),
        ElementType("float64", "float", 8, "f64", significand=53, largest=1.7e308, tolerance=1e-9),
    )
}  # fmt: skip
"""The rows of each kind from the narrowest type to the widest."""
_RANK = {name: k for k, name in enumerate(ELEMENT_TYPES)}


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
    hint = one_of(name, DTYPES)
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
    return ELEMENT_TYPES[dtype].bytes


def int_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number that an integer type holds."""
    if dtype == "bool":
        return 0, 1
    bits = 8 * item_size(dtype)
    return (0, 2**bits - 1) if not ELEMENT_TYPES[dtype].signed else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def is_float(dtype: DType) -> bool:
    """True of the floating point types."""
    return ELEMENT_TYPES[dtype].kind == "float"


def is_short_float(dtype: DType) -> bool:
    """True of floats of 16 bits and fewer: words in memory, values of float32 in kernels.

    >>> is_short_float("bfloat16"), is_short_float("int16"), is_short_float("float32")
    (True, False, False)
    """
    return ELEMENT_TYPES[dtype].words


def compute_dtype(dtype: DType) -> DType:
    """The type in which kernels hold values of ``dtype``."""
    return "float32" if is_short_float(dtype) else dtype


def is_integer(dtype: DType) -> bool:
    """True of the integer types; bool is not one."""
    return ELEMENT_TYPES[dtype].kind == "int"


def _category(dtype: DType) -> int:
    return 0 if dtype == "bool" else 1 if is_integer(dtype) else 2


def _promote_pair(a: DType, b: DType) -> DType:
    if a == b:
        return a
    ca, cb = _category(a), _category(b)
    if ca != cb:
        return a if ca > cb else b
    if ca == 2:
        if item_size(a) == item_size(b):
            return "float32"
        return a if _RANK[a] > _RANK[b] else b
    rows = ELEMENT_TYPES[a], ELEMENT_TYPES[b]
    if rows[0].signed != rows[1].signed:  # torch: the signed one, or the least that holds both
        plain, signed = sorted(rows, key=lambda t: t.signed)
        return next(
            t.name
            for t in ELEMENT_TYPES.values()
            if is_integer(t.name) and t.signed and t.bytes > plain.bytes and t.bytes >= signed.bytes
        )
    return a if _RANK[a] > _RANK[b] else b


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
