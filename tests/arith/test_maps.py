"""Index maps: inverses are proved, properties decided exactly."""

from __future__ import annotations

import itertools
import random

import pytest

from idgraph.arith import ArithError, Collision, Expr, IndexMap, MapProof, Missed, symbol
from idgraph.arith.maps import Undecided

i, j = symbol("i", 0, 63), symbol("j", 0, 7)
r, c = symbol("r", 0, 63), symbol("c", 0, 7)
n, m = symbol("n", 1), symbol("m", 1)
p, q = symbol("p", 0, n - 1), symbol("q", 0, m - 1)

BIJECTIONS = [
    IndexMap((i,), ((i + 32) % 64,), (64,)),
    IndexMap((i,), (i // 8, i % 8), (8, 8)),
    IndexMap((i, j), (i * 8 + j,), (512,)),
    IndexMap((i, j), (j * 64 + i,), (512,)),
    IndexMap((r, c), (r, c ^ (r % 8)), (64, 8)),
    IndexMap((r, c), (r * 8 + (c ^ (r % 8)),), (512,)),
    IndexMap((i,), (63 - i,), (64,)),
    IndexMap((i,), (i % 8 * 8 + i // 8,), (64,)),
    IndexMap((i,), (i // 8 % 4, i % 8, i // 32), (4, 8, 2)),
    IndexMap((i,), (i * 3 % 64,), (64,)),
    IndexMap((i, j), ((i + j) % 64, j), (64, 8)),
    IndexMap((i, j), (j, (i ^ j) * 1), (8, 64)),
]
SYMBOLIC = [
    IndexMap((p, q), (p * m + q,), (n * m,)),
    IndexMap((p,), ((p + n - 1) % n,), (n,)),
    IndexMap((p, q), (q, p), (m, n)),
    IndexMap((p,), (n - 1 - p,), (n,)),
]


@pytest.mark.parametrize("f", BIJECTIONS, ids=str)
def test_bijections_of_constant_boxes(f: IndexMap) -> None:
    assert f.is_bijective()
    assert f.is_injective()
    assert f.is_surjective()
    back = f.inverse()
    box = [range(s.range.hi + 1) for s in f.domain]  # type: ignore[operator]
    for point in itertools.product(*box):
        image = f(*point)
        assert back(*image) == point


@pytest.mark.parametrize("f", SYMBOLIC, ids=str)
def test_bijections_of_symbolic_boxes(f: IndexMap) -> None:
    back = f.inverse()
    assert back.compose(f).results == f.domain
    assert f.compose(back).results == back.domain
    assert f.is_bijective() == MapProof("bijective", "inverse")


def test_rotation_is_not_its_own_identity() -> None:
    turn = BIJECTIONS[0]
    assert str(turn.inverse()) == "(y0) -> ((y0 + 32)%64)"
    assert turn.compose(turn).results == (i,)


def test_refutations() -> None:
    double = IndexMap((i,), (i * 2 % 64,), (64,))
    found = double.is_injective()
    assert isinstance(found, Collision)
    assert double(*found.first.values()) == double(*found.second.values())
    assert found.first != found.second
    assert double.is_surjective() == Missed((1,))
    assert isinstance(IndexMap((i,), (i + 1,), (64,)).is_surjective(), Missed)
    padded = IndexMap((i, j), (i * 16 + j,), (1024,))
    assert padded.is_injective()
    assert not padded.is_surjective()
    with pytest.raises(ArithError, match="no known inverse"):
        double.inverse()
    with pytest.raises(ArithError, match="nothing goes to"):
        padded.inverse()


def test_undecided_says_so() -> None:
    found = IndexMap((p,), (p * p,), (n,)).is_injective()
    assert isinstance(found, Undecided)
    assert found.tried
    assert not found


def test_bad_maps() -> None:
    with pytest.raises(ArithError, match="extents"):
        IndexMap((i,), (i,), (8, 8))
    with pytest.raises(ArithError, match="symbols"):
        IndexMap((i + 1,), (i,), (64,))
    with pytest.raises(ArithError, match="twice"):
        IndexMap((i, symbol("i", 0, 3)), (i,), (64,))
    with pytest.raises(ArithError, match="coordinates"):
        BIJECTIONS[0](1, 2)


def test_random_permutations_of_digits() -> None:
    """Cut an axis into digits, rotate and flip some, put them together in another order."""
    pick = random.Random(5)
    for _ in range(40):
        sizes = [pick.choice([2, 3, 4, 5]) for _ in range(3)]
        total = sizes[0] * sizes[1] * sizes[2]
        x = symbol("x", 0, total - 1)
        digits = [x // (sizes[1] * sizes[2]), x // sizes[2] % sizes[1], x % sizes[2]]
        changed: list[Expr] = []
        for d, size in zip(digits, sizes, strict=True):
            kind = pick.randrange(3)
            changed.append(d if kind == 0 else (d + pick.randrange(size)) % size if kind == 1 else size - 1 - d)
        order = pick.sample(range(3), 3)
        out = (changed[order[0]] * sizes[order[1]] + changed[order[1]]) * sizes[order[2]] + changed[order[2]]
        f = IndexMap((x,), (out,), (total,))
        images = [f.results[0].evaluate({"x": v}) for v in range(total)]
        assert sorted(images) == list(range(total))
        assert f.is_bijective()
        back = f.inverse()
        assert [back.results[0].evaluate({"y0": y}) for y in images] == list(range(total))
