"""Arrays that fit, that are copied, and that are refused; loaded indices out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.runtime import emit
from idgraph.runtime.binding import bind, flat_input, given_array
from idgraph.runtime.program import Target

Array = npt.NDArray[Any]
TARGETS: tuple[Target, ...] = ("python", "numpy", "cpu")


def doubled(shape: tuple[Any, ...] = (3, 4), dtype: str = "float32", **declared: Any) -> ig.Fusion:
    f = ig.Fusion("f")
    f.output(f.input("x", shape, dtype, **declared) * 2)
    return f


def refused(f: ig.Fusion, inputs: dict[str, Any], text: str, **more: Any) -> ig.EmitError:
    with pytest.raises(ig.EmitError, match=text) as found:
        emit(f).run(inputs, **more)
    return found.value


def test_missing_and_extra_inputs() -> None:
    x = np.zeros((3, 4), np.float32)
    assert "inputs: x" in refused(doubled(), {}, "input x is missing").hint
    refused(doubled(), {"x": x, "y": x}, "y is not an input of fusion f")


def test_wrong_dtype_shape_and_kind() -> None:
    refused(doubled(), {"x": np.zeros((3, 4))}, "declared float32, the array is float64")
    refused(doubled(), {"x": np.zeros((3, 4), ">f4")}, "foreign byte order")
    refused(doubled(), {"x": np.zeros((3, 5), np.float32)}, r"axis 1 is declared 4, the array has 5")
    refused(doubled(), {"x": np.zeros(12, np.float32)}, "2 axes declared, the array has 1")
    refused(doubled(), {"x": [[0.0] * 4] * 3}, "is a list, not an array")


def test_symbols() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=2, multiple_of=2), f.symbol("m")
    f.output(f.input("x", (n,)) + 1.0, ig.iota(m))
    x = np.zeros(4, np.float32)
    assert "symbols={'m': ...}" in refused(f, {"x": x}, "symbol m follows from no input").hint
    refused(f, {"x": x}, "not a symbol of fusion", symbols={"k": 1})
    refused(f, {"x": np.zeros(3, np.float32)}, "n = 3 is outside", symbols={"m": 1})
    refused(f, {"x": x}, r"axis 0 is declared 6 = n, the array has 4", symbols={"m": 1, "n": 6})
    refused(f, {"x": x}, "is not an integer", symbols={"m": 1.5})
    assert emit(f).run({"x": x}, {"m": 2})["t2"].tolist() == [0, 1]


def test_stride_zero_needs_a_constant_array() -> None:
    f = doubled(strides=(4, 0))
    refused(f, {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}, "several elements of the array at one address")
    row = np.arange(3, dtype=np.float32)[:, None]
    got = emit(f).run({"x": np.broadcast_to(row, (3, 4)).copy()})
    assert np.array_equal(got["t1"], np.broadcast_to(row * 2, (3, 4)))


LAYOUTS: list[tuple[dict[str, Any], Callable[[Array], Array], bool]] = [
    ({}, lambda a: a[:3, :4].copy(), True),
    ({}, lambda a: a[:3, :4], False),
    ({"strides": (8, 1)}, lambda a: a[:3, :4], True),
    ({"strides": (1, 8)}, lambda a: a.T[:3, :4], True),
    ({"contiguity": (False, True)}, lambda a: a[1:4, 2:6], True),
    ({"contiguity": (False, False)}, lambda a: a.T[1:4, 2:6], True),
    ({"contiguity": (False, True)}, lambda a: a.T[1:4, 2:6], False),
    ({"contiguity": (False, False)}, lambda a: a[::-1][:3, :4], False),
    ({"strides": (0, 1)}, lambda a: np.broadcast_to(a[0, :4], (3, 4)), True),
    ({"offset": 2}, lambda a: a[:3, :4].copy(), False),
]


@pytest.mark.parametrize(("declared", "make", "shared"), LAYOUTS)
def test_memory_is_shared_where_it_fits(declared: dict[str, Any], make: Callable[[Array], Array], shared: bool) -> None:
    f = doubled(**declared)
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = make(a)
    given = {"x": given_array("x", x)}
    flat = flat_input(f["x"], given["x"], bind(f, given, None))
    assert np.shares_memory(flat, x) == shared
    assert np.array_equal(emit(f).run({"x": x})["t1"], x * 2)


def gathering() -> tuple[ig.Fusion, np.ndarray[Any, Any]]:
    f = ig.Fusion("f")
    x, i = f.input("logits", (4, 9)), f.input("index", (4, 3), "int64")
    f.output(ig.gather(x, 1, i))
    return f, np.arange(36, dtype=np.float32).reshape(4, 9)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", [9, -1, 2**40])
def test_index_out_of_range_names_the_point(target: Target, value: int) -> None:
    f, x = gathering()
    index = np.zeros((4, 3), np.int64)
    index[2, 1] = value
    with pytest.raises(ig.IndexingError) as found:
        emit(f, target).run({"logits": x, "index": index}, checked=True)
    text = str(found.value)
    assert f"index {value} loaded from index is outside axis 1 of logits, of extent 9" in text
    assert "i0=2, i1=1" in text
    assert "test_arrays.py" in text


@pytest.mark.parametrize("target", ["python", "numpy"])
def test_no_negative_address_wraps(target: Target) -> None:
    f, x = gathering()
    index = np.zeros((4, 3), np.int64)
    index[0, 0] = -1
    (found,) = emit(f, target).run({"logits": x, "index": index}, checked=False).values()
    want = np.take_along_axis(x, index, 1)
    want[0, 0] = 0
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("target", TARGETS)
def test_checks_look_only_where_the_predicate_holds(target: Target) -> None:
    f, x = gathering()
    (y,) = f.outputs
    y.split(1, 2)
    index = np.full((4, 3), 8, np.int64)
    got = emit(f, target).run({"logits": x, "index": index}, checked=True)
    assert np.array_equal(got[y.name], np.take_along_axis(x, index, 1))


def test_names_that_are_not_names() -> None:
    f = ig.Fusion("__import__('os').system('x')")
    n = f.symbol("lambda", min=1)
    x = f.input("__import__('os')", (n,))
    y = f.output(ig.neg(x, name='quote " # and \\ slash'))
    for target in (*TARGETS, "cuda"):
        source = emit(f, target).source  # pyright: ignore[reportArgumentType]
        code = "\n".join(line.split("#")[0] for line in source.splitlines())
        assert "import" not in code
        assert "lambda" not in code
        assert "quote" not in code
    got = emit(f).run({x.name: np.ones(2, np.float32)})
    assert got[y.name].tolist() == [-1, -1]


def test_unknown_target() -> None:
    with pytest.raises(ig.EmitError, match="unknown target 'fortran'"):
        emit(doubled(), "fortran")  # pyright: ignore[reportArgumentType]
