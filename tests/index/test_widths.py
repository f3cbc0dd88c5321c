"""Vector widths with their reasons and suggestions, contiguity with its reason, machine integers: readable cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import idgraph as ig
from idgraph.arith import Expr
from idgraph.index import Access
from idgraph.index.vectorization_advice import VectorWidth


def read_of(f: ig.Fusion, t: ig.Tensor, x: ig.Tensor) -> Access:
    assert t.definition
    return ig.IdModel(f).access(t.definition, x)


def sliced(start: int, n: int = 64) -> Access:
    f = ig.Fusion("f")
    a = f.input("a", shape=(n,))
    return read_of(f, f.output(a[start : start + 32]), a)


def check_suggestions(why: VectorWidth) -> None:
    """Each suggestion, applied to the fusion, gives the width it says along its loop."""
    a = why.access
    f = a.expr.output.fusion
    for suggestion in why.suggestions():
        g = suggestion.apply(f)
        m = ig.IdModel(g)
        e = g[a.expr.output.name].definition
        assert e
        again = m.write(e) if a.operand is None else m.read(e, a.operand)
        assert again.vector_width(suggestion.loop) == suggestion.width > why.width, suggestion


def test_offset() -> None:
    why = sliced(3).explain_vector_width("i0")
    assert (why.width, why.limit, why.refused, why.point) == (1, "offset", 4, {"i0": 0})
    assert str(why).splitlines() == [
        "a along i0: 1 element of 4",
        "  offset 3 is not a multiple of 4",
        "  4 elements if t1 is sliced at 4 instead of 3 (axis 0)",
        "  4 elements if the loop is peeled: 7 accesses of 4 and 4 single elements",
    ]
    check_suggestions(why)


def test_half_an_offset() -> None:
    why = sliced(6).explain_vector_width("i0")
    assert (int(why), why.reason, why.alignment) == (2, "offset 6 is not a multiple of 4", 8)
    check_suggestions(why)


def test_pitch_of_rows() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(8, 126))
    f.output(a[:, :124] + 1.0)
    read = ig.IdModel(f).access(f.exprs[0], a)
    why = read.explain_vector_width("i1")
    assert (why.width, why.limit, why.reason) == (2, "offset", "stride 126 of i0 is not a multiple of 4")
    assert str(why.suggestions()[0]) == "4 elements if the rows of a are padded to 128 elements: strides (128, 1)"
    check_suggestions(why)


def test_pitch_and_offset_together() -> None:
    """No single change helps: two are told as one."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(8, 30), offset=1)
    f.output(a[:, 0:28] + 1.0)
    why = ig.IdModel(f).access(f.exprs[0], a).explain_vector_width("i1")
    assert why.reason == "stride 30 of i0 and offset 1 are not multiples of 4"
    best = why.suggestions()[0]
    assert best.width == 4 and ", and " in best.text and best.keeps_result
    check_suggestions(why)


def test_buffer_alignment() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(64,), alignment=4)
    why = read_of(f, f.output(a + 1.0), a).explain_vector_width("i0")
    assert (why.width, why.limit) == (1, "buffer")
    assert [str(c) for c in why.suggestions()] == ["4 elements if the buffer of a is aligned to 16 bytes"]
    check_suggestions(why)


def test_a_step_of_many_elements() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(32, 64))
    t = f.output(ig.permute(a, (1, 0)))
    why = read_of(f, t, a).explain_vector_width("i1")
    assert (why.limit, why.reason) == ("step", "a step of i1 moves the address by 64, not by 1")
    assert [str(c) for c in why.suggestions()] == [
        "4 elements if the vector runs along i0 instead of i1",
        "4 elements if axis 0 of a is innermost in memory: strides (1, 32)",
    ]
    check_suggestions(why)


def test_extent_of_a_split() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(96,))
    t = f.output(a + 1.0)
    t.split(0, 6)
    why = read_of(f, t, a).explain_vector_width("i1")
    assert (why.width, why.limit, why.reason) == (2, "extent", "extent 6 of i1 is not a multiple of 4")
    assert "axis 0 of t1 is split by 8 instead of 6" in why.suggestions()[0].text
    check_suggestions(why)


def test_a_bound_that_parts_a_vector() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(30,))
    t = f.output(a + 1.0)
    t.split(0, 4)
    why = read_of(f, t, a).explain_vector_width("i1")
    assert (why.width, why.limit) == (2, "predicate") and why.point == {"i0": 7, "i1": 0}
    assert why.reason == "i0*4 + i1 < 30 holds for a part of 4 lanes only (at i0 = 7, i1 = 0)"
    assert [str(c) for c in why.suggestions()] == ["4 elements if the extent 30 of a is a multiple of 4: 32"]
    check_suggestions(why)


