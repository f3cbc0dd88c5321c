"""Causes against enumeration: the elements that each operation needs at each point, by NumPy, and what differs."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from math import prod
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings

import idgraph as ig
from idgraph.fuse import CAUSES, AccessRelation
from idgraph.kernel.def_use import stored_in
from idgraph.kernel.statements import Load, Store, walk

Elements = npt.NDArray[np.int64]
Step = tuple[str, Any]


def listed(t: AccessRelation) -> Elements:
    """The number of the element at each point of an access's loops; -1 where it touches none."""
    sizes = t.sizes
    assert sizes is not None
    out = np.full(sizes, -1, np.int64)
    for point in np.ndindex(*sizes):
        env = {loop.symbol.name: int(v) for loop, v in zip(t.loops, point, strict=True)}
        if t.map.condition.evaluate(env):
            flat = 0
            for x, d in zip(t.map.results, t.buffer.axes, strict=True):
                at = int(x.evaluate(env))
                assert 0 <= at < int(d.extent)
                flat = flat * int(d.extent) + at
            out[point] = flat
    return out


def told(a: Elements, b: Elements, shape: tuple[int, ...]) -> str | None:
    """The cause by enumeration alone, for accesses that touch something at every point."""
    a1, b1 = (x.reshape([n for n in x.shape if n != 1]) for x in (a, b))
    if a1.shape == b1.shape and np.array_equal(a1, b1):
        return None
    if a1.ndim == b1.ndim and any(np.array_equal(a1.transpose(p), b1) for p in permutations(range(a1.ndim))):
        return "loop order"
    many = [max(Counter(x.ravel().tolist()).values()) for x in (a, b)]
    if many[0] != many[1]:
        return "broadcast"
    coordinates = [np.array(np.unravel_index(np.unique(x), shape)) for x in (a, b)]
    if set(a.ravel().tolist()) == set(b.ravel().tolist()):
        return "factorisation or element order"
    gaps = [np.diff(np.unique(c)) for side in coordinates for c in side]
    if any(g.size and g.min() > 1 for g in gaps):
        return "stride"
    counts = [[len(np.unique(c)) for c in side] for side in coordinates]
    if counts[0] != counts[1]:
        return "extent"
    return "offset"


def build(x: Any, steps: list[Step], of: Any) -> Any:
    """A chain of views, on a tensor of idgraph or an array of element numbers."""
    for name, arg in steps:
        x = of[name](x, arg)
    return x


OURS: dict[str, Any] = {
    "permute": lambda x, p: ig.permute(x, *p),
    "reshape": lambda x, s: ig.reshape(x, *s),
    "flip": lambda x, d: ig.flip(x, d),
    "roll": lambda x, a: ig.roll(x, a[1], a[0]),
    "slice": lambda x, a: x[tuple(slice(None) if k != a[0] else slice(a[1], a[2], a[3]) for k in range(x.ndim))],
    "expand": lambda x, n: ig.expand(ig.unsqueeze(x, 0), n, *x.shape),
}
THEIRS: dict[str, Any] = {
    "permute": np.transpose,
    "reshape": np.reshape,
    "flip": np.flip,
    "roll": lambda x, a: np.roll(x, a[1], a[0]),
    "slice": lambda x, a: x[tuple(slice(None) if k != a[0] else slice(a[1], a[2], a[3]) for k in range(x.ndim))],
    "expand": lambda x, n: np.broadcast_to(x, (n, *x.shape)),
}


@st.composite
def chains(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Step]:
    """Views of a tensor of this shape."""
    steps: list[Step] = []
    now = list(shape)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["permute", "reshape", "flip", "roll", "slice", "expand"]))
        axis = draw(st.integers(0, len(now) - 1))
        n = now[axis]
        match kind:
            case "permute":
                p = draw(st.permutations(range(len(now))))
                steps.append((kind, tuple(p)))
                now = [now[k] for k in p]
            case "reshape":
                total = prod(now)
                first = draw(st.sampled_from([k for k in range(1, total + 1) if total % k == 0]))
                now = [first, total // first]
                steps.append((kind, tuple(now)))
            case "flip":
                steps.append((kind, axis))
            case "roll":
                steps.append((kind, (axis, draw(st.integers(1, n)))))
            case "slice":
                low = draw(st.integers(0, n - 1))
                high = draw(st.integers(low + 1, n))
                by = draw(st.sampled_from([1, 1, 2, 3]))
                steps.append((kind, (axis, low, high, by)))
                now[axis] = -(-(high - low) // by)
            case _:
                if len(now) < 4:
                    steps.append((kind, 3))
                    now = [3, *now]
    return steps


@st.composite
def pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Step], list[Step]]:
    """A shape and two chains of views of it."""
    shape = tuple(draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=3)))
    return shape, draw(chains(shape)), draw(chains(shape))


