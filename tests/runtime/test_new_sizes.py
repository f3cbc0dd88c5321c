"""Calls with sizes that no call has had: the values of torch, and the words and memory of one bound the whole way."""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.runtime.binding import BoundArray
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.cuda.launch import CudaMachine, LaunchContext
from idgraph.runtime.shape_guards import GuardSpec, ResizedCall, compile_shape_guards
from idgraph.runtime.shape_specialized import ShapeSpecialization

torch: Any = pytest.importorskip("torch")
kinds: Any = pytest.importorskip("idgraph.runtime.array_backends")
Eager = Callable[..., tuple[Any, ...]]


def rows() -> tuple[ig.Fusion, Eager]:
    f = ig.Fusion("rows")
    n, m = f.symbol("n", min=0, max=1 << 33), f.symbol("m", min=1)
    x, y = f.input("x", (n, m)), f.input("y", (m,))
    f.output(x * 2.0 + y, ig.sum(x, 1))
    return f, lambda x, y: (x * 2 + y, x.sum(1))


def joined() -> tuple[ig.Fusion, Eager]:
    f = ig.Fusion("joined")
    n = f.symbol("n", min=2)
    x, y = f.input("x", (n, 3)), f.input("y", (n * 2 + 1, 3))
    f.output(ig.cat([x, y], 0), x[1:] - x[:-1])
    return f, lambda x, y: (torch.cat([x, y]), x[1:] - x[:-1])