def test_a_pad_that_parts_a_vector() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(30,))
    t = f.output(ig.pad(a, (1, 1)))
    why = read_of(f, t, a).explain_vector_width("i0")
    assert why.width == 1
    check_suggestions(why)


def test_symbols() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    a = f.input("a", shape=(8, n))
    why = read_of(f, f.output(a + 1.0), a).explain_vector_width("i1")
    assert (why.width, why.limit, why.reason) == (1, "extent", "extent n of i1 is not a multiple of 4")
    assert [str(c) for c in why.suggestions()] == ["4 elements if n is declared a multiple of 4"]
    check_suggestions(why)


def test_loaded_lanes() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(33, 8)), f.input("i", shape=(4, 8), dtype="int64")
    why = read_of(f, f.output(ig.gather(x, 0, i)), x).explain_vector_width("i1")
    assert (why.limit, why.reason) == ("loaded", "the address holds ld1, loaded from i anew at each step of i1")


def test_loaded_rows_are_vectors() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(33, 8)), f.input("i", shape=(4,), dtype="int64")
    read = read_of(f, f.output(ig.embedding(i, x)), x)
    assert read.vector_width("i1") == 4 and read.vector_width("i0") == 1
    x2 = f.input("x2", shape=(33, 6))
    why = read_of(f, f.output(ig.embedding(i, x2)), x2).explain_vector_width("i1")
    assert (why.width, why.limit) == (2, "extent")


@pytest.mark.parametrize(
    ("dtype", "widest"), [("float64", 2), ("float32", 4), ("bfloat16", 8), ("int8", 16), ("bool", 16), ("int64", 2)]
)
def test_widest_access(dtype: str, widest: int) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(64,), dtype=dtype)
    why = read_of(f, f.output(ig.copy(a)), a).explain_vector_width("i0")
    assert (why.width, why.limit, why.bytes, why.suggestions()) == (widest, "widest", 16, ())
    assert bool(why) and why.reason == "16 bytes are the widest access"


def test_wanted() -> None:
    read = sliced(6)
    assert read.explain_vector_width("i0", wanted=2).limit == "asked"
    assert read.explain_vector_width("i0", wanted=1).width == 1
    for wrong in (3, 0, True, "four"):
        with pytest.raises(ig.IndexingError, match="vector width"):
            read.explain_vector_width("i0", wanted=wrong)  # type: ignore[arg-type]


def test_a_loop_is_named_or_counted() -> None:
    read = sliced(4)
    assert read.vector_width(0) == read.vector_width(-1) == read.vector_width(read.loops[0]) == 4
    for wrong in (1, -2, True, 0.0, "i1", None):
        with pytest.raises(ig.IndexingError, match="has no loop"):
            read.vector_width(wrong)  # type: ignore[arg-type]
    f = ig.Fusion("f")
    x = f.input("x", shape=())
    with pytest.raises(ig.IndexingError, match="it has no loop"):
        read_of(f, f.output(x + 1.0), x).contiguous(0)


def merged(inner: int, strides: tuple[int, int]) -> Access:
    f = ig.Fusion("f")
    a = f.input("a", shape=(6, inner), strides=strides)
    t = f.output(a + 1.0)
    t.merge(0)
    return read_of(f, t, a)


@pytest.mark.parametrize(
    ("inner", "strides", "width", "run"),
    [
        (8, (8, 1), 4, 48),  # contiguous: the merge is not an obstacle
        (8, (12, 1), 4, 8),  # padded rows: runs of one row
        (8, (10, 1), 2, 8),
        (6, (8, 1), 2, 6),
        (7, (8, 1), 1, 7),
        (8, (1, 6), 1, 1),
    ],
)
def test_through_a_merge(inner: int, strides: tuple[int, int], width: int, run: int) -> None:
    why = merged(inner, strides).explain_vector_width("i0")
    assert (why.width, str(why.run)) == (width, str(run))
    check_suggestions(why)


