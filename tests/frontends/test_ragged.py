"""Jagged nested tensors and segment reductions of torch, against torch's own kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")


def jagged(*rest: int) -> Any:
    torch.manual_seed(0)
    return torch.nested.nested_tensor_from_jagged(torch.randn(9, *rest), torch.tensor([0, 2, 4, 9]))


CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "pointwise": (lambda t, s: torch.exp(t) * 2, ()),
    "pointwise, wide": (lambda t, s: torch.sin(t) + t, (3,)),
    "sum": (lambda t, s: t.sum(1), ()),
    "sum, wide": (lambda t, s: t.sum(1), (3,)),
    "mean": (lambda t, s: t.mean(1), (3,)),
    "largest": (lambda t, s: t.amax(1), ()),
    "scaled": (lambda t, s: t * s, ()),
    "scaled, wide": (lambda t, s: t * s.unsqueeze(-1), (3,)),
    "centred": (lambda t, s: t - t.mean(1, keepdim=True), ()),
    "linear": (lambda t, s: torch.nn.functional.linear(t, torch.ones(2, 4)), (4,)),
    "normalized": (lambda t, s: torch.nn.functional.layer_norm(t, (4,)), (4,)),
    "side by side": (lambda t, s: torch.cat([t, t * 2], -1), (4,)),
    "padded": (lambda t, s: torch.nested.to_padded_tensor(t, -1.0), (4,)),
    "looked up": (lambda t, s: torch.nn.functional.embedding(t.abs().long().clamp(0, 2), s), ()),
    "softmax beside": (lambda t, s: torch.softmax(t, -1), (4,)),
}


@pytest.mark.parametrize("name", CASES)
def test_jagged_tensors(name: str) -> None:
    fn, rest = CASES[name]
    t, s = jagged(*rest), torch.tensor([[1.0], [2.0], [3.0]])
    torch._dynamo.reset()
    expected, found = fn(t, s), torch.compile(fn, backend="idgraph", fullgraph=True)(t, s)
    assert found.is_nested == expected.is_nested
    if expected.is_nested:
        assert torch.equal(found.offsets(), expected.offsets())
        expected, found = expected.values(), found.values()
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_a_softmax_along_rows_is_left_to_torch() -> None:
    """torch breaks the graph at it, and refuses to where none may be; what stands around it is compiled."""
    t = jagged(4)

    def fn(t: Any) -> Any:
        return torch.softmax(t * 2.0, 1) + 1.0

    torch._dynamo.reset()
    found = torch.compile(fn, backend="idgraph")(t)
    torch.testing.assert_close(found.values(), fn(t).values())
    torch._dynamo.reset()
    with pytest.raises(Exception, match="data-dependent") as info:
        torch.compile(fn, backend="idgraph", fullgraph=True)(t)
    assert "test_ragged.py" in str(info.value)  # the user's line


def test_a_softmax_along_rows_whose_longest_is_known() -> None:
    """torch traces it where the tensor says how long its rows are."""
    values, ends = torch.randn(9, 4), torch.tensor([0, 2, 4, 9])
    t = torch.nested.nested_tensor_from_jagged(values, ends, min_seqlen=2, max_seqlen=5)
    torch._dynamo.reset()

    def softmax(t: Any) -> Any:
        return torch.softmax(t, 1)

    found = torch.compile(softmax, backend="idgraph", fullgraph=True)(t)
    torch.testing.assert_close(found.values(), torch.cat([r.softmax(0) for r in values.tensor_split([2, 4])]))


def test_attention_of_rows_in_its_padded_form() -> None:
    """What torch cannot trace of nested tensors, written with the operations that it would make of it."""

    def attention(x: Any, o: Any) -> Any:
        def padded(rows: Any) -> Any:
            return torch.ops.aten._jagged_to_padded_dense_forward(rows, [o], [9], 0.0)

        p, there = padded(x), padded(torch.ones_like(x[:, :1])).transpose(1, 2) > 0
        weights = (p @ p.transpose(1, 2) / 2).masked_fill(~there, float("-inf")).softmax(-1)
        return torch.ops.aten._padded_dense_to_jagged_forward(weights.nan_to_num() @ p, [o], 9)

    x, o = torch.randn(9, 4), torch.tensor([0, 2, 2, 9])
    imp = ig.from_torch(attention, (x, o))
    assert not imp.coverage.opaque
    wanted = torch.cat([torch.softmax(r @ r.T / 2, -1) @ r for r in torch.tensor_split(x, [2, 2])])
    torch.testing.assert_close(imp.run(x, o), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_segments_by_offsets(how: str, rest: tuple[int, ...]) -> None:
    def fn(x: Any, o: Any) -> Any:
        return torch.segment_reduce(x, how, offsets=o, axis=0)

    x = torch.randn(9, *rest)
    imp = ig.from_torch(fn, (x, torch.tensor([0, 2, 2, 9])))
    assert not imp.coverage.opaque
    for ends in ([0, 2, 2, 9], [0, 0, 0, 9], [0, 3, 6, 9]):
        o = torch.tensor(ends)
        torch.testing.assert_close(imp.run(x, o), fn(x, o), equal_nan=True)
    with pytest.raises(ig.IndexingError, match="these are no offsets of rows of 9 elements"):
        imp.run(x, torch.tensor([0, 5, 3, 9]))


@pytest.mark.parametrize("given", [{"lengths": [2, 0, 7]}, {"offsets": [0, 2, 2, 9], "initial": 1.0}])
def test_other_segments_are_opaque(given: dict[str, Any]) -> None:
    kept = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in given.items()}

    def fn(x: Any) -> Any:
        return torch.segment_reduce(x, "sum", axis=0, unsafe=True, **kept)

    x = torch.arange(9.0)
    imp = ig.from_torch(fn, (x,))
    assert list(imp.coverage.opaque) == ["aten.segment_reduce.default"]
    torch.testing.assert_close(imp.run(x), fn(x))


def test_a_padded_form_that_is_longer_or_shorter_than_the_rows() -> None:
    x, o = torch.arange(1.0, 10.0).reshape(9, 1), torch.tensor([0, 2, 2, 9])
    for length in (3, 9, 12):

        def fn(x: Any, o: Any, length: int = length) -> Any:
            return torch.ops.aten._jagged_to_padded_dense_forward(x, [o], [length], -1.0)

        imp = ig.from_torch(fn, (x, o))
        assert not imp.coverage.opaque
        rows = [[*r.flatten().tolist(), *[-1.0] * 12][:length] for r in torch.tensor_split(x, [2, 2])]
        found: Any = imp.run(x, o)
        assert found.squeeze(-1).tolist() == rows
