"""DTensor on simulated devices: what is local, what moves, what is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import idgraph as ig
from idgraph.check import DTensorReport
from idgraph.check.dtensor_decide import placement_of
from idgraph.check.dtensor_form import DeviceElement
from idgraph.check.dtensor_simulation import random_parts
from idgraph.cli import main

MESH = ig.Mesh(x=2, y=2)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def one_more(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def of_five(x: torch.Tensor) -> torch.Tensor:
    return x.view(5)


def round_trip(shape: Sequence[int], out: Sequence[int], placed: Sequence[object]) -> DTensorReport:
    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return x.view(*out).view(*shape)

    return ig.check.dtensor(there_and_back, (torch.rand(*shape),), mesh=MESH, placements={"x": placed})


def test_view_and_back_is_another_tensor() -> None:
    r = round_trip((2, 4, 4), (32,), (Shard(1), Shard(1)))
    assert [(x.operation, x.verdict) for x in r.rows] == [("view", "local"), ("view", "wrong")]
    w = r.wrong[0].witness
    assert isinstance(w, DeviceElement) and w.element == (0, 0, 2) and w.is_of == (0, 0, 1) and w.rank == 0
    assert not r.ok and "view" in r.wrong[0].line


@pytest.mark.parametrize(
    ("shape", "out", "placed", "ok"),
    [
        ((2, 4, 2), (16,), (2, 1), False),
        ((2, 4, 4), (32,), (2, 1), False),
        ((2, 4, 4), (32,), (0, 1), True),
        ((4, 4), (16,), (0, 0), True),
        ((4, 4), (2, 8), (0, 1), True),
    ],
)
def test_round_trips(shape: Sequence[int], out: Sequence[int], placed: Sequence[int], ok: bool) -> None:
    """The right answer is that of DTensor itself: what it gathers at the end."""
    assert round_trip(shape, out, placed).ok == ok


def chunks(shape: Sequence[int], dims: Sequence[int], mesh: Sequence[int]) -> list[set[int]]:
    """The elements of each device, by torch.chunk."""
    found: list[set[int]] = []
    for at in product(*map(range, mesh)):
        mine = torch.arange(int(np.prod(shape))).reshape(*shape)
        for d, r, n in zip(dims, at, mesh, strict=True):
            parts = torch.chunk(mine, n, d)
            mine = parts[r] if r < len(parts) else mine[:0]
        found.append({int(n) for n in mine.flatten().numpy()})
    return found


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ((6,), (3, 2)),
        ((3, 2), (6,)),
        ((12,), (2, 6)),
        ((2, 6), (12,)),
        ((3, 4), (2, 6)),
        ((6, 2), (3, 2, 2)),
        ((8,), (2, 4)),
    ],
)
def test_refused_views_are_local_where_no_element_moves(
    shape: Sequence[int], out: Sequence[int], mesh: tuple[int, ...]
) -> None:
    def view(x: torch.Tensor) -> torch.Tensor:
        return x.view(*out)

    grid = ig.Mesh(**dict(zip("xy", mesh, strict=False)))
    for dims in product(range(len(shape)), repeat=len(mesh)):
        r = ig.check.dtensor(view, (torch.rand(*shape),), mesh=grid, placements={"x": list(dims)})
        if not r.rows[0].refused:
            continue
        owned = chunks(shape, dims, mesh)
        every = (chunks(out, d, mesh) for d in product(range(len(out)), repeat=len(mesh)))
        free = any(all(a <= b for a, b in zip(made, owned, strict=True)) for made in every)
        assert r.rows[0].verdict == ("local" if free else "communication"), (dims, str(r.rows[0]))
        if not free:
            w = r.rows[0].witness
            assert w is not None and w.reads is not None
            read = int(np.ravel_multi_index(w.reads, shape))
            assert read not in owned[w.rank] and all(read in owned[o] for o in w.owners)
            assert read == int(np.ravel_multi_index(w.element, out))


def test_collectives_and_bytes() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum(0)

    r = ig.check.dtensor(
        f, (torch.rand(4, 8), torch.rand(8, 6)), mesh=ig.Mesh(x=2), placements={"x": [Shard(1)], "w": ["S(0)"]}
    )
    assert [(x.operation, x.verdict, x.collective) for x in r.rows[:2]] == [
        ("mm", "local", None),
        ("relu", "communication", "all-reduce"),
    ]
    assert r.rows[1].bytes == 2 * (4 * 6 * 4) // 2 and r.ok  # twice round a ring of two

    def asks(x: DTensor) -> torch.Tensor:
        return x.redistribute(placements=[Replicate()]) + 1

    asked = ig.check.dtensor(
        asks, (torch.rand(8, 6),), mesh=ig.Mesh(x=4),
        placements={"x": [0]},
    )  # fmt: skip
    assert [(x.operation, x.collective, x.bytes) for x in asked.rows[:1]] == [("redistribute", "all-gather", 6 * 6 * 4)]


def test_modules_and_partial_arguments() -> None:
    r = ig.check.dtensor(torch.nn.Linear(4, 8), (torch.rand(6, 4),), mesh=ig.Mesh(x=2), placements={"weight": ["S(0)"]})
    assert r.ok and {"addmm"} <= {x.operation for x in r.rows}
    p = ig.check.dtensor(doubled, (torch.rand(4, 4),), mesh=ig.Mesh(x=2), placements={"x": ["P(sum)"]})
    assert p.ok and p.rows[0].inputs == ("(P(sum))",)


@pytest.mark.parametrize(
    ("placements", "said"),
    [
        ({"q": [0, 0]}, "not an argument"),
        ({"x": [0]}, "one placement for each"),
        ({"x": [7, 0]}, "has no axis"),
        ({"x": ["sideways", 0]}, "is not a placement"),
    ],
)
def test_bad_placements_are_refused(placements: dict[str, list[object]], said: str) -> None:
    with pytest.raises(ig.check.CheckError, match=said):
        ig.check.dtensor(one_more, (torch.rand(4, 4),), mesh=MESH, placements=placements)


def test_a_process_group_is_not_taken_over() -> None:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        with pytest.raises(ig.check.CheckError, match="process group"):
            ig.check.dtensor(one_more, (torch.rand(4),), mesh=ig.Mesh(x=2), placements={"x": [0]})
    finally:
        dist.destroy_process_group()
    assert ig.check.dtensor(one_more, (torch.rand(4),), mesh=ig.Mesh(x=2), placements={"x": [0]}).ok


def test_what_fails_anyhow_is_said() -> None:
    with pytest.raises(ig.check.CheckError, match="fails without devices too"):
        ig.check.dtensor(of_five, (torch.rand(4),), mesh=ig.Mesh(x=2), placements={"x": [0]})
    import torch.distributed as dist

    assert not dist.is_initialized()


def command(*arguments: str) -> tuple[int, str]:
    out, before = io.StringIO(), sys.argv
    sys.argv = ["idgraph", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else -1, out.getvalue()
    finally:
        sys.argv = before


def test_command_line(tmp_path: Path) -> None:
    file = tmp_path / "views.py"
    file.write_text(
        "import torch\nimport idgraph as ig\nmesh = ig.Mesh(x=2, y=2)\n"
        "def fn(x):\n    return x.view(32).view(2, 4, 4)\n"
        'args, placements = (torch.rand(2, 4, 4),), {"x": ["S(1)", "S(1)"]}\n'
    )
    code, text = command("check", "--dtensor", str(file))
    assert code == 1 and "1 wrong" in text and "[0, 0, 2]" in text
    code, text = command("check", "--dtensor", "--json", str(file))
    assert code == 1 and json.loads(text)["counts"]["wrong"] == 1
    file.write_text("fn, args = abs, ()\n")
    code, text = command("check", "--dtensor", str(file))
    assert code == 2 and "placements" in text
    assert command("check", "--dtensor", "--inductor", str(file))[0] == 2


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Shard(0)", Shard(0)), ("Shard(dim=1)", Shard(1)), ("S(-1)", Shard(-1)), (" Shard(-2) ", Shard(-2)),
        ("Replicate()", Replicate()), ("Replicate", Replicate()), ("R", Replicate()), (None, Replicate()),
        (1, Shard(1)), ("Partial()", Partial()), ("Partial(sum)", Partial()), ("P", Partial()),
        ("Partial('avg')", Partial("avg")), ("P(max)", Partial("max")),
        ("Partial(reduce_op='product')", Partial("product")),
        (str(Shard(2)), Shard(2)), (repr(Shard(2)), Shard(2)), (str(Replicate()), Replicate()),
        (repr(Replicate()), Replicate()), (str(Partial("min")), Partial("min")), (repr(Partial("min")), Partial("min")),
    ],
)  # fmt: skip
def test_placements_are_read_as_torch_prints_them(text: object, meant: object) -> None:
    assert placement_of(text, "x") == meant


@pytest.mark.parametrize(
    "text", ["Shard", "S()", "Shard(x)", "Shard(1", "Partial(most)", "RP", "S(0)S(1)", "", True, 1.0]
)
def test_texts_that_are_no_placements_are_refused(text: object) -> None:
    with pytest.raises(ig.IdGraphError, match="is not a placement of x") as info:
        placement_of(text, "x")
    assert '"Shard(1)", "Replicate()"' in str(info.value)


@pytest.mark.parametrize("placed", [("P(sum)", "S(0)"), ("S(0)", "P(sum)"), ("P(sum)", "S(1)")])
def test_partial_arguments_in_unequal_parts(placed: Sequence[str]) -> None:
    """Devices hold 3 and 2 of 5 rows, or 2 and 1 of 3 columns, of sums that are not reduced yet."""
    for fn, moved in ((doubled, False), (one_more, True)):
        r = ig.check.dtensor(fn, (torch.rand(5, 3),), mesh=MESH, placements={"x": placed})
        assert r.ok and [x.verdict for x in r.rows] == ["communication" if moved else "local"], r


def test_a_write_to_a_view_that_was_copied_is_lost() -> None:
    """DTensor gathers what `select` takes from the axis over the devices; what is written to it is not in `x`."""

    def written(x: torch.Tensor) -> torch.Tensor:
        x.select(0, 1).add_(x[0])
        return x

    r = ig.check.dtensor(written, (torch.rand(6, 4),), mesh=ig.Mesh(x=3), placements={"x": [0]})
    assert [x.verdict for x in r.rows] == ["communication", "communication", "wrong"], r
    w = r.wrong[0].witness
    assert w is not None and w.element[0] == 1 and w.rank == 0 and "(S(0))" in r.wrong[0].because
    kept = ig.check.dtensor(written, (torch.rand(6, 4),), mesh=ig.Mesh(x=3), placements={"x": [1]})
    assert kept.ok and [x.verdict for x in kept.rows] == ["local"] * 3, kept


def test_writes_that_return_nothing_are_judged() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        each: Any = getattr(torch, "_foreach_mul_")  # noqa: B009 - torch's optimisers call it
        each([x, y], 2.0)
        return x

    r = ig.check.dtensor(scaled, (torch.rand(5, 4), torch.rand(3)), mesh=MESH, placements={"x": [0, 1], "y": [0, "R"]})
    assert r.ok and [(x.operation, x.verdict) for x in r.rows] == [("_foreach_mul_", "local")], r


@pytest.mark.parametrize("fill", [torch.ones, torch.zeros])
def test_equal_numbers_hide_nothing(fill: Any) -> None:
    """The mean of uneven parts' means, of two arguments whose numbers are equal."""

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(x, y)

    r = ig.check.dtensor(loss, (fill(5, 4), fill(5, 4)), mesh=ig.Mesh(x=2), placements={"x": [0], "y": [0]})
    assert [x.verdict for x in r.rows] == ["wrong"], r