@pytest.mark.parametrize(("shift", "width"), [(4, 4), (2, 2), (1, 1), (8, 4)])
def test_through_a_roll(shift: int, width: int) -> None:
    """Vectors do not wrap round: both the shift and the extent must be multiples."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(64,))
    why = read_of(f, f.output(ig.roll(a, shift, 0)), a).explain_vector_width("i0")
    assert why.width == width
    check_suggestions(why)


@pytest.mark.parametrize(("x", "width"), [(8, 1), (4, 4)])
def test_through_a_swizzle(x: int, width: int) -> None:
    """A xor of whole vectors leaves them whole; one of single elements does not."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(8, 32))
    t = f.output(a + 1.0)
    t.split(1, 4)
    if x == 8:
        t.merge(1).swizzle("xor", 0, 1)
        assert read_of(f, t, a).vector_width(1) == width
    else:
        t.swizzle("xor", 0, 1)
        assert read_of(f, t, a).vector_width(2) == width


def test_contiguous_says_why() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 8))
    read = read_of(f, f.output(a + 1.0), a)
    assert str(read.explain_contiguous("i1")) == "a along i1: contiguous, a step moves the address by 1"
    assert str(read.explain_contiguous("i0")) == "a along i0: not contiguous, a step moves the address by 8"
    found = merged(7, (8, 1)).explain_contiguous(0)
    assert not found and found.point is not None
    assert found.reason.endswith(f"move the address by {found.reason.split()[-1]}")
    assert not ig.IdModel(f).write(f.exprs[0]).contiguous("i0")


def corners(a: Access) -> Iterator[dict[str, int]]:
    """The ends of all loops."""
    ends = [(x.name, (0, int(x.extent) - 1)) for x in a.loops]
    for k in range(1 << len(ends)):
        yield {name: pair[k >> n & 1] for n, (name, pair) in enumerate(ends)}


def extremes(a: Access) -> tuple[int, int]:
    """Least and greatest value of any part of address and conditions, and of the loop ends, at the loops' corners.

    All expressions asked about here are monotone in each loop, so that the ends are at corners.
    """
    found = [int(x.extent) for x in a.loops]
    for whole in (a.address, *a.conditions):
        stack: list[Expr] = [whole]
        while stack:
            part = stack.pop()
            stack.extend(part.args)
            if not part.is_condition and not (part.is_const and whole.op == "add"):
                found += [int(part.evaluate(at)) for at in corners(a)]
    return min(found), max(found)


@pytest.mark.parametrize(
    ("n", "kind"), [(2**31 - 1, "uint32"), (2**31, "uint32"), (2**32 - 1, "uint32"), (2**32, "int64"), (2**33, "int64")]
)
def test_the_loop_end_must_fit_too(n: int, kind: str) -> None:
    """A loop of 2^32 steps has no index above 2^32 - 1, yet its counter reaches 2^32."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(n,), dtype="int8")
    read = read_of(f, f.output(ig.copy(a)), a)
    assert read.index_type() == kind
    assert read.index_bits == (32 if n < 2**31 else 64)
    low, high = extremes(read)
    assert (low >= 0 and high < 2**32) == (kind == "uint32")


@pytest.mark.parametrize(
    ("rows", "cut", "kind", "guarded"),
    [
        (2**15, 0, "uint32", "uint32"),
        (2**15, 1, "int32", "uint32"),  # a negative address where nothing is read
        (2**16 - 1, 1, "int64", "uint32"),  # below 2^32, but signed once it may be negative
        (2**16, 0, "uint32", "uint32"),
        (2**16 + 1, 0, "int64", "int64"),
    ],
)
def test_negative_addresses_under_a_false_predicate(rows: int, cut: int, kind: str, guarded: str) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(rows - cut, 2**16), dtype="int8")
    t = f.output(ig.pad(a, (0, 0, cut, 0)) if cut else ig.copy(a))
    read = read_of(f, t, a)
    low, high = extremes(read)
    assert (read.index_type(), read.index_type(guarded=True)) == (kind, guarded)
    limits = {"uint32": (0, 2**32 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
    assert limits[kind][0] <= low and high <= limits[kind][1]


def test_an_intermediate_value_above_the_address() -> None:
    """The address is small, but the merged loop that it is divided out of is not."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(2**16, 2**17), strides=(1, 0), dtype="int8")
    t = f.output(ig.copy(a))
    t.merge(0)
    read = read_of(f, t, a)
    assert str(read.address) == "i0//131072" and read.index_type() == "int64" and read.index_bits == 64


def test_unbounded_symbols_need_a_max() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=1), f.symbol("m", min=1, max=2**20)
    a, b = f.input("a", shape=(n,)), f.input("b", shape=(m,))
    t, u = f.output(a + 1.0), f.output(b + 1.0)
    assert read_of(f, u, b).index_type() == "uint32" and read_of(f, t, a).index_bits == 64
    with pytest.raises(ig.IndexingError, match="64 bits are not proved"):
        read_of(f, t, a).index_type()
