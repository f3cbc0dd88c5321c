"""Issues of PyTorch's tracker about DTensor, tried on the version at hand; the page on devices has the same table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import idgraph as ig

Fn = Callable[[Any], Any]
Pair = Callable[[Any, Any], Any]
Shapes = Sequence[tuple[int, ...]]
X4, X2, X6, XY = ig.Mesh(x=4), ig.Mesh(x=2), ig.Mesh(x=6), ig.Mesh(x=2, y=2)
PAGE = Path(__file__).resolve().parents[2] / "tools" / "docs" / "pages" / "devices.md"


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, w)


def filtered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv1d(x, w, padding=1)


def loss_of_logits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(x, y)


def shuffled(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pixel_shuffle(x, 2)


# issue, what it says, function, shapes, mesh, placements, verdicts today
ISSUES: Sequence[tuple[str, Fn | Pair, Shapes, ig.Mesh, Mapping[str, Sequence[str]], Sequence[str]]] = [
    ("179502", lambda x: x.view(-1, 6), [(12, 8)], X4, {"x": ["S(1)"]}, ["communication"]),
    ("179509", lambda x: x.view(8, 8), [(4, 4, 4)], ig.Mesh(x=2, y=3), {"x": ["S(1)", "R"]}, ["communication"]),
    ("179632", lambda x: x.view(16, 6), [(12, 8)], X6, {"x": ["S(1)"]}, ["communication"]),
    ("143372", lambda x: x.view(-1), [(6, 256)], X4, {"x": ["S(0)"]}, ["communication"]),
    ("161147", lambda x: x.reshape(2, 3, 5), [(6, 5)], X4, {"x": ["S(0)"]}, ["communication"]),
    ("161578", lambda x: x.view(-1), [(8, 256)], XY, {"x": ["S(0)", "S(1)"]}, ["local"]),
    ("162692", lambda x: x.mean(), [(3, 4)], X2, {"x": ["S(0)"]}, ["communication"]),
    ("166483", lambda x: x.flatten(), [(2, 4)], X2, {"x": ["S(1)"]}, ["local"]),
    ("view and back", lambda x: x.view(32).view(2, 4, 4), [(2, 4, 4)], XY, {"x": ["S(1)", "S(1)"]}, ["local", "wrong"]),
    ("uneven batch", filtered, [(2, 3, 9), (4, 3, 3)], ig.Mesh(x=3), {"x": ["S(0)"]}, ["wrong"]),
    ("uneven loss", loss_of_logits, [(5, 4), (5, 4)], X2, {"x": ["S(0)"]}, ["wrong"]),
    ("uneven width", shuffled, [(2, 8, 3, 3)], X2, {"x": ["S(3)"]}, ["wrong"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("issue", "fn", "shapes", "mesh", "placements", "verdicts"), ISSUES, ids=[i[0] for i in ISSUES]
)
def test_issue(
    issue: str,
    fn: Fn | Pair,
    shapes: Sequence[tuple[int, ...]],
    mesh: ig.Mesh,
    placements: Mapping[str, Sequence[str]],
    verdicts: Sequence[str],
) -> None:
    r = ig.check.dtensor(fn, tuple(torch.rand(*s) for s in shapes), mesh=mesh, placements=placements)
    assert [row.verdict for row in r.rows] == list(verdicts)
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {issue} "))
    assert row.rstrip(" |").split("|")[-1].strip() == ", ".join(verdicts)


def test_a_sequence_sharded_linear() -> None:
    r = ig.check.dtensor(linear, (torch.rand(2, 8, 4), torch.rand(4, 4)), mesh=X4, placements={"x": ["S(1)"]})
    assert not r.wrong and r.rows


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, float("inf")])
def test_norms_of_parts_are_put_together_as_norms(power: float) -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        measure: Any = torch.linalg
        return measure.vector_norm(x, power) * 2

    r = ig.check.dtensor(norm, (torch.rand(5, 4),), mesh=XY, placements={"x": ["S(0)", "S(1)"]})
    assert [row.verdict for row in r.rows] == ["local", "communication"]


def test_rows_of_an_embedding_that_another_device_has_count_for_nothing() -> None:
    def look_up(i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(i, w) + 1

    args = (torch.tensor([0, 3, 5, 7, 2]), torch.rand(8, 4))
    r = ig.check.dtensor(look_up, args, mesh=X2, placements={"w": ["S(0)"]})
    assert [(row.operation, row.verdict) for row in r.rows] == [("embedding", "local"), ("add", "communication")]


def test_rows_that_were_looked_up_and_gathered_are_refused_by_name() -> None:
    """The indices lie over one axis of the mesh and the table over the other; torch keeps the mask of the parts."""

    def look_up(i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.embedding(i, w)
        return torch.stack([rows, rows], 1)

    args, placed = (torch.tensor([0, 3, 5, 1, 2]), torch.rand(6, 12)), {"i": ["S(0)", "R"], "w": ["S(1)", "S(0)"]}
    with pytest.raises(ig.check.CheckError, match="mask of shape"):
        ig.check.dtensor(look_up, args, mesh=ig.Mesh(x=2, y=3), placements=placed)


def test_a_refused_loss_of_uneven_parts_needs_what_others_have() -> None:
    """DTensor refuses the mean over parts of different size; each device lacks what the others add up."""

    def loss(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, i)

    r = ig.check.dtensor(
        loss, (torch.rand(5, 8), torch.tensor([0, 3, 5, 7, 2])), mesh=X2, placements={"x": ["S(0)"], "i": ["S(0)"]}
    )
    (row,) = [row for row in r.rows if row.refused]
    assert r.ok and row.operation == "nll_loss_forward" and row.verdict == "communication"
    w = row.witness
    assert w is not None and w.rank == 0 and w.owners == (1,) and w.element == () and w.reads is not None
    assert w.reads[0] >= 3  # of the rows 3 and 4, which rank 1 has


def reflected(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (1, 2), mode="reflect")


def limited(x: torch.Tensor) -> torch.Tensor:
    return x.renorm(2, 1, 1.0)  # each column


REFUSED: Mapping[str, tuple[Fn, tuple[int, ...], str, str]] = {  # DTensor has no rule for these at all
    "columns of other devices": (reflected, (2, 3, 7), "S(2)", "communication"),
    "columns of its own": (reflected, (2, 3, 7), "S(1)", "local"),
    "norms with other devices": (limited, (5, 4), "S(0)", "communication"),
    "norms of its own": (limited, (5, 4), "S(1)", "local"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operations_that_dtensor_has_no_rule_for_are_judged(name: str) -> None:
    fn, shape, placed, verdict = REFUSED[name]

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return fn(x) * 2

    large = torch.rand(*shape) + 1  # each element by itself changes the norm of its column
    r = ig.check.dtensor(doubled, (large,), mesh=X4, placements={"x": [placed]})
    row = r.rows[0]
    assert row.refused and row.verdict == verdict and (row.witness is None) == (verdict == "local")
    assert r.ok and not r.wrong and r.rows[-1].operation == "mul"  # what follows is judged as well


def test_random_numbers_that_dtensor_refuses_are_unknown() -> None:
    def filled(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).bernoulli_(0.5)

    r = ig.check.dtensor(filled, (torch.rand(5, 4),), mesh=X2, placements={"x": ["P(sum)"]})
    assert [(row.operation, row.verdict) for row in r.rows] == [("empty_like", "local"), ("bernoulli_", "unknown")]
    assert "refuses" in r.rows[1].because and "random numbers" in r.rows[1].because


def test_an_error_inside_loss_parallel_is_forgotten() -> None:
    """torch leaves its rules of sharded losses in force where the block raises."""
    from torch.distributed.tensor.parallel import loss_parallel

    def fails(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        with loss_parallel():
            raise ValueError(f"no {x.shape} {i.shape}")

    def loss(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, i)

    args = (torch.rand(6, 4), torch.tensor([0, 1, 2, 3, 1, 0]))
    with pytest.raises(ig.check.CheckError, match="no"):
        ig.check.dtensor(fails, args, mesh=X2, placements={"x": ["S(1)"]})
    r = ig.check.dtensor(loss, args, mesh=X2, placements={"x": ["S(0)"], "i": ["S(0)"]})
    assert [(row.verdict, row.refused) for row in r.rows] == [("local", "")] * 2


@pytest.mark.parametrize("placed", ["S(0)", "S(1)", "S(2)"])
def test_elements_that_nothing_wrote_are_not_wrong(placed: str) -> None:
    """A circular pad begins with memory that holds nothing yet; dropout does, too."""

    def around(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (1, 1), mode="circular")

    def dropped(x: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.dropout(x, 0.5) != 0) * 0 + x

    r = ig.check.dtensor(around, (torch.rand(2, 3, 6),), mesh=X2, placements={"x": [placed]})
    assert not r.wrong and {row.verdict for row in r.rows} == {"local", "communication"}
    r = ig.check.dtensor(dropped, (torch.rand(2, 3, 6),), mesh=X2, placements={"x": [placed]})
    assert {row.verdict for row in r.rows} == {"local"}
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("placed", ["S(0)", "S(1)", "R"])
def test_replicas_of_numbers_that_repeat_are_written_once(placed: str) -> None:
    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 1).add_(y)

    args = (torch.rand(5, 4), torch.arange(20.0).reshape(5, 4) // 3)
    r = ig.check.dtensor(added, args, mesh=X2, placements={"x": [placed]})
    assert [row.verdict for row in r.rows] == ["local", "local"]


def test_what_follows_a_refused_broadcast_is_judged() -> None:
    """Elements of an expanded tensor share one place in memory."""

    def widened(x: torch.Tensor) -> torch.Tensor:
        return x.expand(5, 4) + 1

    r = ig.check.dtensor(widened, (torch.rand(1, 4),), mesh=X2, placements={"x": ["S(0)"]})
    assert [(row.operation, row.verdict) for row in r.rows] == [("expand", "communication"), ("add", "local")]
