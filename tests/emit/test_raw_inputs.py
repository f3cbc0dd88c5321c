"""Raw memory as an input: what a kernel wrote is read as it lies where both maps agree, and by its map elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from tests.emit.test_raw_outputs import GIVEN, LAYOUTS, Layout


def writer(how: Layout) -> Any:
    """The raw memory of 5 x 6 elements."""
    f = ig.Fusion("writer")
    y = f.output(ig.copy(f.input("x", shape=(5, 6))))
    how(y)
    return ig.emit(f, "numpy").run({"x": GIVEN}, raw=True, fill=-99.0)[y.name]


def reader(how: Layout | None) -> tuple[ig.Fusion, ig.Tensor]:
    """Twice the elements of memory that is declared to lie so."""
    f = ig.Fusion("reader")
    x = f.input("x", shape=(5, 6))
    if how is not None:
        how(x)
    return f, f.output(x * 2.0 + 1.0)


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_one_kernel_wrote_another_one_reads(name: str, target: Any) -> None:
    how, _, _ = LAYOUTS[name]
    raw = writer(how)
    f, y = reader(how)
    run = ig.emit(f, target)
    np.testing.assert_array_equal(run.run({"x": raw})[y.name], GIVEN * 2 + 1)
    if target == "cpu":
        assert run.copies({"x": raw}) == {}  # it is read as it lies


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_that_lies_otherwise_is_read_by_its_map(name: str, target: Any) -> None:
    how, _, _ = LAYOUTS[name]
    raw = writer(how)
    for other in (None, *(LAYOUTS[n][0] for n in ("blocks", "cyclic columns") if n != name)):
        f, y = reader(other)
        run = ig.emit(f, target)
        np.testing.assert_array_equal(run.run({"x": raw})[y.name], GIVEN * 2 + 1)
        if target == "cpu":
            lies = np.array_equal(raw.addresses, np.arange(30).reshape(5, 6)) and other is None
            assert ("elsewhere than declared" in run.copies({"x": raw}).get("x", "")) != lies


def test_new_elements_in_the_same_memory_are_read() -> None:
    """A route that is known reads the buffer of the call, not of the first one."""
    how, _, _ = LAYOUTS["blocks"]
    raw, (f, y) = writer(how), reader(how)
    run = ig.compile(f, "cpu")
    for k in range(3):
        found: Any = run(raw.with_buffer(raw.buffer + k))
        np.testing.assert_array_equal(found, (GIVEN + k) * 2 + 1)
    other = raw.with_buffer(np.concatenate([np.zeros(1, np.float32), raw.buffer])[1:])  # not where 16 bytes begin
    with pytest.warns(UserWarning, match="16 bytes do not divide"):
        np.testing.assert_array_equal(run(other), GIVEN * 2 + 1)
    out = np.empty((5, 6), np.float32)
    run(raw, out=out)
    np.testing.assert_array_equal(out, GIVEN * 2 + 1)
    assert y.shape == (5, 6)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    how, _, _ = LAYOUTS["blocks"]
    raw, (f, y) = writer(how), reader(how)
    held = raw.with_buffer(torch.from_numpy(raw.buffer.copy()))
    for target in ("numpy", "cpu"):
        made: Any = ig.emit(f, target).run({"x": held})[y.name]
        assert isinstance(made, torch.Tensor) and torch.equal(made, torch.from_numpy(GIVEN * 2 + 1))


def test_beside_arrays_and_as_a_result() -> None:
    how, _, _ = LAYOUTS["one row"]
    f = ig.Fusion("f")
    x, z = f.input("x", shape=(5, 6)), f.input("z", shape=(5, 6))
    how(x)
    y = f.output(x + z)
    f.output(x)
    with pytest.warns(UserWarning, match="output x is copied"):
        made = ig.emit(f, "cpu").run({"x": writer(how), "z": GIVEN})
    np.testing.assert_array_equal(made[y.name], 2 * GIVEN)
    np.testing.assert_array_equal(made["x"], GIVEN)


def test_memory_of_other_sizes_and_types_is_refused_by_name() -> None:
    how, _, _ = LAYOUTS["blocks"]
    raw, (f, _) = writer(how), reader(how)
    for target in ("numpy", "cpu"):
        run = ig.emit(f, target)
        for wrong, words in (
            (raw.with_buffer(raw.buffer[:20]), "input x: its raw memory has 20 elements, and its map gives offsets"),
            (raw.with_buffer(raw.buffer.reshape(8, 8)), "input x: raw memory is a flat buffer"),
            (raw.with_buffer(raw.buffer.astype(np.float64)), "input x is declared float32, the array is float64"),
            (replace(raw, shape=(5, 4)), "input x of shape"),
            (replace(raw, shape=(5,)), "input x: raw memory is a flat buffer with a map from 1 coordinates"),
        ):
            with pytest.raises(ig.EmitError, match=words):
                run.run({"x": wrong})
