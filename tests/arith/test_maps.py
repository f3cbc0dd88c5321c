"""Index maps: inverses are proved, properties decided exactly."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

import pytest

from idgraph.arith import (
    ArithError,
    Collision,
    Expr,
    IndexMap,
    IndexSet,
    MapProof,
    Missed,
    NotInvertible,
    as_expr,
    parse,
    simplify,
    symbol,
    where,
)
from idgraph.arith import digit_solver as mixed_radix
from idgraph.arith import inverse as inverses
from idgraph.arith.index_map import Undecided

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
    assert f.is_bijective
    assert f.is_injective
    assert f.is_surjective
    back = f.inverse()
    box = [range(s.range.hi + 1) for s in f.symbols]  # type: ignore[operator]
    for point in itertools.product(*box):
        image = f(*point)
        assert back(*image) == point


@pytest.mark.parametrize("f", SYMBOLIC, ids=str)
def test_bijections_of_symbolic_boxes(f: IndexMap) -> None:
    back = f.inverse()
    assert back.compose(f).results == f.symbols
    assert f.compose(back).results == back.symbols
    assert f.is_bijective == MapProof("bijective", "inverse")


TURNED: list[tuple[tuple[Expr | int, ...], str, Expr | int]] = [  # extents, the map of i0, i1, i2; its codomain
    ((12, 2 * n, 5), "n*120 - 1 - ((i0*n*2 + i1)*5 + i2)", n * 120),
    ((12, 2 * n, 5), "(n*120 + 1 - (((11 - i0)*n*2 + i1)*5 + i2))%(n*120)", n * 120),
    ((n, n + 1, 2 * n), "n*(n + 1)*(n*2 + 3) - ((i0*(n + 1) + i1)*(n*2 + 3) + n*2 - i2)", n * (n + 1) * (2 * n + 3)),
    ((n + 1, n + 1), "(n + 1)*(n + 1) - ((i0 + 1)%(n + 1)*(n + 1) + (i1 + 3)%(n + 1)) - 1", (n + 1) * (n + 1)),
    ((n, 2 * n), "((i0*2 + 2)*n + 2 - i1)%(n*n*2)", n * n * 2),
    ((n, 4 * n), "(((n - i0 - 1)*n*4 + i1 + 1)%(n*n*4))*2 + 3", n * n * 8 + 5),
    ((n, n), "((n*n + 1 - (i0*n + i1))%(n*n) + 2)%(n*n + 2)", n * n + 2),
]  # fmt: skip


@pytest.mark.parametrize(("extents", "text", "size"), TURNED)
def test_maps_that_run_backwards_or_round_at_any_size(
    extents: tuple[Expr | int, ...], text: str, size: Expr | int
) -> None:
    """Flips and rolls of what a reshape or padded rows made: of no more than three times the map's operations."""
    symbols = tuple(symbol(f"i{k}", 0, simplify(as_expr(e) - 1)) for k, e in enumerate(extents))
    given = {x.name: x for x in (*symbols, n)}
    written = parse(text).substitute(given)
    for result in (written, simplify(written)):
        f = IndexMap(symbols, (result,), (simplify(as_expr(size)),))
        back = f.inverse()
        assert sum(map(operations, back.results)) <= 3 * max(operations(simplify(written)), operations(result))
        assert f.is_injective
        for value in (1, 2, 3, 7):
            box = [range(int(as_expr(e).evaluate({"n": value}))) for e in extents]
            reached = set[int]()
            for point in itertools.islice(itertools.product(*box), 500):
                y = int(written.evaluate({"n": value, **{s.name: v for s, v in zip(symbols, point, strict=True)}}))
                env = {"n": value, back.symbols[0].name: y}
                assert tuple(int(x.evaluate(env)) for x in back.results) == point
                assert back.condition.evaluate(env)
                reached.add(y)
            if len(list(itertools.islice(itertools.product(*box), 501))) <= 500:
                for y in range(min(int(as_expr(size).evaluate({"n": value})), 500)):
                    assert bool(back.condition.evaluate({"n": value, back.symbols[0].name: y})) == (y in reached)


def operations(e: Expr) -> int:
    """Operations of a formula as it is written."""
    own = len(e.args) - 1 if e.op in ("add", "mul") else bool(e.args)
    return own + sum(map(operations, e.args))