@settings(deadline=None, max_examples=150)
@given(pairs())
@example(((3,), [("expand", 3), ("reshape", (1, 9))], [("expand", 3), ("roll", (1, 1))]))
@example(((2, 2), [("expand", 3)], [("expand", 3), ("reshape", (1, 12))]))
def test_a_cause_is_what_enumeration_shows(case: tuple[tuple[int, ...], list[Step], list[Step]]) -> None:
    shape, one, two = case
    f = ig.Fusion("f")
    x = f.input("x", shape=shape)
    y, z = ig.exp(build(x, one, OURS)), ig.sin(build(x, two, OURS))
    f.output(y, z)
    o = ig.fuse.explain(f, y, z, buffer=x)
    numbers = np.arange(prod(shape)).reshape(shape)
    a, b = build(numbers, one, THEIRS), build(numbers, two, THEIRS)
    want = told(a, b, shape)
    if o is None:
        assert want is None
        return
    assert o.cause in CAUSES
    for t, elements in zip(o.accesses, (a, b), strict=True):
        assert np.array_equal(listed(t), elements)
    both = len(set(a.ravel().tolist()) & set(b.ravel().tolist()))
    assert o.bytes_saved is not None and o.bytes_saved == 4 * both
    if o.proof:
        assert both == 0
    if want is None:
        assert o is None
    elif want == "factorisation or element order":
        assert o.cause in ("factorisation", "element order")
        assert o.cause == "element order" or is_digits(a, b)
    elif o.cause == "constant index":
        assert both == 0
    elif _irregular(one) or _irregular(two):
        assert o.cause in (want, "element order", "extent")
    else:
        assert o.cause == want


def _irregular(steps: list[Step]) -> bool:
    return any(name in ("roll", "flip", "reshape") for name, _ in steps)


def is_digits(a: Elements, b: Elements) -> bool:
    """Whether the place in ``a`` of what ``b`` touches at its n-th point is a sum of one step for each digit of n."""
    place = {e: n for n, e in enumerate(a.ravel().tolist())}
    order = np.array([place[e] for e in b.ravel().tolist()])
    while order.size > 1:
        if order[0] != 0 and order.min() == order[0]:
            order = order - order[0]
        step, run = order[1] - order[0], 1
        while run < order.size and order[run] == order[0] + run * step:
            run += 1
        best = next((r for r in range(run, 1, -1) if order.size % r == 0 and _repeats(order, r, step)), None)
        if best is None:
            return False
        order = order[::best]
    return True


def _repeats(order: Elements, run: int, step: int) -> bool:
    rows = order.reshape(-1, run)
    return bool((rows == rows[:, :1] + step * np.arange(run)).all())


def strided(case: Callable[[str, ig.Tensor, ig.Tensor], None]) -> None:
    """Readers of every few elements, or of one row, beside others."""
    x = ig.Fusion("f").input("x", shape=(3, 10))
    case("stride in part", ig.exp(x[:, 0:7:2]), ig.exp(x[:, 2:9:2]))
    x = ig.Fusion("f").input("x", shape=(3, 21))
    case("stride in part of another length", ig.exp(x[:, 6:18:3]), ig.exp(x[:, 0:19:3]))
    for k in (0, 1, 3):
        x = ig.Fusion("f").input("x", shape=(3, 12))
        case(f"stride of one, all of the other, from {k}", ig.exp(x), ig.exp(x[:, k:11:2]))
    x = ig.Fusion("f").input("x", shape=(3, 9, 4))
    case("extent of one row", ig.exp(x), ig.exp(x[:, 6:7]))
    x = ig.Fusion("f").input("x", shape=(4, 16))
    case("stride of one, a row of the other", ig.exp(x[:, ::2]), ig.exp(x[1:2]))


