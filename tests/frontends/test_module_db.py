"""PyTorch's own modules (`module_db`) through the backend of ``torch.compile``: results, gradients and buffers beside
eager's. A sample of each that is quick; nightly every sample of all."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
common: Any = pytest.importorskip("torch.testing._internal.common_modules")

from idgraph.frontends.torch_compile import register  # noqa: E402  # the backend's name

# At 64 taps a window takes minutes in LLVM: each lane has code of its own for each tap.
LONG = {"nn.AvgPool3d": "windows of 64 taps take minutes to compile"}
QUICK = (
    "nn.BCELoss", "nn.Conv1d", "nn.Hardshrink", "nn.HuberLoss", "nn.L1Loss", "nn.LogSigmoid", "nn.Mish",
    "nn.MultiMarginLoss", "nn.RNNCell", "nn.ReplicationPad1d", "nn.SoftMarginLoss", "nn.Softsign",
)  # fmt: skip
MODULES = {m.name: m for m in common.module_db}


def tensors(value: object) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def fresh(value: Any) -> Any:
    """The same arguments, as leaves of a graph of their own."""

    def leaf(t: Any) -> Any:
        return t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t

    return torch.utils._pytree.tree_map(leaf, value)


def built(info: Any, sample: Any, training: bool) -> Any:
    """The module, with no chance in it."""
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training)
    for part in module.modules():
        own: dict[str, object] = dict(vars(part))
        for name, value in own.items():
            if isinstance(value, float) and ("dropout" in name or (name == "p" and "Dropout" in type(part).__name__)):
                setattr(part, name, 0.0)
    return module


def results(module: Any, call: Any, sample: Any) -> list[Any]:
    """What a call gives, its gradients, buffers and what it leaves in its arguments."""
    args, named = fresh(sample.args), fresh(sample.kwargs)
    torch.manual_seed(0)
    found = tensors(call(*args, **named))
    ends = [t for t in found if t.requires_grad]
    leaves = [t for t in (*tensors((args, named)), *module.parameters()) if t.requires_grad and t.is_leaf]
    torch.manual_seed(1)
    by = [torch.randn_like(t) for t in ends]
    grads = torch.autograd.grad(ends, leaves, by, allow_unused=True) if ends and leaves else ()
    return [*found, *grads, *module.buffers(), *tensors((args, named))]


def compare(info: Any, sample: Any, training: bool) -> None:
    torch.compiler.reset()
    register()
    module = built(info, sample, training)
    other = copy.deepcopy(module)
    want = results(module, module, sample.forward_input)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?!idgraph)")  # of torch's own
        warnings.filterwarnings("error", message="idgraph: .* left to eager mode")
        found = results(other, torch.compile(other, backend="idgraph", options={"workers": 0}), sample.forward_input)
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def samples(info: Any, training: bool) -> list[Any]:
    return [
        s
        for s in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        if s.forward_input is not None
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_module_is_as_eager(name: str) -> None:
    compare(MODULES[name], samples(MODULES[name], True)[0], True)


@pytest.mark.nightly
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.skip(reason=LONG[n])] if n in LONG else []) for n in MODULES]
)
def test_every_sample_of_a_module_is_as_eager(name: str, training: bool) -> None:
    for sample in samples(MODULES[name], training):
        compare(MODULES[name], sample, training)
