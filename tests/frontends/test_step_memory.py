"""The memory of a training step: what a forward leaves for its backward, and the most that is there at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch, torch_compile

torch = pytest.importorskip("torch")
Mode: Any = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode

ROWS, WIDTH = 64, 96


def gated(x: Any, w: Any, times: int) -> Any:
    """A norm of rows, then elementwise steps, any of which torch's gradients would keep."""
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    for _ in range(times):
        y = torch.nn.functional.silu(y) * torch.tanh(y) + x
    return y


class Live(Mode):
    """Counts the bytes of tensors that operations give, while they live; views are the memory that they lie in."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.now, self.most = 0, 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves((found,)):
            if isinstance(t, torch.Tensor):
                self._count(t.untyped_storage())
        return found

    def _count(self, memory: Any) -> None:
        at, size = memory.data_ptr(), memory.nbytes()
        if at in self._seen or not size:
            return
        self._seen.add(at)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(memory, self._gone, at, size)

    def _gone(self, at: int, size: int) -> None:
        self._seen.discard(at)
        self.now -= size


def saved(call: Callable[..., Any], *args: Any) -> int:
    """Bytes of the distinct memory that is left for the backward, that of the arguments not among it."""
    own = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
    memory: dict[int, int] = {}

    def pack(t: Any) -> Any:
        memory[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    def unpack(t: Any) -> Any:
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        found = call(*args)
        memory.pop(found.untyped_storage().data_ptr(), None)
    return sum(size for at, size in memory.items() if at not in own)


def cut_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs run in eager mode: how they are written and cut is what is asked."""

    def eagerly(_options: object, _graphs: object, _part: str, graph: Any, _examples: object) -> Any:
        def work(args: list[Any]) -> Any:
            given = tuple(args)
            args.clear()
            return graph.forward(*given)

        work._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
        return work

    monkeypatch.setattr(torch_compile, "_graph", eagerly)
    torch._dynamo.reset()


def kept_by(monkeypatch: pytest.MonkeyPatch, times: int) -> int:
    """`saved` of a compiled function."""
    cut_only(monkeypatch)
    torch.manual_seed(0)
    x, w = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(WIDTH, requires_grad=True)
    compiled = torch.compile(gated, backend="idgraph")
    left = saved(compiled, x, w, times)
    compiled(x, w, times).square().sum().backward()
    mine, x.grad, w.grad = (x.grad, w.grad), None, None
    gated(x, w, times).square().sum().backward()
    for a, b in zip(mine, (x.grad, w.grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert saved(gated, x, w, times) >= 4 * ROWS * WIDTH * times
    return left


@pytest.mark.parametrize("times", [1, 4])
def test_elementwise_results_are_not_left_for_the_backward(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Whatever the number of steps: only numbers of rows."""
    assert kept_by(monkeypatch, times) <= 2 * 4 * ROWS


def test_memory_is_free_again_after_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    guards: Any = torch._C._dynamo.guards

    def seen(size: Any, stride: Any, dtype: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype)

    monkeypatch.setattr(guards, "_empty_strided_cpu", seen)  # torch's own calls no mode
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH) for _ in range(4)]

    def layers(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = torch.relu(x @ w) + 1.0
        return x

    x = torch.randn(ROWS, WIDTH)
    expected = layers(x, *weights)
    imported = from_torch(layers, (x, *weights)).calling("aten.mm.default")
    torch.testing.assert_close(imported.run(x, *weights), expected)
    live: Any = Live()
    with live:
        found = imported.run(x, *weights)
    torch.testing.assert_close(found, expected)
    assert live.most == 2 * 4 * ROWS * WIDTH  # a product, and what is made of it


CLASSES = 192


def loss_of(x: Any, w: Any, target: Any, how: dict[str, Any]) -> Any:
    return torch.nn.functional.cross_entropy((x @ w).float(), target, **how)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_loss_leaves_the_logits_and_numbers_of_rows(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Not the log-softmax, which is twice as large in float32."""
    cut_only(monkeypatch)
    x = torch.randn(ROWS, WIDTH, dtype=getattr(torch, dtype), requires_grad=True)
    w = torch.randn(WIDTH, CLASSES, dtype=x.dtype, requires_grad=True)
    target = torch.arange(ROWS) % CLASSES
    left = saved(torch.compile(loss_of, backend="idgraph"), x, w, target, {})
    assert left <= x.element_size() * ROWS * CLASSES + 4 * 4 * ROWS
    assert saved(loss_of, x, w, target, {}) >= 4 * ROWS * CLASSES


@pytest.mark.parametrize("how", [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 3}, {"weight": True}, {"label_smoothing": 0.1},
    {"weight": True, "ignore_index": -100, "label_smoothing": 0.2},
])  # fmt: skip
@pytest.mark.parametrize("places", [(), (3, 2)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_losses_as_a_step_is_written(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], places: tuple[int, ...], dtype: str
) -> None:
    cut_only(monkeypatch)
    torch.manual_seed(0)
    x = torch.randn(5, 7, *places, dtype=getattr(torch, dtype), requires_grad=True)
    target = torch.randint(0, 7, (5, *places))
    target.view(-1)[1] = how.get("ignore_index", 1)
    how = {**how, "weight": torch.rand(7, dtype=x.dtype)} if "weight" in how else how

    def loss(x: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, target, **how)

    pairs: list[Any] = []
    for f in (loss, torch.compile(loss, backend="idgraph")):
        x.grad = None
        found = f(x)
        (found.float().cos().sum() if found.dim() else found).backward()
        pairs.append((found.detach(), x.grad))
    near: dict[str, Any] = {"rtol": 0.02, "atol": 1e-3} if dtype == "bfloat16" else {}
    torch.testing.assert_close(*pairs, **near)


def test_a_first_call_leaves_nothing_to_the_garbage_collector() -> None:
    """What is computed is freed when its last reader is done, in the call that finds out how values lie, too."""
    torch.manual_seed(0)
    x, w = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH)

    def layers(x: Any, w: Any) -> Any:
        return torch.relu(torch.relu(x @ w).t() @ x) + 1.0

    imported = from_torch(layers, (x, w)).calling("aten.mm.default")
    gc.collect()
    gc.disable()
    live: Any = Live()
    try:
        with live:
            found = imported.run(x, w)
            assert live.now == 4 * WIDTH * WIDTH
    finally:
        gc.enable()
    torch.testing.assert_close(found, layers(x, w), rtol=1e-4, atol=1e-4)