def seeds() -> dict[str, tuple[ig.Fusion, ig.Tensor, ig.Tensor]]:
    """One example of each cause that two operations can have."""
    made: dict[str, tuple[ig.Fusion, ig.Tensor, ig.Tensor]] = {}

    def case(name: str, a: ig.Tensor, b: ig.Tensor) -> None:
        a.fusion.output(*(t for t in (a, b) if not t.uses))
        made[name] = a.fusion, a, b

    x = ig.Fusion("f").input("x", shape=(32, 64))
    case("loop order", ig.exp(x), ig.transpose(x, 0, 1) * 2.0)
    x = ig.Fusion("f").input("x", shape=(20, 20))
    case("factorisation", ig.exp(x), ig.reshape(x, 4, 100) * 2.0)
    x = ig.exp(ig.Fusion("f").input("x", shape=(2, 14, 14, 6)))
    w = ig.permute(ig.reshape(x, 2, 2, 7, 2, 7, 6), 0, 1, 3, 2, 4, 5)
    case("factorisation of windows", x, ig.reshape(w, 8, 49, 6) * 2.0)
    x = ig.Fusion("f").input("x", shape=(64,))
    case("element order", ig.exp(x), ig.roll(x, 3, 0) * 2.0)
    x = ig.Fusion("f").input("x", shape=(64,))
    case("element order of a flip", ig.exp(x), ig.flip(x, 0) * 2.0)
    x = ig.exp(ig.Fusion("f").input("x", shape=(64,)))
    case("element order of halves", x, ig.cat([x[32:], x[:32]], 0) + 1.0)
    h = ig.Fusion("f").input("h", shape=(4, 24))
    case("offset", ig.exp(h[:, :8]), ig.exp(h[:, 8:16]))
    h = ig.Fusion("f").input("h", shape=(4, 24))
    case("offset in part", ig.exp(h[:, :8]), ig.exp(h[:, 5:13]))
    f = ig.Fusion("f")
    u = ig.exp(f.input("u", shape=(4, 8)))
    case("extent", u, ig.cat([u, f.input("v", shape=(4, 4))], 1) * 2.0)
    f = ig.Fusion("f")
    u = ig.exp(f.input("bias", shape=(8,)))
    case("broadcast", u, f.input("m", shape=(4, 8)) + u)
    x = ig.Fusion("f").input("x", shape=(4, 8))
    s = ig.sum(x, 1, keepdim=True)
    case("reduction", s, x / s)
    x = ig.Fusion("f").input("x", shape=(40, 80))
    s = ig.sum(x)
    case("synchronisation", s, x / s)
    f = ig.Fusion("f")
    u = ig.exp(f.input("x", shape=(40, 8)))
    case("loaded index", u, ig.gather(u, 1, f.input("i", shape=(40, 1), dtype="int64")))
    x = ig.Fusion("f").input("seeds", shape=(8,))
    case("constant index", ig.exp(ig.select(x, 0, 1)), ig.exp(ig.select(x, 0, 2)))
    x = ig.Fusion("f").input("x", shape=(8,))
    case("stride", ig.exp(x[::2]), ig.exp(x[1::2]))
    strided(case)
    x = ig.Fusion("f").input("x", shape=(16, 24))
    case("loop order of sums", ig.sum(x, 0), ig.sum(x, 1))
    return made


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(seeds()))
def test_each_cause_has_one_example_and_an_alignment_or_a_proof(name: str) -> None:
    f, a, b = seeds()[name]
    o = ig.fuse.explain(f, b, a)  # in either order
    assert o is not None and o.cause == name.partition(" of ")[0].partition(" in ")[0]
    if o.proof:
        assert o.alignment is None
        return
    assert o.alignment is not None, o.tried
    before = str(f)
    o.alignment.apply(f)
    assert str(f) != before
    assert ig.validate(f, target="numpy").ok
    if o.alignment.one_kernel:
        assert len(ig.emit(f, target="cuda").kernels) < len(ig.emit(ig.parse(before), target="cuda").kernels)