def test_rotation_is_not_its_own_identity() -> None:
    turn = BIJECTIONS[0]
    assert str(turn.inverse()) == "(y0) -> ((y0 + 32)%64)"
    assert turn.compose(turn).results == (i,)


def test_refutations() -> None:
    double = IndexMap((i,), (i * 2 % 64,), (64,))
    found = double.is_injective
    assert isinstance(found, Collision)
    assert double(*found.first.values()) == double(*found.second.values())
    assert found.first != found.second
    assert double.is_surjective == Missed((1,))
    assert isinstance(IndexMap((i,), (i + 1,), (64,)).is_surjective, Missed)
    padded = IndexMap((i, j), (i * 16 + j,), (1024,))
    assert padded.is_injective
    assert not padded.is_surjective
    with pytest.raises(ArithError, match="has no inverse"):
        double.inverse()
    assert str(padded.inverse()) == "(y0) -> (y0//16, y0%16) if y0%16 < 8"


w, x60 = symbol("w", 0, 7), symbol("x", 0, 59)
x15, x210 = symbol("x", 0, 14), symbol("x", 0, 209)
INVERSES = [
    # a window with a shift, of one axis and of two
    (IndexMap((w,), ((w + 2) % 8 // 4, (w + 2) % 8 % 4), (2, 4)), "(y0, y1) -> ((y0*4 + y1 + 6)%8)"),
    (IndexMap((r, c), ((r * 8 + c + 7) % 512 // 4, (r * 8 + c + 7) % 512 % 4), (128, 4)), None),
    # residues with coprime moduli, and with a common divisor
    (IndexMap((x60,), (x60 % 3, x60 % 4, x60 % 5), (3, 4, 5)), "(y0, y1, y2) -> ((y0*40 + y1*45 + y2*36)%60)"),
    (IndexMap((w,), (w % 4, w // 2), (4, 4)), None),
    (IndexMap((x15,), (x15 % 3, x15 % 5), (3, 5)), "(y0, y1) -> ((y0*10 + y1*6)%15)"),
    (IndexMap((x15,), (x15 % 5, x15 % 3), (5, 3)), None),
    (
        IndexMap((symbol("x", 7, 21),), (symbol("x", 7, 21) % 3, symbol("x", 7, 21) % 5), (3, 5)),
        "(y0, y1) -> ((y0*10 + y1*6 + 8)%15 + 7)",
    ),
    (
        IndexMap((x210,), (x210 % 2, x210 % 3, x210 % 5, x210 % 7), (2, 3, 5, 7)),
        "(y0, y1, y2, y3) -> ((y0*105 + y1*70 + y2*126 + y3*120)%210)",
    ),
    # guarded
    (IndexMap((w, c), (w * 8 + c,), (36,), w * 8 + c < 36), "(y0) -> (y0//8, y0%8)"),
    (IndexMap((i,), (i // 3,), (22,), (i % 3).eq(1)), "(y0) -> (y0*3 + 1) if y0 < 21"),
    (IndexMap((i,), (i - 3,), (50,), (i >= 3) & (i < 53)), "(y0) -> (y0 + 3)"),
    # chosen: interleaves, rotations in two parts
    (IndexMap((i,), (where(i < 32, i * 2, i * 2 - 63),), (64,)), None),
    (IndexMap((i,), (where((i % 2).eq(0), i // 2, i // 2 + 32),), (64,)), None),
    (IndexMap((i,), (where(i < 48, i + 16, i - 48),), (64,)), None),
    # linear over bits
    (IndexMap((i,), (i ^ (i // 2),), (64,)), None),
    (IndexMap((r, c), (c ^ (r % 8), (r // 8) ^ c, r % 8), (8, 8, 8)), None),
    # symbols of one value
    (IndexMap((symbol("b", 0, 0), c), (symbol("b", 0, 0) * 8 + c,), (8,)), "(y0) -> (0, y0)"),
    (IndexMap((symbol("b", 3, 3), c), (as_expr(0), c), (1, 8)), "(y0, y1) -> (3, y1)"),
]


@pytest.mark.parametrize(("f", "text"), INVERSES, ids=lambda x: str(x) if isinstance(x, IndexMap) else "")
def test_inverses(f: IndexMap, text: str | None) -> None:
    back = f.inverse()
    assert text is None or str(back) == text
    points = f.domain.points()
    images = [tuple(int(e.evaluate(at)) for e in f.results) for at in _named(f.symbols, points)]
    assert sorted(images) == [tuple(map(int, p)) for p in back.domain.points()] == _table(f.image)
    found = [tuple(int(e.evaluate(at)) for e in back.results) for at in _named(back.symbols, images)]
    assert found == [tuple(map(int, p)) for p in points]
    assert f.is_injective and back.is_exact and back.is_injective


def _named(symbols: tuple[Expr, ...], points: Iterable[Iterable[int]]) -> list[dict[str, int]]:
    return [{s.name: int(v) for s, v in zip(symbols, p, strict=True)} for p in points]


def _table(s: IndexSet) -> list[tuple[int, ...]]:
    return [tuple(int(v) for v in p) for p in s.points()]


def test_an_inverse_can_be_inverted() -> None:
    f = INVERSES[0][0]
    again = f.inverse().inverse()
    assert [[e.evaluate({"z0": v}) for e in again.results] for v in range(8)] == [
        [(v + 2) % 8 // 4, (v + 2) % 4] for v in range(8)
    ]


def test_names_of_the_image_are_free() -> None:
    y0, par = symbol("y0", 0, 7), symbol("z1", 1)
    back = IndexMap((y0,), ((y0 + par) % 8,), (8,)).inverse()
    assert str(back) == "(z0) -> ((z0 - z1)%8)" or back.symbols[0].name not in ("y0", "z1")
    assert back.results[0].evaluate({back.symbols[0].name: 3, "z1": 5}) == 6


def test_dense_is_not_onto() -> None:
    shifted = IndexMap((c,), (c + 2,), (20,))
    assert shifted.is_dense and not shifted.is_surjective
    assert str(shifted.image).startswith("{(y0): 0 <= y0 < 20, ") and len(shifted.image.points()) == 8
    assert (2,) in shifted.image and (1,) not in shifted.image
    holes = IndexMap((i, c), (i * 16 + c,), (1024,)).is_dense
    assert holes == Missed((8,))
    far = symbol("far", 0, (1 << 40) - 1)
    assert isinstance(IndexMap((far,), (far * 2,), (1 << 41,)).is_dense, Missed)
    assert IndexMap((far,), (far + 3,), (1 << 41,)).is_dense


def test_two_pieces_that_meet_are_shown() -> None:
    with pytest.raises(NotInvertible) as error:
        IndexMap((i,), (where(i < 32, i, i - 16),), (64,)).inverse()
    met = error.value.witness
    assert isinstance(met, Collision)
    assert {met.first["i"], met.second["i"]} == {met.image[0], met.image[0] + 16}


def test_a_wrong_solution_does_not_leave_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are proved, whatever the solver says."""
    u = symbol("u", 0, 63)  # no map that another test has inverted
    turn, flip = IndexMap((u,), ((u + 5) % 64,), (64,)), IndexMap((u,), (63 - u,), (64,))

    def wrong(domain: object, equations: Sequence[tuple[Expr, Expr]]) -> list[Expr]:
        return [(equations[0][1] + 3) % 64]

    for module in (inverses, mixed_radix):
        monkeypatch.setattr(module, "solve_digits", wrong)
    for f in (turn, flip):
        with pytest.raises(NotInvertible, match="no inverse"):
            f.inverse()
        assert str(f.is_injective).startswith("proved injective at all 64 points")


def test_a_box_that_begins_below_0_is_refused() -> None:
    low = symbol("low", -3, 4)
    with pytest.raises(ArithError, match="begins at 0"):
        IndexMap((low,), (low + 3,), (8,)).inverse()


def test_points_of_a_large_set_are_not_listed() -> None:
    with pytest.raises(ArithError, match="cannot be listed"):
        IndexSet((symbol("far", 0, 1 << 40),)).points()
    with pytest.raises(ArithError, match="not a point"):
        _ = 3 in IndexSet((i,))


def test_undecided_says_so() -> None:
    found = IndexMap((p,), (p * p,), (n,)).is_injective
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
        assert f.is_bijective
        back = f.inverse()
        assert [back.results[0].evaluate({"y0": y}) for y in images] == list(range(total))
