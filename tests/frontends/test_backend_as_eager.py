"""Where ``torch.compile(backend="idgraph")`` does as eager mode does: what is refused, what the check compares."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.errors import FrontendError
from idgraph.frontends import torch_compile as room
from idgraph.frontends.eager_check import compare_with_eager, difference

torch: Any = importlib.import_module("torch")
nn: Any = torch.nn
F: Any = torch.nn.functional
T = Any


def compiled(f: Callable[..., Any], **options: object) -> Any:
    torch._dynamo.reset()
    return torch.compile(f, backend="idgraph", options=options)


# The check compares with the function ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [[[3, 0, -1, 1], [-1, 1, 2, 3]], [[1, -1, 1, 3], [0, 1, 2, 3]]])
def test_targets_end_at_the_first_negative_number(target: list[list[int]]) -> None:
    x, t = torch.arange(8.0).reshape(2, 4).sin().requires_grad_(), torch.tensor(target)

    def f(x: T) -> T:
        return F.multilabel_margin_loss(x, t, reduction="none")

    found, expected = compiled(f)(x), f(x)
    torch.testing.assert_close(found, expected)
    (mine,), (theirs,) = torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_the_check_is_of_the_function_and_not_of_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's decomposition of this loss adds margins for what stands behind the first negative target."""
    monkeypatch.setattr(room, "patched", lambda module: module)
    x, t = torch.tensor([[0.1, 0.7, 0.2, 0.4]]), torch.tensor([[3, -1, 1, 0]])
    fast = compiled(lambda x, t: F.multilabel_margin_loss(x, t), check="first")
    with pytest.raises(FrontendError, match="result 0 is not eager's"):
        fast(x, t)


def complex_gradient(x: T) -> T:
    z = torch.view_as_complex(x)
    return (z * z.conj()).real + torch.exp(z).imag


RIGHT: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "complex gradients": (complex_gradient, lambda: (torch.randn(5, 2, requires_grad=True),)),
    "bags": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="max"),
        lambda: (torch.randn(10, 4, requires_grad=True), torch.tensor([1, 2, 4, 5]), torch.tensor([0, 3])),
    ),
    "an index without axes": (lambda x, i: x.index_select(0, i) + 1, lambda: (torch.randn(4, 3), torch.tensor(2))),
    "random numbers": (lambda x: F.dropout(x, 0.5) * 2, lambda: (torch.randn(20, 30, requires_grad=True),)),
    "arguments that are written": (lambda x, y: x.add_(y)[1:], lambda: (torch.randn(2, 4), torch.randn(4))),
    "views of arguments": (lambda x: (x, x.t(), x.view(-1), x[:, ::2]), lambda: (torch.randn(4, 6),)),
    "one memory": (lambda x, y: x + y, lambda: (lambda m: (m[:4], m[2:6]))(torch.randn(8))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_functions_pass_the_check(name: str) -> None:
    f, make = RIGHT[name]
    args = make()
    fast = compiled(f, check="first")
    torch.manual_seed(3)
    found = torch.utils._pytree.tree_leaves(fast(*copy.deepcopy(args)))
    torch.manual_seed(3)
    expected = torch.utils._pytree.tree_leaves(f(*copy.deepcopy(args)))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def ones(shape: tuple[int, ...] = (2, 3), dtype: str = "float32") -> T:
    return torch.ones(shape, dtype=getattr(torch, dtype))


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (ones((3, 2)), ones(), r"its shape is \(3, 2\), eager's \(2, 3\)"),
        (ones(dtype="float64"), ones(), "its dtype is torch.float64, eager's torch.float32"),
        (ones((3, 2)).t(), ones(), r"its strides are \(1, 2\), eager's \(3, 1\)"),
        (2 * ones(dtype="int64"), ones(dtype="int64"), "6 of 6 elements differ"),
        (ones() * 1.5, ones(), "the largest difference is 0.5"),
        (ones() * float("nan"), ones(), "the largest difference is"),
        (2, 3, "it is 2, eager's 3"),
        (None, ones(), "it is None, eager's tensor"),
        (ones().to(torch.complex64) * 1j, ones().to(torch.complex64), "the largest difference is 1"),
    ],
)
def test_what_differs_is_said(mine: T, theirs: T, words: str) -> None:
    with pytest.raises(FrontendError, match=words):
        compare_with_eager(lambda x: mine, lambda x: theirs, (ones(),), "f")
    assert difference(torch, theirs, theirs) is None


