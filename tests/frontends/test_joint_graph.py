"""What a training step is written in, instead of operations that do several things in kernels of their own."""

# torch is untyped here:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import pytest

from idgraph.frontends import joint_graph
from idgraph.frontends.joint_graph import decompositions

torch: Any = pytest.importorskip("torch")
aten: Any = torch.ops.aten
CONVOLUTIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "patches": (torch.nn.Conv2d(3, 8, 4, stride=4), (2, 3, 8, 8)),
    "by channel": (torch.nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 5, 6)),
    "sound": (torch.nn.Conv1d(3, 6, 3, padding=1), (2, 3, 9)),
    "volume": (torch.nn.Conv3d(2, 3, 2), (1, 2, 3, 4, 3)),
    "larger": (torch.nn.ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 3, 3)),
    "channels last": (
        torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.Conv2d(6, 5, 1)).to(memory_format=torch.channels_last),
        (2, 4, 5, 6),
    ),
    "no bias": (torch.nn.Conv2d(3, 8, 4, bias=False), (2, 3, 8, 8)),
}


def traced(layer: Any, x: Any) -> tuple[Any, list[Any]]:
    """The graph of a step on a layer, and its operands."""
    names, values = zip(*layer.named_parameters(), strict=True)

    def step(x: Any, *given: Any) -> Any:
        y = torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,))
        return y, *torch.autograd.grad((y * y).sum(), (x, *given))

    args = [x, *(v.detach().clone().requires_grad_() for v in values)]
    make_fx: Any = torch.fx.experimental.proxy_tensor.make_fx
    return make_fx(step, decomposition_table=decompositions())(*args), args


def _always(x: Any) -> bool:
    return True


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_bias_is_added_and_summed_outside_of_the_convolution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, shape = CONVOLUTIONS[name]
    last = {"memory_format": torch.channels_last} if name == "channels last" else {}
    x = torch.randn(shape).to(**last).requires_grad_() if last else torch.randn(shape, requires_grad=True)
    plain, args = traced(layer, x)
    monkeypatch.setattr(joint_graph, "_on_gpu", _always)
    found, _ = traced(layer, x)
    for got, want in zip(found(*args), plain(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    calls = {n.target: n.args for n in found.graph.nodes if n.op == "call_function"}
    assert calls[aten.convolution.default][2] is None
    assert not calls[aten.convolution_backward.default][-1][2]
    sums = [n.args for n in found.graph.nodes if n.target is aten.sum.dim_IntList]
    assert all(args[1] == [0] for args in sums) == (name in ("channels last", "no bias"))
    if name != "no bias":
        assert {n.target: n.args for n in plain.graph.nodes}[aten.convolution.default][2] is not None
