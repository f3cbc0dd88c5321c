"""Functions of torch that are captured in another form: results are eager's, and what eager refuses is refused."""

# torch gives lambdas of its tensors no types:
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.frontends import from_torch

torch: Any = importlib.import_module("torch")  # half of its functions have no types
F: Any = torch.nn.functional
T = Any

X = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
WHOLE, REAL = torch.tensor([1, 0, 3, 2, 1]), torch.tensor([0.5, 1.0, 0.25, 2.0, 1.0])
RUNS = torch.tensor([[[1, 1, 2, 2, 1]], [[1, 1, 2, 2, 1]]])

CASES: dict[str, tuple[Callable[..., Any], tuple[T, ...]]] = {
    "cov": (torch.cov, (X,)),
    "cov of few": (lambda x: torch.cov(x, correction=9), (X[:, :3].contiguous(),)),
    "cov of integers": (torch.cov, (torch.tensor([[1, 2, 4], [0, 3, 5]]),)),
    "cov of counts": (lambda x, w: torch.cov(input=x, fweights=w), (X, WHOLE)),
    "cov of weights": (lambda x, w: x.cov(correction=0, aweights=w), (X, REAL)),
    "cov of both": (lambda x, v, w: torch.cov(x, fweights=v, aweights=w), (X, WHOLE, REAL)),
    "corrcoef": (torch.corrcoef, (X,)),
    "corrcoef of a row": (torch.corrcoef, (X[0].contiguous(),)),
    "gaussian": (F.gaussian_nll_loss, (X, X * 2, X.abs())),
    "gaussian of rows": (
        lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True, reduction="sum"), (X, X * 2, X[:, 0].abs())
    ),
    "masked": (torch.masked_select, (X[0].contiguous(), X > 0)),
    "runs": (lambda x: torch.unique_consecutive(x, dim=-1), (RUNS,)),
    "runs and counts": (lambda x: torch.unique_consecutive(x, True, True, dim=-1), (RUNS,)),
    "counts of floats": (lambda x: x.unique_consecutive(return_counts=True), (X.round().flatten(),)),
    "unique floats": (torch.unique, (X.round(),)),
    "gather of nothing": (lambda x, i: x.gather(0, i), (X[0].contiguous(), torch.zeros((2, 0), dtype=torch.int64))),
    "linspace of integers": (lambda a: torch.linspace(a, -3, 50, dtype=torch.int64), (torch.tensor(4.3),)),
    "linspace of numbers": (lambda a: a + torch.linspace(4.7, -3.2, 50, dtype=torch.int32), (torch.tensor(4),)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.filterwarnings("ignore:.*inner type promotion:DeprecationWarning")
def test_results_are_eagers(name: str) -> None:
    f, given = CASES[name]
    found = from_torch(f, given).run(*given, target="numpy")
    torch.testing.assert_close(found, f(*given), check_stride=False)


def test_a_check_of_values_stays() -> None:
    given = (X, X, X.abs())
    imported = from_torch(F.gaussian_nll_loss, given)
    with pytest.raises(ig.FrontendError, match="var has negative"):
        imported.run(X, X, -X.abs())
    with pytest.raises(ig.FrontendError, match="weights sum to zero"):
        from_torch(lambda x, w: torch.cov(x, aweights=w), (X, REAL)).run(X, REAL * 0)


def test_what_torch_refuses_is_refused_by_torch() -> None:
    with pytest.raises(ig.FrontendError, match="var is of incorrect size"):
        from_torch(F.gaussian_nll_loss, (X, X, X[:2].abs()))
    with pytest.raises(ig.FrontendError, match="expected input to have two or fewer dimensions"):
        from_torch(torch.cov, (X[None],))


def test_the_line_of_the_user_is_named() -> None:
    imported = from_torch(lambda x: torch.corrcoef(x) + 1, (X,))
    calls = [n for n in imported.program.nodes if n.kind == "call"]
    assert len(calls) > 3
    assert {str(n.line).partition(":")[0] for n in calls} == {"test_replaced.py"}


def test_the_gradient_of_a_variance_is_torchs() -> None:
    x, var = X.clone().requires_grad_(), (X.abs() - 0.5).clamp(min=0).requires_grad_()
    (wanted,) = torch.autograd.grad(F.gaussian_nll_loss(x, X * 2, var, eps=0.25), var)

    def gradient(x: T, var: T) -> T:
        return torch.func.grad(lambda v: F.gaussian_nll_loss(x, X * 2, v, eps=0.25))(var)

    found = from_torch(gradient, (X, var.detach())).run(X, var.detach())
    torch.testing.assert_close(found, wanted)
