"""What waits for its reader between opaque calls: where it is computed, and that values stay the same."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import random
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import idgraph as ig  # noqa: E402
from idgraph.frontends.partition import PartitionSinking  # noqa: E402


def nobody(*_: object) -> dict[str, int]:
    return {}


def crossing(imported: Any) -> int:
    """Bytes of what is stored by one segment and read by fusions of later ones, each time."""
    made = imported.calling("aten.mm.default")
    size = {t.name: t for s in made.segments if s.fusion is not None for t in (*s.fusion.inputs, *s.fusion.tensors)}
    total = 0
    for s in made.segments:
        for name in (*s.inputs, *s.outputs):
            t = size[name]
            n = 4
            for d in t.axes:
                n *= int(d.extent)
            total += n
    return total


def test_a_scaled_input_is_scaled_where_it_is_added() -> None:
    def norm(x: Any, a: Any) -> Any:
        return torch.nn.functional.layer_norm(x * 2.45 + x @ a, (16,))

    x, a = torch.randn(21, 16), torch.randn(16, 16)
    made = ig.from_torch(norm, (x, a)).calling("aten.mm.default")
    fusions = [s.fusion for s in made.segments if s.fusion is not None]
    assert [len(f.outputs) for f in fusions] == [1]
    assert torch.allclose(made.compiled("numpy")(x, a), norm(x, a), atol=1e-5)


def test_a_call_that_reads_nothing_computed_parts_no_rows() -> None:
    def centred(x: Any, a: Any, b: Any) -> Any:
        return (x - x.mean(-1, keepdim=True)) * (a @ b)

    args = torch.randn(21, 16), torch.randn(21, 4), torch.randn(4, 16)
    made = ig.from_torch(centred, args).calling("aten.mm.default")
    assert len([s for s in made.segments if s.fusion is not None]) == 1
    assert torch.allclose(made.compiled("numpy")(*args), centred(*args), atol=1e-5)


def test_a_call_of_something_computed_waits_for_it() -> None:
    def summed(x: Any, a: Any) -> Any:
        return (x - x.mean(-1, keepdim=True)) * ((a * 2.0) @ x)

    args = torch.randn(16, 16), torch.randn(16, 16)
    made = ig.from_torch(summed, args).calling("aten.mm.default")
    assert [s.fusion is not None for s in made.segments] == [True, True]
    assert torch.allclose(made.compiled("numpy")(*args), summed(*args), atol=1e-5)


def test_what_would_be_stored_for_another_stays() -> None:
    def two(x: Any, y: Any, a: Any) -> Any:
        u = torch.exp(x) * torch.sin(y)  # two numbers to store instead of one
        v = torch.exp(x).sum(0) + torch.sin(y).sum(0)
        return (v[:, None] * a) @ a + u

    args = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
    made = ig.from_torch(two, args).calling("aten.mm.default")
    assert torch.allclose(made.compiled("numpy")(*args), two(*args), atol=1e-4)


def test_parts_stay_where_they_are_cut() -> None:
    def gated(x: Any, a: Any) -> Any:
        u, v = (x * 2.0).chunk(2, 1)
        return (u @ a) * torch.nn.functional.silu(v)

    args = torch.randn(8, 12), torch.randn(6, 6)
    made = ig.from_torch(gated, args).calling("aten.mm.default")
    assert torch.allclose(made.compiled("numpy")(*args), gated(*args), atol=1e-5)


def drawn(seed: int) -> Any:
    """A program of products and operations on elements that read anything before them."""
    r = random.Random(seed)
    steps = [(r.choice(("mm", "add", "mul", "exp", "sum", "t", "double")), r.random(), r.random()) for _ in range(14)]

    def run(x: Any, y: Any) -> Any:
        known = [x, y]
        for op, p, q in steps:
            a, b = known[-1 - int(p * min(4, len(known)))], known[int(q * len(known))]
            match op:
                case "mm":
                    known.append(torch.tanh(a @ b))
                case "add":
                    known.append(a + b)
                case "mul":
                    known.append(a * b)
                case "exp":
                    known.append(torch.exp(-a * a))
                case "sum":
                    known.append(a.mean(0, keepdim=True) + b)
                case "t":
                    known.append(a.t().contiguous())
                case _:
                    known.append(a * 2.0 + 1.0)
        return (known[-1] @ known[-2]) * known[4] + known[7], known[-3]

    return run


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(10))
def test_random_programs_keep_their_values_and_move_no_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = drawn(seed)
    args = torch.randn(6, 6, dtype=torch.float32), torch.randn(6, 6)
    imported = ig.from_torch(run, args)
    made = imported.calling("aten.mm.default")
    for found, wanted in zip(made.compiled("numpy")(*args), run(*args), strict=True):
        assert torch.allclose(found, wanted, atol=1e-3, rtol=1e-3)
    late = crossing(imported)
    monkeypatch.setattr(PartitionSinking, "sunk_nodes", nobody)
    assert late <= crossing(imported)