def test_what_differs_in_an_argument_a_gradient_or_in_memory_is_said() -> None:
    x = ones().requires_grad_()
    with pytest.raises(FrontendError, match="argument 0 after the call is not eager's"):
        compare_with_eager(lambda x: x + 1, lambda x: x.add_(1) + 0, (ones() * 5,), "f")
    with pytest.raises(FrontendError, match="the gradient of argument 0 is not eager's"):
        compare_with_eager(lambda x: x * 2 - x.detach(), lambda x: x * 1, (x,), "f")
    with pytest.raises(
        FrontendError, match=r"result 0 is not eager's\n.*memory of its own, eager's in the memory of arg"
    ):
        compare_with_eager(lambda x: x.t().clone().t().clone(), lambda x: x.view(2, 3), (ones(),), "f")
    with pytest.raises(FrontendError, match="eager raises ValueError, the kernels do not"):
        compare_with_eager(lambda x: x, _refuse, (ones(),), "f")
    compare_with_eager(_refuse, _refuse, (ones(),), "f")  # the call itself raises


def _refuse(x: T) -> T:
    raise ValueError("no")


# What eager refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 4])
@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_indices_that_count_from_the_front_alone(name: str, bad: int) -> None:
    def f(x: T, i: T, s: T) -> T:
        return getattr(x, name)(0, i, s)

    x, s = torch.arange(12.0).reshape(4, 3), torch.ones(2, 3)
    fast = compiled(f)
    with pytest.raises(Exception, match=f"index {bad}"):
        fast(x, torch.tensor([0, bad]), s)
    good = torch.tensor([3, 0])
    torch.testing.assert_close(fast(x, good, s), f(x, good, s))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, s: x.index_add(1, torch.tensor([2, 2]), s[:, :2], alpha=2.5),
        lambda x, s: x.index_add(-2, torch.tensor(1), s[:1]),
        lambda x, s: x[0].index_copy(0, torch.tensor(2), torch.tensor(0.5)),
        lambda x, s: x[0, 0].index_add(0, torch.tensor([0]), s[0, 0]),
        lambda x, s: x.long().index_add(0, torch.tensor([1, 1]), s[:2].long(), alpha=-3),
        lambda x, s: x.half().index_add(0, torch.tensor([1, 1], dtype=torch.int32), s[:2].half()),
        lambda x, s: (x > 1).index_add(0, torch.tensor([1, 3]), s[:2] > 0),
    ],
)
def test_slices_are_added_and_put(f: Callable[[T, T], T]) -> None:
    x, s = torch.arange(12.0).reshape(4, 3), torch.rand(4, 3)
    torch.testing.assert_close(compiled(f, check="first")(x, s), f(x, s))


DIVIDE: dict[str, Callable[[T, T], T]] = {
    "floor": lambda a, b: a // b, "remainder": lambda a, b: a % b, "fmod": lambda a, b: torch.fmod(a, b),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "number": lambda a, b: 7 // b + a,
    "number's remainder": lambda a, b: 7 % b + a, "inside": lambda a, b: ((a + 1) // (b * 2)).sum(),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "int64") for name in DIVIDE), ("floor", "int32"), ("fmod", "uint8")]
)
def test_an_integer_divided_by_zero_raises(name: str, dtype: str) -> None:
    f, to = DIVIDE[name], getattr(torch, dtype)
    a, b = torch.tensor([6, 7, 8]).to(to), torch.tensor([2, 1, 3]).to(to)
    fast = compiled(f)
    torch.testing.assert_close(fast(a, b), f(a, b))
    b[1] = 0
    for g in (f, fast):
        with pytest.raises(Exception, match="ZeroDivisionError"):
            g(a, b)


def test_floats_divided_by_zero_do_not_raise() -> None:
    a, b = torch.tensor([6.0, -7.0]), torch.tensor([0.0, 2.0])
    torch.testing.assert_close(compiled(lambda a, b: a // b)(a, b), a // b)
    zeros = compiled(lambda a, b: a // b, checked=False)(torch.tensor([6]), torch.tensor([0]))
    assert zeros.tolist() == [0]  # unchecked: as the page of numbers has it


@pytest.mark.parametrize("f", [lambda a: a // 0, lambda a: a % 0, lambda a: torch.fmod(a, 0)])
def test_an_integer_divided_by_the_number_zero_raises(f: Callable[[T], T]) -> None:
    with pytest.raises(Exception, match="ZeroDivisionError"):
        compiled(f)(torch.tensor([6, 7]))
    torch.testing.assert_close(compiled(f)(torch.tensor([6.0, 7.0])), f(torch.tensor([6.0, 7.0])), equal_nan=True)


def test_a_quotient_without_elements_divides_nothing() -> None:
    assert compiled(lambda a, b: a // b)(torch.arange(0), torch.tensor([0])).shape == (0,)


def test_convolution_and_norm_train_for_several_steps() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    twin = copy.deepcopy(model)
    fast = compiled(model)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        mine, theirs = fast(x) + fast(x * 2), twin(x) + twin(x * 2)
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        mine.sum().backward()
        theirs.sum().backward()
    for a, b in zip((*model.parameters(), *model.buffers()), (*twin.parameters(), *twin.buffers()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)
