"""Results of imported programs share memory where those of eager mode do."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from idgraph.frontends import from_torch
from idgraph.frontends import import_ as fx
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta
from idgraph.frontends.import_ import import_program

VIEWS = ("transpose", "narrow", "select", "unsqueeze", "expand", "flatten", "unflatten", "step", "diagonal", "detach",
         "chunk", "permute", "squeeze", "unfold")  # fmt: skip


def view(r: random.Random, kind: str, x: Any) -> Callable[[Any], Any]:
    """One view operation that fits a tensor like ``x``."""
    n = x.ndim
    d, e = r.randrange(n), r.randrange(n)
    match kind:
        case "transpose":
            return lambda t: t.transpose(d, e)
        case "permute":
            order = r.sample(range(n), n)
            return lambda t: t.permute(order)
        case "narrow":
            start = r.randrange(x.shape[d])
            return lambda t: t.narrow(d, start, x.shape[d] - start)
        case "step":
            return lambda t: t[(*[slice(None)] * d, slice(x.shape[d] // 3, None, 2))]
        case "select" if n > 1:
            return lambda t: t.select(d, x.shape[d] - 1)
        case "unsqueeze" if n < 5:
            return lambda t: t.unsqueeze(d)
        case "expand" if n < 5:
            return lambda t: t.expand(2, *x.shape)
        case "flatten" if n > 1:
            return lambda t: t.reshape(t.shape[0], -1)
        case "unflatten" if x.shape[d] % 2 == 0:
            return lambda t: t.unflatten(d, (2, -1))
        case "diagonal" if n > 1 and d != e:
            return lambda t: t.diagonal(0, d, e)
        case "detach":
            return lambda t: t.detach()
        case "chunk" if x.shape[d] > 1:
            return lambda t: t.chunk(2, d)[1]
        case "squeeze":
            return lambda t: t.squeeze()
        case "unfold" if x.shape[d] > 2:
            return lambda t: t.unfold(d, 2, 1)
        case _:
            return lambda t: t


def program(r: random.Random, x: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Views of arguments, of what is computed, of what is changed in place, and values among them."""
    steps: list[tuple[int, str, Callable[[Any], Any]]] = []

    def run(x: Any, y: Any) -> tuple[Any, ...]:
        pool: list[Any] = [x, y]
        for at, kind, how in steps:
            source = pool[at]
            pool.append(source.mul(2.0) if kind == "mul" else source.add_(1.0) if kind == "add_" else how(source))
        return tuple(pool[k] for k in kept)

    pool = [x, x + 1.0]
    changes = r.random() < 0.2
    for _ in range(r.randrange(2, 8)):
        at = r.randrange(len(pool))
        kind = "mul" if r.random() < 0.25 else "add_" if changes and at == 0 else r.choice(VIEWS)
        if pool[at].ndim == 0 or pool[at].numel() == 0:
            continue
        how = view(r, kind, pool[at])
        steps.append((at, kind, how))
        pool.append(pool[at] * 2.0 if kind in ("mul", "add_") else how(pool[at]))
    kept = sorted(r.sample(range(len(pool)), r.randrange(1, len(pool) + 1)))
    return run


def sharing(given: Sequence[Any], found: Sequence[Any]) -> list[tuple[int, int]]:
    """For each result the first argument or result that has its memory, and the bytes from where that begins.

    Views whose base no other result shares may begin anywhere in what eager mode keeps alive for them.
    """
    every = [*given, *found]
    memory = [t.untyped_storage().data_ptr() for t in every]
    first = [memory.index(m) for m in memory]
    return [(f, every[k].data_ptr() - every[f].data_ptr()) for k, f in enumerate(first)][len(given) :]


def an_argument(r: random.Random) -> Any:
    """A permuted slice of a larger tensor, so that it begins somewhere in its memory."""
    n = r.choice((1, 2, 3, 4))
    shape = [r.choice((1, 2, 3, 4, 6)) for _ in range(n)]
    whole = torch.randn([m + 2 for m in shape] if r.random() < 0.4 else shape)
    x = whole[tuple(slice(whole.shape[k] - m, None) for k, m in enumerate(shape))]
    return x.permute(r.sample(range(n), n))


def twin(x: Any) -> Any:
    """Another tensor with the same values, that lies alike."""
    made = torch.zeros(x.untyped_storage().nbytes() // 4)
    made[:] = torch.as_strided(x, (len(made),), (1,), 0)
    return made.as_strided(x.shape, x.stride(), x.storage_offset())


def agree(seed: int) -> None:
    r = random.Random(seed)
    x = an_argument(r)
    y = torch.randn(x.shape)
    f = program(r, x)
    a, b = (twin(x), y.clone()), (twin(x), y.clone())
    imp = from_torch(f, (twin(x), y.clone()))
    want, got = f(*a), cast("tuple[Any, ...]", imp.run(*b, target="numpy"))
    for w, g in zip(want, got, strict=True):
        assert w.shape == g.shape and torch.equal(w, g), f"seed {seed}"
        # torch's own capture may say another stride than eager mode for an axis of one element
        assert all(p == q for p, q, n in zip(w.stride(), g.stride(), w.shape, strict=True) if n > 1), f"seed {seed}"
    assert sharing(a, want) == sharing(b, got), f"seed {seed}"
    assert torch.equal(a[0], b[0])


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 100), marks=pytest.mark.nightly)])
def test_random_programs_share_what_eager_mode_shares(seeds: range) -> None:
    for seed in seeds:
        agree(seed)