def waiting() -> dict[str, tuple[ig.Fusion, ig.Tensor, ig.Tensor]]:
    """Scans with what reads them otherwise than they go, and readers whose axes are cut."""
    made: dict[str, tuple[ig.Fusion, ig.Tensor, ig.Tensor]] = {}

    def case(name: str, a: ig.Tensor, b: ig.Tensor) -> None:
        a.fusion.output(a, b)
        made[name] = a.fusion, a, b

    x = ig.Fusion("f").input("x", shape=(2, 12, 8))
    case("a scan and its last element", s := ig.cumsum(x, 1), s[:, -1:] * 2.0)
    x = ig.Fusion("f").input("x", shape=(2, 12, 8))
    case("a scan, turned", s := ig.cumsum(x, 1), ig.flip(s, 1) * 2.0)
    x = ig.Fusion("f").input("x", shape=(2, 12, 8))
    case("a scan beside something else", s := ig.cumsum(x, 1), ig.cat([s, x], 2))
    x = ig.Fusion("f").input("x", shape=(2, 12, 8))
    case("a scan and a reader that goes back", ig.cumsum(x, 1), ig.flip(x, 1) * 2.0)
    x = ig.Fusion("f").input("x", shape=(6, 24))
    f = ig.Fusion("f")
    w = ig.permute(f.input("w", shape=(5, 8)), (1, 0))
    case("a transpose and a product that reads it", w, ig.matmul(f.input("x", shape=(6, 8)), w))
    f = ig.Fusion("f")
    x, y, z = (f.input(n, shape=s) for n, s in (("x", (2, 4, 6, 8)), ("y", (2, 2, 6, 8)), ("z", (1, 1, 6, 8))))
    case("two that repeat one tensor", x * z, y * z)
    f = ig.Fusion("f")
    i = ig.unsqueeze(f.input("i", shape=(16,), dtype="int64"), 0)
    case("an index that others need", i, ig.embedding(i, f.input("table", shape=(32, 8))))
    x = ig.Fusion("f").input("x", shape=(6, 24))
    case("pieces of rows and a part of them", ig.amax(ig.reshape(x, 6, 6, 4), 2), x[:, :8] * 2.0)
    x = ig.Fusion("f").input("x", shape=(6, 24))
    case("pieces of rows and their second half", ig.exp(ig.reshape(x, 6, 6, 4)), x[:, 12:] * 2.0)
    return made


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(waiting()))
def test_what_waits_or_is_cut_is_aligned_in_the_loops_in_front(name: str) -> None:
    f, a, b = waiting()[name]
    o = ig.fuse.explain(f, a, b)
    assert o is not None and o.alignment is not None, o and o.tried
    before, elements = len(ig.emit(ig.parse(str(f)), target="cuda").kernels), prod(map(int, a.shape))
    o.alignment.apply(f)
    assert ig.validate(f, target="numpy").ok
    assert not o.alignment.one_kernel or len(ig.emit(f, target="cuda").kernels) < before
    if o.alignment.once:  # each element once, and the idle threads of the last block
        e = a.definition
        assert e is not None
        blocks, threads, *inner = (int(x.extent) for x in ig.IdModel(f).loops(e))
        front, beside = divmod(elements, prod(inner))
        assert (beside, threads, blocks) == (0, 128, -(-front // 128))


def test_readers_at_a_loaded_index_and_elsewhere_cannot_be_aligned() -> None:
    """Whatever point stands beside another: some index names another element there."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(4, 8)), f.input("i", shape=(6,), dtype="int64")
    y, z = ig.index_select(x, 1, i) * 1.0, x[:, :6] * 2.0
    w = ig.transpose(ig.index_select(x, 1, i), 0, 1) * 3.0
    f.output(y, z, w)
    gathers = [e.output for e in f.exprs if e.op == "index_select"]
    o = ig.fuse.explain(f, gathers[0], f[z.name].definition.inputs[0])  # type: ignore[union-attr]
    assert o is not None and o.cause == "loaded index" and o.alignment is None and "may name another" in o.proof
    both = ig.fuse.explain(f, gathers[0], w, buffer=x)
    assert both is None or "may name another" not in both.proof  # one index: the same element of each


def test_what_shares_its_loops_has_no_obstacle() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 8))
    y = ig.exp(x)
    s = ig.sum(y, 1)
    z = f.output(s * 2.0)
    assert ig.fuse.explain(f, y, s) is None  # the sum adds up what it makes
    assert ig.fuse.explain(f, s, z) is None  # an epilogue
    assert len(ig.fuse.obstacles(f)) == 0


def test_inlined_operations_have_no_obstacle() -> None:
    f = ig.Fusion("f")
    y = ig.exp(f.input("x", shape=(4, 8)))
    z = f.output(ig.transpose(y, 0, 1) * 2.0)
    assert ig.fuse.explain(f, y, z) is not None
    ig.schedule.like(f, z)
    ig.schedule.inline_most(f)
    assert ig.fuse.explain(f, y, z) is None


def test_bytes_of_a_producer_count_its_store_and_what_both_read() -> None:
    f, s, z = seeds()["reduction"]
    o = ig.fuse.explain(f, s, z)
    assert (
        o is not None and o.bytes_saved == 4 * 4 * 2 + 4 * 8 * 4
    )  # the sums stored and read, x read once instead of twice


def test_a_recomputed_bias_tells_how_often() -> None:
    f, u, z = seeds()["broadcast"]
    o = ig.fuse.explain(f, u, z)
    assert o is not None and o.recompute_factor == 4.0


def test_operations_that_share_nothing_are_refused() -> None:
    f = ig.Fusion("f")
    y, z = ig.exp(f.input("x", shape=(4,))), ig.exp(f.input("w", shape=(4,)))
    f.output(y, z)
    with pytest.raises(ig.IdGraphError, match="no common buffer"):
        ig.fuse.explain(f, y, z)
    with pytest.raises(ig.IdGraphError, match="name two operations"):
        ig.fuse.explain(f, y, y)
    with pytest.raises(ig.IdGraphError, match="not an operation of fusion"):
        ig.fuse.explain(f, f["x"], z)


def test_an_alignment_that_does_not_fit_leaves_the_fusion_as_it_was() -> None:
    f, a, b = seeds()["loop order"]
    o = ig.fuse.explain(f, a, b)
    assert o is not None and o.alignment is not None
    g = ig.Fusion("g")
    g.output(ig.exp(g.input("x", shape=(4,)), name="other"))
    before = str(g)
    with pytest.raises(ig.IdGraphError, match="has no tensor"):
        o.alignment.apply(g)
    assert str(g) == before


def test_symbolic_sizes_have_causes() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    x = f.input("x", shape=(n, m))
    y, z, w = ig.exp(x), ig.transpose(x, 0, 1) * 2.0, ig.reshape(x, n * m) * 3.0
    f.output(y, z, w)
    found = {(o.a.output, o.b.output): o.cause for o in ig.fuse.obstacles(f)}
    assert ig.fuse.explain(f, y, z).cause == "loop order"  # type: ignore[union-attr]
    assert ig.fuse.explain(f, y, w).cause == "factorisation"  # type: ignore[union-attr]
    assert all(c in CAUSES for c in found.values())


def test_rows_are_data() -> None:
    f, _, _ = seeds()["offset in part"]
    rows = ig.fuse.obstacles(f)
    assert rows.to_json().startswith("[") and "offset" in str(rows) and rows.sheet().rows[0][3] == "offset"


@pytest.mark.parametrize("turned", [False, True])
def test_loops_of_one_step_in_front_do_not_rename_the_others(turned: bool) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(3, 3))
    y = ig.exp(x)
    wide = ig.expand(ig.unsqueeze(x, 0), 3, 3, 3)[:1]
    z = ig.sin(ig.permute(wide, 0, 2, 1) if turned else wide)
    f.output(y, z)
    o = ig.fuse.explain(f, y, z, buffer=x)
    assert (o.cause if o is not None else None) == ("loop order" if turned else None)


def between_readers() -> dict[str, tuple[ig.Fusion, ig.Tensor, ig.Tensor, str]]:
    """Two readers of one tensor whose loops are not one flat loop: the fusion, both, and the cause."""
    made: dict[str, tuple[ig.Fusion, ig.Tensor, ig.Tensor, str]] = {}

    def case(name: str, cause: str, shape: tuple[int, ...], first: Any, second: Any) -> None:
        f = ig.Fusion("f")
        x = f.input("x", shape=shape)
        a, b = first(x), second(x)
        f.output(a, b)
        made[name] = f, a, b, cause

    case("one reads it again and again", "broadcast", (2, 1, 24), ig.exp, lambda x: ig.expand(x, 2, 6, 24) * 2.0)
    case("columns are summed", "loop order", (8, 24), lambda x: ig.sum(x, 0, keepdim=True), lambda x: x * 2.0)
    case("a sum of all, a part", "extent", (4, 12, 8), lambda x: ig.sum(x, 0), lambda x: ig.exp(x[:, 3:7]))
    case(
        "rows joined, a part", "extent", (4, 12, 8), lambda x: ig.reshape(x, (48, 8)) * 2.0, lambda x: ig.exp(x[:, 3:7])
    )
    return made  # fmt: skip


@pytest.mark.parametrize("name", list(between_readers()))
def test_the_loops_that_readers_have_in_common_stand_in_front(name: str) -> None:
    f, a, b, cause = between_readers()[name]
    o = ig.fuse.explain(f, a, b)
    assert o is not None and o.cause == cause
    assert o.alignment is not None and o.alignment.one_kernel, o.tried
    o.alignment.apply(f)
    assert len(ig.emit(f, target="cuda").kernels) == 1
    assert ig.validate(f, target="numpy").ok


def test_an_index_that_others_need_too_is_computed_again_where_it_is_used() -> None:
    f = ig.Fusion("f")
    w, i = f.input("w", shape=(8, 2)), f.input("i", shape=(12,), dtype="int64")
    at = ig.minimum(ig.maximum(i, 0), 7)
    out = ig.embedding(at, w)
    f.output(at, out)
    o = ig.fuse.explain(f, at, out)
    assert o is not None and o.alignment is not None, o
    o.alignment.apply(f)
    assert ig.validate(f, target="numpy").ok
    reader = next(k for k in ig.emit(f, target="cuda").kernels if "w" in {b.title for b in k.buffers})
    (clamped,) = (s for s in walk(reader.body) if isinstance(s, Store) and s.buffer.title == at.name)
    assert not any(isinstance(s, Load) and s.buffer is clamped.buffer for s in walk(reader.body))


def test_indices_that_no_random_number_gives_are_tried_and_told() -> None:
    f = ig.Fusion("f")
    w, i = f.input("w", shape=(8, 2)), f.input("i", shape=(4, 3))
    at = ig.cast(i * 0.0 - 2.0, "int64")
    out = ig.embedding(ig.transpose(at, 0, 1), w)
    f.output(at, out)
    o = ig.fuse.explain(f, at, out)
    assert o is not None and (o.alignment is not None or any("outside the 8" in x for x in o.tried))


@pytest.mark.parametrize("also_read", [False, True])
def test_an_index_of_a_scatter_is_computed_in_front_of_the_loops_over_rows(also_read: bool) -> None:
    """A scatter has two kernels, and both must do without the index: the first only copies what is written over."""
    f = ig.parse("""fusion f {
      i = input(shape=(6,), dtype="int64")
      low = input(shape=(6,), dtype="int64")
      base = input(shape=(8, 9), dtype="float32")
      rows = input(shape=(6, 9), dtype="float32")
      at = maximum(i, low)
      out = index_put(base, at, rows, dims=(0,), accumulate=false)
      output out
    }""")
    at, out = f["at"], f["out"]
    if also_read:
        f.output(at)
    o = ig.fuse.explain(f, at, out, buffer=at)
    assert o is not None and o.alignment is not None and o.alignment.one_kernel, o
    o.alignment.apply(f)
    kernels = [k for k in ig.emit(f, target="cuda").kernels if "rows" in {b.title for b in k.buffers}]
    assert len(kernels) == 1
    assert at.name not in {b.title for b in kernels[0].buffers if b.name not in stored_in(kernels[0].body)}
    zeros = {t.name: np.zeros([int(n) for n in t.shape], t.dtype) for t in f.inputs}
    assert ig.validate(f, target="numpy", inputs=zeros).ok
