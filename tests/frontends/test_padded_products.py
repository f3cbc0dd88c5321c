"""Products on padded operands: values as without, only where it pays, only on the device's kind of tensors."""

# torch is untyped here:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.cost import devices
from idgraph.frontends.graph_rewrites import with_padded_products
from idgraph.ir.device import Device

torch: Any = pytest.importorskip("torch")
aten: Any = torch.ops.aten
# A machine whose library is slow on rows that begin anywhere, and whose copies are free.
EAGER = replace(
    devices["cpu"], products={"float32": 1e11, "float32 unaligned": 1e9}, bandwidth=1e15, launch_us=0.0, vector_bytes=16
)


def captured(call: Any, *args: Any) -> Any:
    return torch.fx.experimental.proxy_tensor.make_fx(call, tracing_mode="fake")(*args)


def operand(shape: tuple[int, ...], transposed: bool) -> Any:
    if not transposed:
        return torch.randn(shape)
    return torch.randn((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)


@pytest.mark.parametrize("kind", ["mm", "addmm", "bmm", "baddbmm"])
@given(
    sizes=st.tuples(*[st.integers(1, 13)] * 3), left=st.booleans(), right=st.booleans(),
    bias=st.sampled_from(["row", "column", "all", "vector"]),
)  # fmt: skip
def test_values_and_strides_are_those_of_the_product(
    kind: str, sizes: tuple[int, int, int], left: bool, right: bool, bias: str
) -> None:
    m, n, k = sizes
    batch = (3,) if kind in ("bmm", "baddbmm") else ()
    a, b = operand((*batch, m, k), left), operand((*batch, k, n), right)
    shapes = {"row": (*batch, 1, n), "column": (*batch, m, 1), "all": (*batch, m, n), "vector": (n,)}
    shape = shapes["all" if bias == "vector" and batch else bias]
    args = [torch.randn(shape), a, b] if kind in ("addmm", "baddbmm") else [a, b]
    operation = getattr(aten, kind).default
    graph = captured(operation, *args)
    found, chosen = with_padded_products(graph, EAGER)
    want, got = operation(*args), found(*args)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert got.shape == want.shape and got.stride() == want.stride()
    for p in chosen:
        lengths = (p.after[2] if not left or k == 1 else p.after[0], p.after[1])
        assert p.before != p.after and all(x % 4 == 0 for x in lengths if x != 1)


def padded(device: Device, *shapes: tuple[int, int]) -> tuple[int, ...] | None:
    args = [torch.randn(s) for s in shapes]
    graph = captured(aten.mm.default, *args)
    found, chosen = with_padded_products(graph, device)
    if not chosen:
        assert found is graph
        return None
    (product,) = [n for n in found.graph.nodes if n.target is aten.mm.default]
    a, b = (x.meta["val"] for x in product.args)
    assert (a.shape[0], b.shape[1], a.shape[1]) == chosen[0].after and str(chosen[0]).count("->") >= 1
    return chosen[0].after


def test_what_is_padded_follows_from_rows_in_memory() -> None:
    assert padded(EAGER, (64, 32), (32, 57)) == (64, 60, 32)
    assert padded(EAGER, (64, 57), (57, 32)) == (64, 32, 60)
    assert padded(EAGER, (57, 32), (32, 64)) is None  # rows of 32, 64 and 64 elements
    assert padded(EAGER, (64, 32), (32, 64)) is None


def test_it_pays_or_is_left() -> None:
    dear = replace(EAGER, bandwidth=1e3)
    assert padded(dear, (64, 32), (32, 57)) is None
    assert padded(devices["cpu"], (64, 32), (32, 57)) is None  # no rate of unaligned rows: as fast
    assert padded(devices["H100"], (64, 32), (32, 57)) is None  # the tensors are a CPU's


def test_sizes_that_are_symbols_are_left() -> None:
    call = torch.fx.experimental.proxy_tensor.make_fx(aten.mm.default, tracing_mode="symbolic")
    graph = call(torch.randn(64, 32), torch.randn(32, 57))
    assert with_padded_products(graph, EAGER) == (graph, ())


def test_two_products_share_a_padded_operand() -> None:
    x, w = torch.randn(8, 32), torch.randn(32, 57)

    def both(x: Any, w: Any) -> Any:
        return aten.mm.default(x, w), aten.mm.default(x + 1, w)

    graph = captured(both, x, w)
    found, chosen = with_padded_products(graph, EAGER)
    pads = [n for n in found.graph.nodes if n.target is aten.constant_pad_nd.default]
    assert len(chosen) == 2 and len(pads) == 1


def test_a_training_step_behind_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = pytest.importorskip("idgraph.frontends.torch_compile")

    def device(_: str) -> Device:
        return EAGER

    monkeypatch.setattr(backend, "current_device", device)
    weight = torch.randn(57, 32, requires_grad=True)
    x = torch.randn(8, 32, requires_grad=True)
    said: list[str] = []

    def loss(x: Any) -> Any:
        logits = torch.tanh(x) @ weight.t()
        return logits, torch.nn.functional.cross_entropy(logits, torch.arange(8))

    torch._dynamo.reset()
    options = {"log": said.append, "cache": False, "workers": 0}
    made = torch.compile(loss, backend="idgraph", options=options)
    rows: list[list[Any]] = []
    for call in (loss, made):
        x.grad = weight.grad = None
        logits, value = call(x)
        value.backward()
        rows.append([logits.detach(), value.detach(), x.grad, weight.grad])
    for a, b in zip(*rows, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert sum("padded operands" in s for s in said) == 3, said


def test_a_factor_is_padded_once_for_products_with_it_and_with_its_transpose() -> None:
    """A weight's gradient and its input's read the same gradient, one of them transposed."""
    args = [torch.randn(8, 57), torch.randn(57, 12), torch.randn(8, 20)]

    def call(g: Any, weight: Any, x: Any) -> Any:
        return aten.mm(g, weight), aten.mm(aten.t(g), x), aten.mm(aten.transpose(aten.t(g), 0, 1), weight)

    found, chosen = with_padded_products(captured(call, *args), EAGER)
    assert len(chosen) == 3
    pads = [n.meta["val"].shape for n in found.graph.nodes if n.target is aten.constant_pad_nd.default]
    assert sorted(map(tuple, pads)) == [(8, 60), (60, 12)]
    for got, want in zip(found(*args), call(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