@pytest.mark.parametrize("op", ["sum", "avg", "max", "min", "product"])
@pytest.mark.parametrize("mesh", [{"x": 3}, {"x": 2, "y": 3}])
def test_parts_of_a_partial_argument(op: str, mesh: Mapping[str, int]) -> None:
    """They make the value by the definition of their reduction, and no device has it."""
    grid = ig.Mesh(**mesh)
    for value in (np.random.default_rng(0).normal(size=(5, 3)), np.arange(15).reshape(5, 3)):
        parts = random_parts(value, dict.fromkeys(mesh, op), grid)
        stack = np.stack(parts)
        total = {
            "sum": stack.sum(0), "avg": stack.sum(0) / len(parts), "max": stack.max(0), "min": stack.min(0),
            "product": stack.prod(0),
        }  # fmt: skip
        np.testing.assert_allclose(total[op], value, rtol=1e-9, atol=1e-9)
        assert not any((p == value).all() for p in parts) and parts[0].dtype == value.dtype
        for copies in (ig.Mesh(**mesh, z=2), ig.Mesh(z=2, **mesh)):
            more = random_parts(value, dict.fromkeys(mesh, op), copies)
            of = [tuple(at for name, at in copies.coordinates(r).items() if name != "z") for r in copies.ranks]
            assert all((more[k] == more[of.index(at)]).all() for k, at in enumerate(of))  # replicas are equal


