"""The cuda target on a real device: values of every case, memory taken and given without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.emit import emit
from tests.emit.cases import CASES, outcome

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CASES)
def test_value_on_the_device(name: str) -> None:
    assert outcome(name, "cuda") == ""


@pytest.mark.parametrize("name", ["gather", "embedding", "scatter"])
def test_checked_on_the_device(name: str) -> None:
    assert outcome(name, "cuda", checked=True) == ""


def test_index_out_of_range_on_the_device() -> None:
    f = ig.Fusion("f")
    x, i = f.input("logits", (4, 9)), f.input("index", (4, 3), "int64")
    f.output(ig.gather(x, 1, i))
    index = np.zeros((4, 3), np.int64)
    index[2, 1] = 9
    with pytest.raises(ig.IndexingError, match="index 9 loaded from index is outside axis 1 of logits"):
        emit(f, "cuda").run({"logits": np.zeros((4, 9), np.float32), "index": index}, checked=True)


# numba's own copy kernels for arrays with strides run on a small grid and say so.
@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_device_arrays_stay_on_the_device() -> None:
    from idgraph.emit.cuda.device import load_cuda

    cuda = load_cuda()
    f = ig.Fusion("f")
    x = f.input("x", (6, 4), contiguity=(False, True), alignment=8)
    y = f.output(x.T + 1.0)
    y.set_allocation([y.logical[1], y.logical[0]])
    host = np.arange(48, dtype=np.float32).reshape(6, 8)
    whole = cuda.to_device(host)
    out: Any = emit(f, "cuda").run({"x": whole[:, 2:6]})[y.name]
    assert hasattr(out, "__cuda_array_interface__")
    assert out.shape == (4, 6)
    assert out.strides == (4, 16)  # bytes: laid out as x, columns of the result together
    assert np.array_equal(cuda.as_cuda_array(out.T).copy_to_host(), host[:, 2:6] + 1)
    reversed_rows: Any = emit(f, "cuda").run({"x": np.ascontiguousarray(host[:, 2:6])})[y.name]
    assert isinstance(reversed_rows, np.ndarray)