@pytest.mark.nightly
def test_many_random_programs_share_what_eager_mode_shares() -> None:
    for seed in range(25, 2000):
        agree(seed)


def test_views_of_arguments_take_no_kernel() -> None:
    x = torch.randn(4, 6)
    imp = from_torch(lambda x: (x.t()[1:], x, torch.relu(x)), (x,))
    a, same, b = cast("tuple[Any, ...]", imp.run(x))
    assert [t.name for t in imp.segments[0].fusion.outputs] == ["relu"]  # type: ignore[union-attr]
    assert len(imp.fusion.outputs) == 2  # the index maps of views can be asked for
    assert same is x and a.data_ptr() == x.data_ptr() + 4 and a.stride() == (1, 6)
    x[0, 2] = 7.0
    assert a[1, 0] == 7.0 and torch.equal(b, torch.relu(b))
    none = from_torch(lambda x: x.t(), (x,))
    assert none.run(x).data_ptr() == x.data_ptr() and not none.kernels  # type: ignore[attr-defined]


@pytest.mark.parametrize("op", ["scan", "scatter"])
def test_views_of_scans_and_scatters_are_not_copied(op: str) -> None:
    def fn(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        if op == "scan":
            return (x.reshape(4, 8, 6).cumsum(1) * 2).reshape(32, 6)
        return x.new_zeros(2, 16, 6).index_add(1, at, x.reshape(2, 16, 6)).reshape(32, 6)

    x, at = torch.randn(32, 6), torch.arange(16) % 5
    imp = from_torch(fn, (x, at))
    torch.testing.assert_close(imp.run(x, at), fn(x, at))
    assert imp.segments[0].fusion is not None
    assert [t.ndim for t in imp.segments[0].fusion.outputs] == [3]


def test_numpy_arrays_have_views_too() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    imp = from_torch(lambda x: (x.t()[1:], x.diagonal(1), (y := x * 2.0), y[1:, ::2]), (torch.from_numpy(x),))
    a, d, y, z = cast("tuple[Any, ...]", imp.run(x, target="numpy"))
    assert np.shares_memory(a, x) and np.array_equal(a, x.T[1:])
    assert np.shares_memory(d, x) and np.array_equal(d, np.diagonal(x, 1))
    assert np.shares_memory(z, y) and np.array_equal(z, y[1:, ::2]) and not np.shares_memory(y, x)


def test_arguments_that_lie_otherwise_are_copied_as_captured() -> None:
    x = torch.randn(4, 6)
    imp = from_torch(lambda x: (x.t(), x[1:]), (x,))
    other = x.t().contiguous().t()
    a, b = cast("tuple[Any, ...]", imp.run(other))
    assert a.stride() == (1, 6) and torch.equal(a, x.t()) and torch.equal(b, x[1:])
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def test_arguments_changed_in_place_are_what_views_show() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = x[1:]
        x.add_(1.0)
        t = x * 2.0
        x.copy_(t)
        return part, x, t

    x = torch.randn(4, 6)
    a, b = x.clone(), x.clone()
    want, got = f(a), cast("tuple[Any, ...]", from_torch(f, (x.clone(),)).run(b))
    assert all(torch.allclose(p, q) for p, q in zip((a, *want), (b, *got), strict=True))
    assert sharing([a], want) == sharing([b], got) and got[1] is b


def test_dynamic_sizes() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2.0
        return x[1:].t(), y, y[:, x.shape[1] // 2 :]

    n = torch.export.Dim("n", min=4, max=64)
    imp = from_torch(f, (torch.randn(6, 8),), dynamic_shapes=({0: n},))
    for rows in (5, 9):
        x = torch.randn(rows, 8)
        want, got = f(x), cast("tuple[Any, ...]", imp.run(x))
        assert sharing([x], want) == sharing([x], got)
        assert all(torch.equal(p, q) and p.stride() == q.stride() for p, q in zip(want, got, strict=True))


def test_a_schedule_of_the_fusion_is_taken() -> None:
    x = torch.randn(8, 6)
    imp = from_torch(lambda x: ((y := x * 2.0), y.t(), x.t()), (x,))
    imp.fusion["mul"].split(0, 4)
    y, z, v = cast("tuple[Any, ...]", imp.run(x))
    (program,) = imp.kernels.values()
    assert "range(2)" in program.source and len(program.kernels) == 1  # type: ignore[attr-defined]
    assert z.data_ptr() == y.data_ptr() and v.data_ptr() == x.data_ptr() and torch.equal(z, 2.0 * v)


def _claimed(strides: tuple[int, ...], offset: int) -> fx.Import:
    x = Node("x", "placeholder", "x", meta=TensorMeta((3, 4), "float32", (4, 1)))
    y = Node("y", "call", "aten.t.default", (Ref("x"),), meta=TensorMeta((4, 3), "float32", strides, offset))
    return import_program(CapturedProgram("f", (x, y), (Ref("y"),), claimed=True))


def test_claims_of_files_are_proved() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = cast("tuple[Any, ...]", _claimed((1, 4), 0).run(x, target="numpy"))
    assert np.shares_memory(x, y) and np.array_equal(y, x.T)
    for strides, offset in (((3, 1), 0), ((1, 4), 2), ((1000, 1), 0)):  # wrong, or beyond the array
        (y,) = cast("tuple[Any, ...]", _claimed(strides, offset).run(x, target="numpy"))
        assert not np.shares_memory(x, y) and np.array_equal(y, x.T)
