"""Numbers near and beyond 64 bits, and arrays of every kind of memory: right, copied and told, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.index.int_width import open_sizes
from idgraph.runtime import emit
from idgraph.runtime.cuda.device_arrays import declared_device_array
from idgraph.runtime.program import Target

Array = npt.NDArray[Any]
TARGETS: tuple[Target, ...] = ("python", "numpy", "cpu")
SIZES = [2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**62, 2**63 - 1]


def doubled(shape: tuple[Any, ...], dtype: str = "float32", **declared: Any) -> ig.Fusion:
    f = ig.Fusion("f")
    f.output(f.input("x", shape, dtype, **declared) * 2)
    return f


@pytest.mark.parametrize("n", SIZES)
def test_the_type_holds_the_last_element(n: int) -> None:
    """The type that an access asks for is the smallest that holds its ends, computed here in Python's own integers."""
    for shape, strides, offset in (((n,), None, 0), ((2, n // 2), None, 0), ((3,), (n // 3,), 0), ((4,), (1,), n - 4)):
        f = ig.Fusion("f")
        x = f.input("x", shape, strides=strides, offset=offset)
        y = f.output(x + 1.0)
        assert y.definition is not None
        read = ig.IdModel(f).access(y.definition, x)
        inner = strides or tuple(int(np.prod(shape[k + 1 :], dtype=object)) for k in range(len(shape)))
        last = offset + sum((e - 1) * s for e, s in zip(shape, inner, strict=True))
        largest = max(last, *shape, offset)
        wanted = "uint32" if largest < 2**32 else "int64"
        assert read.index_type() == wanted
        assert read.index_bits == (32 if largest < 2**31 else 64)
        assert read.address.evaluate({f"i{k}": e - 1 for k, e in enumerate(shape)}) == last


@pytest.mark.parametrize(
    ("shape", "declared"),
    [((2**32, 2**31), {}), ((2**40, 2**40), {}), ((4, 4), {"strides": (2**62, 1)}), ((4,), {"offset": 2**63 - 2})],
)
def test_memory_beyond_64_bits_is_refused_by_name(shape: tuple[int, ...], declared: dict[str, Any]) -> None:
    f = doubled(shape, **declared)
    for target in TARGETS:
        with pytest.raises(ig.IdGraphError, match="x ends beyond element"):
            emit(f, target)


TOO_LONG: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "flatten": lambda x: ig.flatten(x),
    "reshape": lambda x: ig.reshape(x, -1),
    "pad": lambda x: ig.pad(x, (0, 0, 2**62, 2**62)),
    "cat": lambda x: ig.cat([x, x], 0),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_an_axis_beyond_64_bits_is_refused_by_name(name: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", (2**62, 4))
    before = str(f)
    with pytest.raises(ig.OperationError, match=r"of x of shape .* is beyond 2\^63 - 1") as error:
        TOO_LONG[name](x)
    assert "test_sizes.py" in error.value.where and str(f) == before
    with pytest.raises(ig.OperationError, match="x: an axis"):
        x.merge(0)
    with pytest.raises(ig.OperationError, match="input y: an axis of 9223372036854775808 elements is beyond"):
        f.input("y", (2**63,))
    assert str(f) == before


def test_loops_beyond_64_bits_are_refused_by_name() -> None:
    """The tensor is small, the loops that a schedule makes are not."""
    f = doubled((10,))
    f.outputs[0].split(0, 3).split(0, 2**62)
    for target in (*TARGETS, "cuda"):
        with pytest.raises(ig.EmitError, match="of t1 is beyond 64 bits") as error:
            emit(f, target)  # type: ignore[arg-type]
        assert "test_sizes.py" in error.value.where and "int64 ends at 9223372036854775807" in error.value.because[0]


def cubed() -> ig.Fusion:
    """Four elements of a tensor of n^3, none of which is stored."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=2)
    spread = ig.expand(ig.reshape(f.input("x", (1,)), 1, 1, 1), n, n, n)
    y = f.output(ig.reshape(spread, n * n * n)[:4])
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    return f


@pytest.mark.parametrize("target", TARGETS)
def test_symbols_are_looked_at_when_they_have_values(target: Target) -> None:
    f, x = cubed(), np.full(1, 7, np.float32)
    p = emit(f, target)
    for n in (2, 2**20, 2**21 - 1):
        (out,) = p.run({"x": x}, {"n": n}).values()
        assert out.tolist() == [7.0] * 4
    for n in (2**21, 2**22, 2**32, 2**62, 2**63, 2**70):
        with pytest.raises(ig.EmitError, match=f"of t2 is beyond 64 bits where n = {n}") as error:
            p.run({"x": x}, {"n": n})
        assert "test_sizes.py" in error.value.where


WIDE: dict[str, Callable[[ig.Tensor, ig.Expr], ig.Tensor]] = {
    "pad": lambda x, n: ig.pad(x, (1, n)),
    "cat": lambda x, n: ig.cat([x, x], 0)[n:],
    "roll": lambda x, n: ig.roll(x, n - 1, 0),
    "flip": lambda x, n: ig.flip(x, 0)[1:],
    "repeat": lambda x, n: ig.repeat(x, (2, 3)),
    "flatten": lambda x, n: ig.flatten(x)[n:],
    "expand": lambda x, n: ig.expand(ig.unsqueeze(x, 0), (n, n, 4)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("most", [2**31, 2**32, 2**62, 2**63 - 1])
@pytest.mark.parametrize("name", WIDE)
def test_ranges_that_no_list_has_are_as_right_as_short_ones(name: str, most: int) -> None:
    """Extents up to 2^63 are counted, never listed; at small numbers all targets give what a short range gives."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for top in (8, most):
        f = ig.Fusion("f")
        n = f.symbol("n", min=1, max=top)
        f.output(WIDE[name](f.input("x", (n, 4)), n))
        ig.schedule.auto(f)
        ig.emit(f, "cuda")
        x = np.arange(20, dtype=np.float32).reshape(5, 4)
        for target in ("python", "cpu"):
            (found[f"{top} {target}"],) = ig.emit(f, target=target).run({"x": x}, {"n": 5}).values()
    expected = found.pop("8 python")
    for got in found.values():
        np.testing.assert_array_equal(got, expected, strict=True)


def test_ranges_prove_what_they_can() -> None:
    """A symbol with a range that suffices leaves nothing to look at; one without leaves what depends on it."""
    for most, is_open in ((2**20, False), (2**31, False), (2**32, True), (None, True)):
        f = ig.Fusion("f")
        n = f.symbol("n", min=1, max=most)
        f.output(f.input("x", (n, n)) + 1.0)
        assert bool(open_sizes(f, ig.IdModel(f))) == is_open


@pytest.mark.parametrize("target", TARGETS)
def test_too_little_memory_names_the_tensor(target: Target) -> None:
    f = ig.Fusion("f")
    f.output(ig.iota(f.symbol("n", min=1)), ig.full((3,), 1.0))
    with pytest.raises(ig.EmitError, match=r"no memory for t0: 4611686018427387904 elements of 8 bytes"):
        emit(f, target).run({}, {"n": 2**62})


# memory ---------------------------------------------------------------------------------------------------------------


def _unaligned() -> Array:
    a = np.zeros(8 * 6 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(8, 6)
    a[...] = np.arange(48).reshape(8, 6)
    return a


def _read_only() -> Array:
    a = np.arange(48, dtype=np.float32).reshape(8, 6)
    a.flags.writeable = False
    return a


A = np.arange(48, dtype=np.float32).reshape(8, 6)
MEMORY: dict[str, tuple[Callable[[], Array], str]] = {
    "as declared": (lambda: A.copy(), ""),
    "read only": (_read_only, ""),
    "from the end": (lambda: A[::-1, ::-1], "negative"),
    "every second": (lambda: A[::2, ::3], "its strides are"),
    "column-major": (lambda: np.asfortranarray(A), "its strides are"),
    "transposed": (lambda: A.T, "its strides are"),
    "overlapping windows": (lambda: np.lib.stride_tricks.sliding_window_view(A.ravel(), 4), "its strides are"),
    "broadcast": (lambda: np.broadcast_to(A[0], (5, 6)), "its strides are"),
    "not aligned": (_unaligned, "not aligned"),
    "fields of a record": (lambda: np.zeros((4, 2), [("a", "f4"), ("b", "u1")])["a"], "whole numbers"),
    "no rows": (lambda: A[:0], ""),
    "no columns": (lambda: A[:, :0], ""),
    "one number": (lambda: np.array(3, np.float32), ""),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", MEMORY)
def test_every_kind_of_memory(kind: str, target: Target) -> None:
    make, told = MEMORY[kind]
    a = make()
    before = a.copy()
    p = emit(doubled(a.shape), target)
    (out,) = p.run({"x": a}).values()
    assert out.shape == a.shape and np.array_equal(out, before * 2) and np.array_equal(a, before)
    assert not np.shares_memory(out, a)
    copied = p.copies({"x": a})
    if target == "cpu" and kind == "not aligned":
        told = "16 bytes do not divide"  # compiled kernels read vectors: the declared alignment is what they need
    assert told in copied["x"] if told else not copied


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_plain_array_is_refused(target: Target) -> None:
    p = emit(doubled((8, 6)), target)
    for array, words, hint in (
        (np.ma.masked_array(A, mask=A > 5), "masked array", "filled"),
        (A.astype(">f4"), "foreign byte order", "newbyteorder"),
        (A.astype(np.float64), "declared float32, the array is float64", ""),
        (A.tolist(), "is a list", "np.asarray"),
    ):
        with pytest.raises(ig.EmitError, match=words) as error:
            p.run({"x": array})
        assert "input x" in error.value.what and hint in error.value.hint


class _Device:
    """The CUDA array interface of an array on a device."""

    def __init__(self, **more: Any) -> None:
        about = {"shape": (8, 6), "typestr": "<f4", "data": (1024, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = about | more


def test_device_arrays_say_what_they_are() -> None:
    assert declared_device_array("x", _Device()).dtype == "float32"
    assert "foreign byte order" in declared_device_array("x", _Device(typestr=">f4")).dtype
    assert declared_device_array("x", _Device(strides=(-24, 4))).strides is None
    assert declared_device_array("x", _Device(strides=(25, 4))).strides is None
    with pytest.raises(ig.EmitError, match="input x is a masked array"):
        declared_device_array("x", _Device(mask=_Device()))


PAST: dict[str, tuple[Callable[[ig.Tensor, ig.Tensor], ig.Tensor], list[int]]] = {
    "the end": (lambda x, _: x[2**32 + 5 :], [15, 16, 17]),
    "steps of 2^31": (lambda x, _: x[:: 2**31], [0, 5, 10]),
    "one element": (lambda x, _: ig.unsqueeze(ig.select(x, 0, 2**32 + 3), 0), [13]),
    "a table of places": (lambda x, at: ig.index_select(x, 0, at), [11, 5, 17]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", PAST)
def test_elements_past_32_bits_of_memory_that_is_there(way: str, target: Target, tmp_path: Path) -> None:
    """A file of 4 GB that is empty but for a few bytes: an address of 32 bits would read zeros."""
    held = np.memmap(tmp_path / "held", np.uint8, "w+", shape=(2**32 + 8,))
    held[2**31], held[2**32 :] = 5, range(10, 18)
    build, wanted = PAST[way]
    f = ig.Fusion("f")
    f.output(build(f.input("x", (len(held),), "uint8"), f.input("at", (3,), "int64")))
    places = np.array([2**32 + 1, 2**31, 2**32 + 7])
    (found,) = emit(f, target).run({"x": np.asarray(held), "at": places}).values()
    assert found.tolist() == wanted
