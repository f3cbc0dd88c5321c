# A table of lambdas of different arity has no types to check; what they compute is compared with torch instead.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
"""The oracle against torch, on every operation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import idgraph as ig
from idgraph.ir.op_table import POINTWISE, apply, names, primitives
from idgraph.validate.oracle import evaluate

Tensors = list[torch.Tensor]
Case = tuple[str, list[tuple[tuple[int, ...], str]], Callable[..., ig.Tensor], Callable[..., torch.Tensor]]

FLOATS = ("float32", "float64", "bfloat16", "float16")
TORCH_NAME = {"round": "round", "copy": "clone"}
BINARY = (
    "add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide", "pow", "div", "atan2",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


def torch_tensor(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """Random values that hit zero, halves and both signs."""
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.from_numpy(rng.integers(0, 2, shape) > 0)
    if dtype in FLOATS:
        return torch.from_numpy(rng.integers(-12, 13, shape) / 4.0).to(kind)
    return torch.from_numpy(rng.integers(0 if dtype == "uint8" else -9, 10, shape)).to(kind)


def as_array(t: torch.Tensor) -> np.ndarray[Any, Any]:
    """torch to NumPy; half types through float32, which holds them exactly."""
    return (t.float() if t.dtype in (torch.bfloat16, torch.float16) else t).numpy()


def check(build: Callable[..., ig.Tensor], reference: Callable[..., torch.Tensor], given: Tensors) -> None:
    """One operation, both ways, same values and same dtype."""
    f = ig.Fusion("f")
    ts = [f.input(f"x{k}", shape=tuple(t.shape), dtype=str(t.dtype).split(".")[1]) for k, t in enumerate(given)]
    out = f.output(build(*ts))
    want = reference(*given)
    assert tuple(out.shape) == tuple(want.shape)
    assert out.dtype == str(want.dtype).split(".")[1]
    got = evaluate(f, {t.name: as_array(v) for t, v in zip(ts, given)})[out.name]
    close = {"float32": 1e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2}.get(out.dtype, 0)
    np.testing.assert_allclose(got.astype(np.float64), as_array(want).astype(np.float64), rtol=close, atol=close / 100)


def unary(op: str) -> Callable[[ig.Tensor], ig.Tensor]:
    """A primitive of one operand."""
    return lambda x: apply(x.fusion, op, (x,))


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("op", [n for n in names(operands=1) if n in POINTWISE - {"cast"}])
def test_unary(op: str, dtype: str) -> None:
    """Every unary operation on every kind of type that torch allows it on."""
    reference = getattr(torch, TORCH_NAME.get(op, op))
    x = torch_tensor((5, 7), dtype, np.random.default_rng(1))
    try:
        reference(x)
    except (RuntimeError, TypeError):
        pytest.skip(f"torch has no {op} of {dtype}")
    if dtype == "bool" and op in ("abs", "sign", "square"):
        pytest.skip("of no use")
    check(unary(op), reference, [x])


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float32"),
                                    ("int64", "int64"), ("int32", "float32"), ("uint8", "int32")])  # fmt: skip
@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str, dtypes: tuple[str, str]) -> None:
    """Every binary operation with broadcasting and mixed types; whole numbers divide by no zero."""
    rng = np.random.default_rng(2)
    a, b = torch_tensor((3, 1, 5), dtypes[0], rng), torch_tensor((4, 5), dtypes[1], rng)
    if not dtypes[0].startswith(("float", "bfloat")) and op in ("remainder", "fmod", "floor_divide", "pow"):
        b = b.abs() + 1
    check(lambda x, y: apply(x.fusion, op, (x, y)), getattr(torch, op), [a, b])


@pytest.mark.parametrize("value", [0.1, -2.5, 3, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("op", ["add", "mul", "lt", "ge", "maximum"])
def test_number_operand(op: str, dtype: str, value: float) -> None:
    """A Python number beside a tensor has torch's type and precision."""
    x = torch_tensor((6, 6), dtype, np.random.default_rng(3))
    reference = getattr(torch, op)
    number = torch.tensor(value) if op == "maximum" else value
    check(lambda t: apply(t.fusion, op, (t, value)), lambda t: reference(t, number), [x])


@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_bits(op: str, dtype: str) -> None:
    """Bit operations on integers and bool."""
    rng = np.random.default_rng(4)
    given = [torch_tensor((4, 5), dtype, rng), torch_tensor((5,), dtype, rng)]
    check(lambda x, y: apply(x.fusion, op, (x, y)), getattr(torch, op), given)