def test_a_negative_axis_of_a_product_is_taken_for_another() -> None:
    """torch 2.13 does not see that the last axis, named -1, is the one that devices share."""
    for axis, verdict in ((-1, "wrong"), (1, "communication")):

        def running(x: torch.Tensor, axis: int = axis) -> torch.Tensor:
            return x.cumprod(axis)

        r = ig.check.dtensor(running, (torch.rand(3, 6),), mesh=ig.Mesh(x=2), placements={"x": [1]})
        assert [x.verdict for x in r.rows] == [verdict], r


@pytest.mark.parametrize("numbers", [torch.float32, torch.int64])
def test_devices_do_not_share_memory(numbers: torch.dtype) -> None:
    """What one adds to its replica is not in another's."""

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y)

    args = torch.arange(12).reshape(4, 3).to(numbers), torch.arange(12).reshape(4, 3).to(numbers)
    r = ig.check.dtensor(added, args, mesh=ig.Mesh(x=3), placements={"y": [0]})
    assert [x.verdict for x in r.rows] == ["communication"], r


def test_the_largest_of_two_counts() -> None:
    """torch 2.13 gives the second result the shape of the first; a check of another function does not change that."""

    def largest(x: torch.Tensor, k: int) -> torch.Tensor:
        return x.topk(k, 0)[0]

    def both(x: torch.Tensor) -> torch.Tensor:
        return largest(x, 2).sum() + largest(x, 4).sum()

    def four(x: torch.Tensor) -> torch.Tensor:
        return largest(x, 4)

    args, mesh, placed = (torch.rand(4),), ig.Mesh(x=3), {"x": [0]}
    r = ig.check.dtensor(both, args, mesh=mesh, placements=placed)
    assert [x.operation for x in r.wrong] == ["topk", "sum"] and "4 elements, where the placement says 2" in str(r)
    assert ig.check.dtensor(four, args, mesh=mesh, placements=placed).ok


def test_what_the_simulation_cannot_run_is_not_refused_by_dtensor() -> None:
    """Parts of four and three rows are summed into parts of two and three chunks: processes do it, and are right."""

    def largest(x: torch.Tensor) -> torch.Tensor:
        return x.topk(1, 1)[0]

    args, placed = (torch.rand(7, 5),), {"x": ["S(0)", "P(sum)"]}
    r = ig.check.dtensor(largest, args, mesh=ig.Mesh(x=2, y=3), placements=placed)
    (row,) = r.rows
    assert (row.verdict, row.refused) == ("unknown", "") and "simulation of the devices cannot run it" in row.because
