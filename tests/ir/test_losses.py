"""Cross entropy and its gradient beside PyTorch's, in every combination of their arguments."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")

SHAPES = ((7, 33), (33,), (3, 11, 4), (2, 5, 3, 4))
CHOICES = tuple(product(("mean", "sum", "none"), (0.0, 0.1), (-100, 2), (False, True)))


PAIRS = [(shape, choice) for n, shape in enumerate(SHAPES) for choice in (CHOICES[n::5] if n else CHOICES)]


@pytest.mark.sampled
@pytest.mark.parametrize(("shape", "choice"), PAIRS, ids=str)
def test_as_torch(shape: tuple[int, ...], choice: tuple[Any, float, int, bool]) -> None:
    reduction, smoothing, ignored, weighted = choice
    torch.manual_seed(len(str(choice)))
    classes = shape[0] if len(shape) == 1 else shape[1]
    x = torch.randn(shape, requires_grad=True)
    y = torch.randint(3, classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if y.ndim:
        y.view(-1)[0] = ignored
    weight = torch.rand(classes) if weighted else None
    want = torch.nn.functional.cross_entropy(
        x, y, weight=weight, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing
    )
    g = torch.randn(want.shape)
    (slope,) = torch.autograd.grad(want, x, g)
    f = ig.Fusion("loss")
    a, b = f.input("x", shape=shape), f.input("y", shape=tuple(y.shape), dtype="int64")
    up, w = f.input("g", shape=tuple(want.shape)), f.input("w", shape=(classes,)) if weighted else None
    loss = f.output(ig.cross_entropy(a, b, w, ignored, reduction, smoothing))
    grad = f.output(ig.cross_entropy_backward(up, a, b, w, ignored, reduction, smoothing))
    given = {"x": x.detach().numpy(), "y": y.numpy(), "g": g.numpy()}
    given |= {} if weight is None else {"w": weight.numpy()}
    found = ig.emit(f, target="numpy").run(given)
    np.testing.assert_allclose(found[loss.name], want.detach().numpy(), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(found[grad.name], slope.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_rows_that_are_all_ignored_have_no_gradient(reduction: Any, smoothing: float, weighted: bool) -> None:
    """The mean of no rows is NaN, as torch has it; their gradient is 0."""
    f = ig.Fusion("loss")
    x, y, g = f.input("x", (3, 5)), f.input("y", (3,), "int64"), f.input("g", (3,) if reduction == "none" else ())
    w = f.input("w", (5,)) if weighted else None
    grad = f.output(ig.cross_entropy_backward(g, x, y, w, 2, reduction, smoothing))
    given = {"x": np.eye(3, 5, dtype=np.float32), "y": np.full(3, 2), "g": np.full(g.shape, np.inf, np.float32)}
    given |= {"w": np.ones(5, np.float32)} if weighted else {}
    np.testing.assert_array_equal(ig.emit(f, target="numpy").run(given)[grad.name], np.zeros((3, 5)))


def test_a_target_outside_is_refused() -> None:
    f = ig.Fusion("f")
    f.output(ig.cross_entropy(f.input("x", shape=(2, 4)), f.input("y", shape=(2,), dtype="int64")))
    with pytest.raises(ig.IndexingError, match="index 4 "):
        ig.emit(f, target="cpu").run({"x": np.zeros((2, 4), np.float32), "y": np.array([1, 4])}, checked=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reduction": "average"}, "one of mean, sum, none"),
        ({"label_smoothing": 1.5}, "between 0 and 1"),
        ({"label_smoothing": True}, "between 0 and 1"),
    ],
)
def test_bad_arguments(change: dict[str, Any], words: str) -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(2, 4)), f.input("y", shape=(2,), dtype="int64")
    for loss in (lambda: ig.cross_entropy(x, y, **change), lambda: ig.cross_entropy_backward(None, x, y, **change)):
        with pytest.raises(ig.OperationError, match=words):
            loss()


def test_operands_that_do_not_fit() -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(2, 4)), f.input("y", shape=(2,), dtype="int64")
    with pytest.raises(ig.OperationError, match="ask for"):
        ig.cross_entropy(x, f.input("z", shape=(3,), dtype="int64"))
    with pytest.raises(ig.OperationError, match="numbers of classes"):
        ig.cross_entropy(x, x)
    with pytest.raises(ig.OperationError, match="logits"):
        ig.cross_entropy(y, y)
    with pytest.raises(ig.OperationError, match="weight"):
        ig.cross_entropy(x, y, f.input("w", shape=(3,)))