@pytest.mark.parametrize("to", [*FLOATS, "int64", "int32", "bool"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_cast(dtype: str, to: str) -> None:
    """Conversions, toward zero from floats to integers."""
    x = torch_tensor((5, 7), dtype, np.random.default_rng(5))
    check(lambda t: ig.cast(t, to), lambda t: t.to(getattr(torch, to)), [x])


def test_nan_and_infinity() -> None:
    """NaN wins in maximum, minimum, amax, amin and relu; comparisons with it are false."""
    x = torch.tensor([[1.0, float("nan"), float("inf")], [-float("inf"), 0.0, 2.0]])
    for op in ("maximum", "minimum", "lt", "ne"):
        check(lambda a, b, op=op: apply(a.fusion, op, (a, b)), getattr(torch, op), [x, x.flip(0)])
    for op in ("relu", "isnan", "isinf", "logical_not"):
        check(unary(op), getattr(torch, op), [x])
    check(lambda a: ig.amax(a, 1), lambda a: torch.amax(a, 1), [x])
    check(lambda a: ig.amin(a, 0, keepdim=True), lambda a: torch.amin(a, 0, keepdim=True), [x])


CASES: list[Case] = [
    ("where", [((4, 1), "bool"), ((4, 5), "float32"), ((5,), "float32")], ig.where, torch.where),
    ("where scalar", [((4, 1), "bool"), ((4, 5), "bfloat16")], lambda c, x: ig.where(c, x, 0.0),
     lambda c, x: torch.where(c, x, 0.0)),
    ("fma", [((4, 5), "float64")] * 3, lambda a, b, c: apply(a.fusion, "fma", (a, b, c)), lambda a, b, c: a * b + c),
    ("unsqueeze", [((4, 5), "float32")], lambda x: ig.unsqueeze(x, -1), lambda x: x.unsqueeze(-1)),
    ("squeeze", [((4, 1, 5, 1), "float32")], ig.squeeze, torch.squeeze),
    ("expand", [((4, 1), "float32")], lambda x: ig.expand(x, 2, -1, 3), lambda x: x.expand(2, -1, 3)),
    ("permute", [((2, 3, 4), "float32")], lambda x: ig.permute(x, 2, 0, 1), lambda x: x.permute(2, 0, 1)),
    ("reshape", [((6, 4), "float32")], lambda x: ig.reshape(x, 3, 1, -1), lambda x: x.reshape(3, 1, -1)),
    ("slice", [((6, 9), "float32")], lambda x: x[1:-1, 2::3], lambda x: x[1:-1, 2::3]),
    ("slice down", [((6, 9), "float32")], lambda x: x[::-1, 7:1:-2],
     lambda x: torch.from_numpy(x.numpy()[::-1, 7:1:-2].copy())),
    ("slice empty", [((6, 9), "float32")], lambda x: x[3:3], lambda x: x[3:3]),
    ("select", [((6, 9), "float32")], lambda x: x[2, -1], lambda x: x[2, -1]),
    ("pad", [((3, 4), "float32")], lambda x: ig.pad(x, (1, -2, 2, 0), 7.5),
     lambda x: torch.nn.functional.pad(x, (1, -2, 2, 0), value=7.5)),
    ("flip", [((3, 4), "float32")], lambda x: ig.flip(x, (0, 1)), lambda x: torch.flip(x, (0, 1))),
    ("roll", [((3, 4), "float32")], lambda x: ig.roll(x, (1, -7), (0, 1)), lambda x: torch.roll(x, (1, -7), (0, 1))),
    ("roll flat", [((3, 4), "float32")], lambda x: ig.roll(x, 5), lambda x: torch.roll(x, 5)),
    ("cat", [((3, 4), "float32"), ((3, 1), "float32"), ((3, 0), "float32")], lambda *t: ig.cat(t, -1),
     lambda *t: torch.cat(t, -1)),
    ("cat mixed", [((3, 4), "bfloat16"), ((3, 1), "float32")], lambda *t: ig.cat(t, 1), lambda *t: torch.cat(t, 1)),
    ("slice_scatter", [((8, 3), "float32"), ((3, 3), "float32")], lambda x, s: ig.slice_scatter(x, s, 0, 1, 7, 2),
     lambda x, s: torch.slice_scatter(x, s, 0, 1, 7, 2)),
    ("sum", [((3, 4, 5), "float32")], lambda x: ig.sum(x, (0, 2)), lambda x: x.sum((0, 2))),
    ("sum of all", [((3, 4), "bfloat16")], ig.sum, torch.sum),
    ("sum of bool", [((3, 4), "bool")], lambda x: ig.sum(x, 1, keepdim=True), lambda x: x.sum(1, keepdim=True)),
    ("sum as", [((3, 4), "float32")], lambda x: ig.sum(x, 1, dtype="int64"), lambda x: x.sum(1, dtype=torch.int64)),
    ("prod", [((3, 4), "float32")], lambda x: ig.prod(x, 1), lambda x: x.prod(1)),
    ("any", [((6, 2), "int64")], lambda x: ig.any(x, 1), lambda x: x.any(1)),
    ("all", [((6, 2), "bool")], lambda x: ig.all(x, 1), lambda x: x.all(1)),
    ("mean", [((3, 4), "float32")], lambda x: ig.mean(x, 1), lambda x: x.mean(1)),
    ("matmul", [((2, 1, 3, 4), "float32"), ((5, 4, 6), "float32")], ig.matmul, torch.matmul),
    ("softmax", [((3, 4), "float32")], lambda x: ig.softmax(x, 1), lambda x: x.softmax(1)),
    ("log_softmax", [((3, 4), "float32")], lambda x: ig.log_softmax(x, 0), lambda x: x.log_softmax(0)),
    ("cumsum", [((3, 4), "float32")], lambda x: ig.cumsum(x, 1), lambda x: x.cumsum(1)),
    ("cumsum of bool", [((3, 4), "bool")], lambda x: ig.cumsum(x, 0), lambda x: x.cumsum(0)),
    ("cumsum as", [((3, 4), "int32")], lambda x: ig.cumsum(x, 0, dtype="float32"), lambda x: x.cumsum(0).float()),
    ("cumprod", [((3, 4), "float32")], lambda x: ig.cumprod(x, -1), lambda x: x.cumprod(-1)),
    ("logcumsumexp", [((3, 4), "float32")], lambda x: ig.logcumsumexp(x, -1), lambda x: x.logcumsumexp(-1)),
    ("cummax", [((3, 4), "int64")], lambda x: ig.cummax(x, 0), lambda x: x.cummax(0)[0]),
    ("cummin", [((3, 4), "float16")], lambda x: ig.cummin(x, 1), lambda x: x.cummin(1)[0]),
    ("iota", [((4,), "float32")], lambda x: x.fusion.iota(5, 3, -2), lambda x: torch.arange(3, -7, -2)),
    ("full", [((4,), "float32")], lambda x: x.fusion.full((2, 3), 1.5), lambda x: torch.full((2, 3), 1.5)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_moves_and_reductions(case: Case) -> None:
    """Operations that move, make or reduce."""
    _, shapes, build, reference = case
    rng = np.random.default_rng(6)
    check(build, reference, [torch_tensor(shape, dtype, rng) for shape, dtype in shapes])


def _index(shape: tuple[int, ...], extent: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(7).integers(0, extent, shape))


OFFSETS = torch.tensor([0, 2, 2, 5, 6])  # where rows of six elements begin and end, one of them empty


def _rows_of(x: torch.Tensor, value: float) -> torch.Tensor:
    """Rows one below the other, each as long as all elements, filled up with a value."""
    made = torch.full((4, 6, *x.shape[1:]), value)
    for r, (a, b) in enumerate(itertools.pairwise(OFFSETS.tolist())):
        made[r, : b - a] = x[a:b]
    return made


def _row_beginnings(x: torch.Tensor) -> torch.Tensor:
    """The first elements of each row, as many as the row has, one behind the other."""
    return torch.cat([x[r, : b - a] for r, (a, b) in enumerate(itertools.pairwise(OFFSETS.tolist()))])


INDEXED: list[tuple[str, Tensors, Callable[..., ig.Tensor], Callable[..., torch.Tensor]]] = [
    ("partition", [torch.rand(6, 3), OFFSETS], lambda x, o: ig.pad_ragged(ig.partition(x, 0, o), 0.5),
     lambda x, _: _rows_of(x, 0.5)),
    ("pad_ragged", [torch.rand(6), OFFSETS], lambda x, o: ig.pad_ragged(ig.partition(x, 0, o) * 2.0, -1.0),
     lambda x, _: _rows_of(x * 2, -1.0)),
    ("crop_ragged", [torch.rand(4, 6, 2), OFFSETS], lambda x, o: ig.combine(ig.crop_ragged(x, 0, o)),
     lambda x, _: _row_beginnings(x)),
    ("combine", [torch.rand(6, 2), OFFSETS], lambda x, o: ig.combine(ig.partition(x, 0, o) + 1.0), lambda x, _: x + 1),
    ("gather", [torch.rand(5, 6), _index((3, 6), 5)], lambda x, i: ig.gather(x, 0, i), lambda x, i: x.gather(0, i)),
    ("take_along_dim", [torch.rand(5, 1), _index((1, 4), 5)], lambda x, i: ig.take_along_dim(x, i, 0),
     lambda x, i: torch.take_along_dim(x, i, 0)),
    ("index_select", [torch.rand(5, 6, 2), _index((4,), 6)], lambda x, i: ig.index_select(x, 1, i),
     lambda x, i: x.index_select(1, i)),
    ("embedding", [_index((2, 3), 7), torch.rand(7, 4)], ig.embedding, torch.nn.functional.embedding),
    ("index", [torch.rand(2, 5, 6, 3), _index((4, 1), 5), _index((2,), 6)],
     lambda x, i, j: apply(x.fusion, "index", (x, i, j), {"dims": (1, 2)}), lambda x, i, j: x[:, i, j]),
    ("scatter", [torch.rand(5, 6), _index((3, 6), 5), torch.rand(3, 6)], lambda x, i, s: ig.scatter(x, 0, i, s),
     lambda x, i, s: _last_wins(x, i, s)),
    ("scatter_add", [torch.rand(5, 6), _index((3, 4), 6), torch.rand(4, 4)],
     lambda x, i, s: ig.scatter_add(x, 1, i, s), lambda x, i, s: x.scatter_add(1, i, s)),
    ("index_put", [torch.rand(5, 6, 2), torch.tensor([[4], [-1]]), torch.tensor([0, -2, 3]), torch.rand(2, 1, 2)],
     lambda x, i, j, v: ig.index_put(x, [i, j], v, accumulate=True),
     lambda x, i, j, v: x.index_put((i, j), v, accumulate=True)),
    ("index_put apart", [torch.rand(5, 6, 4), torch.tensor([3, 1]), torch.tensor([0, -2]), torch.rand(6)],
     lambda x, i, j, v: ig.index_put(x, [i, None, j], v), lambda x, i, j, v: _assigned(x, i, j, v)),
    ("index apart", [torch.rand(5, 6, 4), torch.tensor([3, 1]), torch.tensor([0, -2])],
     lambda x, i, j: ig.index_get(x, [i, None, j]), lambda x, i, j: x[i, :, j]),
]  # fmt: skip


def _assigned(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Advanced indexing on the left of an assignment, a whole axis between the indexed ones."""
    out = x.clone()
    out[i, :, j] = values
    return out


def _last_wins(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Scatter with a stated order of writers; torch's own is undefined."""
    out = x.clone()
    for r in range(index.shape[0]):
        for c in range(index.shape[1]):
            out[index[r, c], c] = src[r, c]
    return out


@pytest.mark.parametrize("case", INDEXED, ids=lambda c: c[0])
def test_indexed(case: tuple[str, Tensors, Callable[..., ig.Tensor], Callable[..., torch.Tensor]]) -> None:
    """Operations that read where an index tensor says."""
    _, given, build, reference = case
    check(build, reference, given)


def test_index_out_of_range_is_an_error() -> None:
    """The oracle does not wrap a negative index as NumPy would."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(4, 3)), f.input("i", shape=(2, 3), dtype="int64")
    f.output(ig.gather(x, 0, i))
    wrong = np.array([[0, 1, 2], [3, -1, 0]])
    with pytest.raises(ig.IndexingError, match=r"index at \(1, 1\) is -1"):
        evaluate(f, {"x": np.zeros((4, 3)), "i": wrong})


def test_symbolic_extents() -> None:
    """Symbols are read off the arrays, or given."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=1, multiple_of=2)
    x = f.input("x", shape=(n,))
    f.output(ig.cat([x[n // 2 :], x[: n // 2]]))
    (value,) = evaluate(f, {"x": np.arange(6.0)}).values()
    assert value.tolist() == [3, 4, 5, 0, 1, 2]
    with pytest.raises(ig.OperationError, match="outside its declared range"):
        evaluate(f, {"x": np.arange(5.0)})


def test_no_rounding_goes_through_in_float64() -> None:
    """rounded=False keeps float64 from end to end."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(3,), dtype="bfloat16")
    f.output(x / 3.0)
    (exact,) = evaluate(f, {"x": np.array([1.0, 2.0, 4.0])}, rounded=False).values()
    assert exact.dtype == np.float64
    assert exact.tolist() == [1 / 3, 2 / 3, 4 / 3]


def test_every_operation_is_compared() -> None:
    """A new primitive without a case here fails."""
    named = {c[0].split()[0] for c in CASES} | {c[0] for c in INDEXED}
    named |= {*(n for n in names(operands=1) if n in POINTWISE), *BINARY, "amax", "amin"}
    assert set(primitives()) <= named | {"bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"}
