"""The table of element types, compared with NumPy, ml_dtypes and torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any, get_args

import numpy as np
import pytest

from idgraph.ir.dtypes import DTYPES, ELEMENT_TYPES, DType, compute_dtype, int_limits, promote
from idgraph.kernel.error_analysis import SINGLE, TOLERANCES
from idgraph.passes import value_range_analysis

ml_dtypes: Any = import_module("ml_dtypes")
torch: Any = import_module("torch")


def test_every_type_has_a_row() -> None:
    assert tuple(ELEMENT_TYPES) == DTYPES == get_args(DType)


@pytest.mark.parametrize("name", DTYPES)
def test_a_row_says_what_numpy_says(name: DType) -> None:
    row = ELEMENT_TYPES[name]
    of: Any = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    assert row.bytes == of.itemsize
    if row.kind == "float":
        info = ml_dtypes.finfo(of)
        assert row.significand == info.nmant + 1
        assert 0.9 * float(info.max) <= row.largest <= float(info.max)
        assert 2 <= row.tolerance / float(info.eps) <= 1e8
        assert row.words == (row.bytes <= 2) == (compute_dtype(name) != name)
    elif row.kind == "int":
        assert int_limits(name) == (np.iinfo(of).min, np.iinfo(of).max)
        assert row.signed == (of.kind == "i")


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_is_torchs(a: DType, b: DType) -> None:
    assert promote([a, b]) == str(torch.promote_types(getattr(torch, a), getattr(torch, b))).removeprefix("torch.")


def test_the_numbers_of_the_passes() -> None:
    assert TOLERANCES == {"float16": 2.0**-17, "bfloat16": 2.0**-14}
    assert {"float16", "bfloat16", "float32"} == SINGLE
    rooms = {d: value_range_analysis._rounding_room(d) for d in DTYPES if ELEMENT_TYPES[d].kind == "float"}  # pyright: ignore[reportPrivateUsage]
    assert rooms == {"float64": 2.0**-49, "float32": 2.0**-20, "float16": 2.0**-8, "bfloat16": 2.0**-5}