def stepped() -> tuple[ig.Fusion, Eager]:
    f = ig.Fusion("stepped")
    n = f.symbol("n", min=8, max=800, multiple_of=8)
    x = f.input("x", (n,))
    f.output(ig.reshape(x, (n // 8, 8)), ig.sum(x, 0))
    return f, lambda x: (x.reshape(-1, 8), x.sum(0))


def looked_up() -> tuple[ig.Fusion, Eager]:
    f = ig.Fusion("looked_up")
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    f.output(ig.embedding(f.input("i", (n,), "int64"), f.input("w", (m, 4))))
    return f, lambda i, w: (w[i],)


MADE = (rows, joined, stepped, looked_up)


def arrays(f: ig.Fusion, env: dict[str, int], rng: random.Random) -> list[Any]:
    """Tensors of these sizes, which lie in many ways."""
    found: list[Any] = []
    for t in f.inputs:
        shape = [int(d.extent.evaluate(env)) for d in t.axes]
        if t.dtype == "int64":
            found.append(torch.randint(0, max(env["m"], 1), shape))
            continue
        way = rng.randrange(5)
        if way == 0:
            x = torch.rand(shape[::-1]).permute(*reversed(range(len(shape))))
        elif way == 1:
            x = torch.rand(1 + torch.Size(shape).numel())[1:].view(shape)
        elif way == 2:
            x = torch.rand([*shape[:-1], shape[-1] + 3])[..., 3:]
        else:
            x = torch.rand(shape)
        found.append(x)
    return found


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_values_at_random_sizes(make: Callable[[], tuple[ig.Fusion, Eager]], kind: str) -> None:
    f, eager = make()
    k: Any = ig.compile(f, "cpu")
    rng = random.Random(1)
    quick, declared = 0, {s: (int(e.symbol_bounds[0] or 0), e.symbol_bounds[2]) for s, e in f.symbols.items()}
    for _ in range(60):
        env = {"n": rng.choice((0, 1, 2, 3, 5, 8, 16, 33, 64, 200)), "m": rng.choice((0, 1, 2, 7, 40, 1003))}
        given = arrays(f, env, rng)
        fits = all(env[s] >= low and env[s] % step == 0 for s, (low, step) in declared.items())
        wanted = eager(*given) if fits else ()
        outs: Any = [torch.empty(x.shape) for x in wanted] if rng.random() < 0.3 and fits else None
        if kind == "numpy":
            given, outs = [x.numpy() for x in given], None if outs is None else [x.numpy() for x in outs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of copies
            if not fits:
                with pytest.raises(IdGraphError, match="outside its declaration"):
                    k(*given)
                continue
            found = k(*given, out=outs if outs is None or len(outs) > 1 else outs[0])
        found = found if isinstance(found, tuple) else (found,)
        for x, y in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(x), y, rtol=1e-4, atol=1e-4)
            assert torch.as_tensor(x).is_contiguous() or not y.numel()
        quick += any(isinstance(r, ResizedCall) for r in k._caller._routes.values())
    assert quick > 20


class Driver:
    """Starts nothing, and remembers the launches."""

    def __init__(self) -> None:
        self.launched: list[Any] = []

    def cuStreamIsCapturing(self, _: int) -> tuple[int, int]:
        return 0, 0

    def cuMemHostAlloc(self, size: int, _: int) -> tuple[int, int]:
        self.held = torch.zeros(size, dtype=torch.uint8)
        return 0, self.held.data_ptr()


@pytest.mark.parametrize("make", MADE)
def test_words_are_those_of_the_whole_way(make: Callable[[], tuple[ig.Fusion, Eager]]) -> None:
    """Sizes up to beyond 32 bits and the largest grids, which no memory has room for."""
    f, _ = make()
    ig.schedule.auto(f)
    program = ig.emit(f, "cuda")
    functions: dict[str, Any] = {}
    for k in program.kernels:
        functions[k.name] = kernel = DeviceKernel.__new__(DeviceKernel)
        vars(kernel).update(_driver=Driver(), _function=0, _waits=False)
    program._functions[True, 0] = functions
    kind = kinds.torch_kind()

    def whole(env: dict[str, int], strides: list[tuple[int, ...]]) -> ShapeSpecialization:
        given = {
            t.name: BoundArray(tuple(int(d.extent.evaluate(env)) for d in t.axes), t.dtype, s, None, "cuda:0")
            for t, s in zip(f.inputs, strides, strict=True)
        }
        return ShapeSpecialization(program, kind, CudaMachine(LaunchContext(Driver(), 0)), given, None, True)

    def key(env: dict[str, int], strides: list[tuple[int, ...]]) -> tuple[Any, ...]:
        shapes = [tuple(int(d.extent.evaluate(env)) for d in t.axes) for t in f.inputs]
        return tuple((t.dtype, "cuda:0", x, s, False) for t, x, s in zip(f.inputs, shapes, strides, strict=True))

    def lying(env: dict[str, int]) -> list[tuple[int, ...]]:
        shapes = [tuple(int(d.extent.evaluate(env)) for d in t.axes) for t in f.inputs]
        return [torch.empty(s, device="meta").stride() for s in shapes]

    first = {"n": 16, "m": 4}
    base = whole(first, lying(first))
    shapes = [t.shape for t in f.inputs]
    alike = compile_shape_guards(
        base, key(first, lying(first)), GuardSpec(shapes, range(len(shapes)), f.symbols), lambda *_: base
    )
    assert alike is not None
    rng, same = random.Random(2), 0
    sizes = (0, 1, 2, 7, 8, 64, 800, 4096, 65535 * 8, 1 << 20, (1 << 31) - 8, 1 << 31, (1 << 31) + 8, 1 << 34, 1 << 62)
    for _ in range(400):
        env = {s: rng.choice(sizes) for s in ("n", "m")}
        try:
            strides = lying(env)
        except RuntimeError:  # too large for torch
            continue
        if rng.random() < 0.2:
            strides = [s[::-1] for s in strides]
        try:
            wanted = whole(env, strides)
        except IdGraphError:
            assert alike(key(env, strides)) is None, env
            continue
        found = alike(key(env, strides))
        if any(i.why for i in wanted.inputs) or any(0 in (m.shape or ()) for m in wanted.made):
            assert found is None
            continue
        assert found is not None, env
        same += 1
        assert found.env == {s: wanted.env[s] for s in f.symbols}
        kept = [(m.shape, m.strides) if m.shape is not None else (m.size,) for m in wanted.made]
        assert list(found.memory) == kept
        pairs: Any = zip(cast("Any", found.launches)._launches, cast("Any", wanted.launches)._launches, strict=True)
        for (a, _), (b, _) in pairs:
            assert (a._shape, a._words) == (b._shape, b._words)
    assert same > 20


def test_threads_with_sizes_of_their_own() -> None:
    f, eager = rows()
    k: Any = ig.compile(f, "cpu")
    wrong: list[object] = []

    def calls(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            x = torch.full((rng.randrange(1, 50), rng.randrange(1, 50)), float(seed))
            y = torch.full((x.shape[1],), 1.0)
            if not all(map(torch.equal, k(x, y), eager(x, y))):
                wrong.append(x.shape)

    threads = [threading.Thread(target=calls, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
