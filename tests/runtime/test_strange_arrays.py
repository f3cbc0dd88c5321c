"""Arrays that look like plain ones and are not their memory, and arrays that nobody may write: refused by name, also by
a callable that has seen a plain array of the same shape and type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch as typed_torch

import idgraph as ig
from idgraph.runtime.array_backends import MemoryExtent
from idgraph.runtime.program import Target

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's of nested, masked and quantized tensors
torch: Any = typed_torch  # most of what is asked of it here is not public
TARGETS: tuple[Target, ...] = ("python", "numpy", "cpu")
A = np.arange(48, dtype=np.float32).reshape(8, 6)
T = torch.from_numpy(A)


def doubling(target: Target) -> Any:
    """A callable that doubles, and has been called with plain arrays of both kinds."""
    f = ig.Fusion("f")
    f.output(f.input("x", (8, 6)) * 2)
    k = ig.compile(f, target)
    for plain in (A, T):
        assert np.array_equal(np.asarray(k(plain)), A * 2)
        assert np.array_equal(np.asarray(k(plain, out=plain * 0)), A * 2)
    return k


def freed(first: int = 0) -> Any:
    made = torch.zeros(first + 48)[first:].reshape(8, 6)
    made.untyped_storage().resize_(0)
    return made


def total(k: Any, x: Any) -> Any:
    return k(x).sum()


STRANGE: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: np.ma.masked_array(A, mask=A > 5), "masked array"),
    "masked tensor": (lambda: torch.masked.masked_tensor(T, T > 5), "MaskedTensor"),
    "nobody's memory": (lambda: torch._subclasses.FakeTensorMode().from_tensor(T), "FakeTensor"),
    "zeros that are not there": (lambda: torch._efficientzerotensor((8, 6)), "no memory of its own"),
    "storage that was freed": (freed, "no memory of its own"),
    "a view of storage that was freed": (lambda: freed(5), "no memory of its own"),
    "of functionalize": (lambda: torch._to_functional_tensor(T), "no memory of its own"),
    "nested": (lambda: torch.nested.nested_tensor([T, T[:3]]), "nested tensor"),
    "sparse": (T.to_sparse_csr, "sparse_csr"),
    "quantized": (lambda: torch.quantize_per_tensor(T, 1.0, 0, torch.qint8), "declared float32, the array is qint8"),
    "of 8 bits": (lambda: T.to(torch.float8_e4m3fn), "declared float32, the array is float8_e4m3fn"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_that_are_not_their_memory_are_refused(target: Target) -> None:
    k = doubling(target)
    for (make, words), _ in product(STRANGE.values(), range(2)):
        with pytest.raises(ig.EmitError, match=words) as error:
            k(make())
        assert "input x" in error.value.what
    for transform, x in ((torch.vmap(k), torch.stack([T, T])), (torch.func.grad(partial(total, k)), T)):
        with pytest.raises(ig.EmitError, match="input x has no memory of its own"):
            transform(x)
    assert np.array_equal(np.asarray(k(T)), A * 2)


def read_only() -> Any:
    made = A.copy()
    made.flags.writeable = False
    return made


UNWRITABLE: dict[str, tuple[Any, Callable[[], Any], str]] = {
    "read-only": (A, read_only, "read-only"),
    "overlapping": (
        A,
        lambda: np.lib.stride_tricks.as_strided(np.zeros(20, np.float32), (8, 6), (4, 4)),
        "at one address",
    ),
    "repeated": (T, lambda: torch.zeros(6).expand(8, 6), "one address"),
    "masked": (A, lambda: np.ma.masked_array(A, mask=A > 5), "masked array"),
    "without memory": (T, freed, "no memory of its own"),
    "fake": (T, STRANGE["nobody's memory"][0], "FakeTensor"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_results_go_only_where_each_element_may_be_written(target: Target) -> None:
    k = doubling(target)
    for (x, make, words), _ in product(UNWRITABLE.values(), range(2)):
        out = make()
        with pytest.raises(ig.EmitError, match=words) as error:
            k(x, out=out)
        assert "out of t1" in error.value.what
        assert not isinstance(out, np.ndarray) or bool((out == make()).all())
    turned = torch.imag(torch.conj(torch.zeros(8, 6, dtype=torch.complex64)))  # a view that negates
    for out in (turned, torch.zeros(6, 8).T, torch.zeros(8, 12)[:, ::2]):
        assert torch.equal(k(T, out=out), T * 2) and torch.equal(out, T * 2)


def test_elements_that_share_bytes() -> None:
    """Against a count of all bytes."""
    for shape in ((3,), (2, 3), (3, 1, 2), (2, 0)):
        for strides in product((0, 2, 4, 8, 12, -4, -8, 5), repeat=len(shape)):
            placed = [
                sum(i * s for i, s in zip(at, strides, strict=True)) + byte
                for at in np.ndindex(*shape)
                for byte in range(4)
            ]
            assert MemoryExtent(shape, strides, 4).repeats == (len(set(placed)) < len(placed)), (shape, strides)
