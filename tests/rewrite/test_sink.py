"""Reshapes behind pointwise operations: every rewrite ends, whatever rows meet."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import InternalError
from idgraph.ir import Fusion, Tensor
from idgraph.ir.clone import at_most
from idgraph.rewrite.canonicalize_views import broadcasts_first, numbers_into_readers, sink_reshapes_below_pointwise
from idgraph.schedule.auto import BUILT
from tests.property.budget import examples


def group_norm(x: Tensor, groups: int) -> Tensor:
    rows = ig.reshape(x, x.shape[0], groups, -1)
    apart = rows - ig.mean(rows, 2, keepdim=True)
    return ig.reshape(apart * ig.rsqrt(ig.mean(apart * apart, 2, keepdim=True) + 1e-5), *x.shape)


def gathered(f: Fusion) -> Tensor:
    t = ig.amax(f.input("x", shape=(7, 10)), 0)
    i = f.input("i", shape=(10,), dtype="int64")
    return t + ig.reshape(ig.gather(t, 0, i), 10)


def sums_of_squares(f: Fusion) -> Tensor:
    q = ig.reshape(ig.sum(f.input("x", shape=(16, 5)), 1), 2, 2, 4)
    return q * ig.sum(q * q, -1, keepdim=True)


def normalized(f: Fusion) -> Tensor:
    q = ig.reshape(ig.mean(f.input("x", shape=(16, 5)), 1), 4, 4)
    return q / ig.sqrt(ig.sum(q * q, -1, keepdim=True) + 1e-5)


def two_rows(f: Fusion) -> Tensor:
    r = ig.reshape(f.input("x", shape=(4,)), 2, 2)
    return ig.reshape(r * ig.sum(r, 1, keepdim=True), 4) * ig.sum(f.input("y", shape=(6, 4)), 0)


def gated(f: Fusion) -> Tensor:
    y = group_norm(f.input("x", shape=(2, 8, 3, 3)), 2)
    return y * ig.sigmoid(ig.mean(y, (2, 3), keepdim=True))


def nested(f: Fusion) -> Tensor:
    return group_norm(group_norm(f.input("x", shape=(2, 8, 3, 3)), 2), 4)


def softmax_of_norm(f: Fusion) -> Tensor:
    y = group_norm(f.input("x", shape=(2, 8, 12)), 2)
    return ig.softmax(y, -1) + (y - ig.mean(y, -1, keepdim=True))


def response_norm(f: Fusion) -> Tensor:
    x = f.input("x", shape=(2, 4, 4, 8))
    g = ig.sqrt(ig.sum(x * x, (1, 2), keepdim=True))
    return x * (g / (ig.mean(g, -1, keepdim=True) + 1e-6)) + x


def block_amax(f: Fusion) -> Tensor:
    x = f.input("x", shape=(8, 16))
    blocks = ig.reshape(x, 8, 4, 4)
    b = ig.amax(ig.abs(blocks), 2, keepdim=True)
    y = ig.reshape(blocks / b, 8, 16)
    return y * ig.amax(b, (0, 1, 2)) / ig.amax(ig.abs(y), 1, keepdim=True)


def gated_softmax(f: Fusion) -> Tensor:
    x = f.input("x", shape=(2, 4, 4))
    s = ig.reshape(ig.softmax(ig.reshape(x, 2, 16), 1), 2, 4, 4)
    return s * ig.sigmoid(ig.mean(x, 1, keepdim=True)) * ig.sum(s, 2, keepdim=True)


@pytest.mark.parametrize(
    "build",
    [gathered, sums_of_squares, normalized, two_rows, gated, nested, softmax_of_norm, response_norm, block_amax,
     gated_softmax],
    ids=lambda b: b.__name__,
)  # fmt: skip
def test_auto_ends_where_rows_meet(build: Callable[[Fusion], Tensor]) -> None:
    f = Fusion("f")
    f.output(build(f))
    sink_reshapes_below_pointwise(f)
    version = f.version
    sink_reshapes_below_pointwise(f)
    assert f.version == version, "a second time finds nothing to do"
    ig.schedule.auto(f)
    assert ig.validate(f, target="numpy").ok


def rows_behind_reshapes(f: Fusion) -> int:
    """The measure: pointwise operations that read a reshape of what a reduction made."""
    after: set[Tensor] = set()
    found = 0
    for e in f.exprs:
        if (e.is_reduction and e.op != "sort") or any(x in after for x in e.inputs):
            after.add(e.output)
        reshapes = [x for x in e.inputs if x.definition is not None and x.definition.op == "reshape" and x in after]
        found += bool(reshapes) and e.op in ("add", "mul", "sub", "maximum", "exp")
    return found


SHAPES = ((16,), (4, 4), (2, 8), (8, 2), (2, 2, 4), (1, 16))


@st.composite
def meetings(draw: st.DrawFn) -> Fusion:
    """Results of rows, reshaped, meeting each other pointwise, and reduced again."""
    f = Fusion("f")
    x = f.input("x", shape=(3, 16))
    values = [ig.sum(x, 0), ig.reshape(f.input("y", shape=(16,)), 4, 4), ig.amax(f.input("z", shape=(16, 2)), 1)]
    for _ in range(draw(st.integers(2, 8))):
        a = draw(st.sampled_from(values))
        match draw(st.sampled_from(("reshape", "row", "meet", "meet", "exp"))):
            case "reshape":
                values.append(ig.reshape(a, *draw(st.sampled_from(SHAPES))))
            case "row":
                values.append(a * ig.sum(a, draw(st.integers(0, a.ndim - 1)), keepdim=True))
            case "exp":
                values.append(ig.tanh(a))
            case _:
                b = draw(st.sampled_from(values))
                b = b if b.shape == a.shape else ig.reshape(b, *a.shape)
                values.append(ig.add(a, b) if draw(st.booleans()) else ig.maximum(b, a))
    for t in values:
        if not t.uses and t.definition is not None:
            f.output(t)
    return f


@settings(max_examples=examples(150))
@given(meetings())
def test_a_rewrite_visits_an_operation_once(f: Fusion) -> None:
    note(str(f))
    pointwise = sum(e.op in ("add", "mul", "maximum", "tanh") for e in f.exprs)
    for rewrites, each in ((numbers_into_readers, 4), (sink_reshapes_below_pointwise, 4), (broadcasts_first, 4)):
        before = rows_behind_reshapes(f)
        with at_most(f, each * (pointwise + 1) * 3):  # an operation, a reshape for it and for each operand
            rewrites(f)
        assert rewrites is not sink_reshapes_below_pointwise or rows_behind_reshapes(f) <= before
        version = f.version
        rewrites(f)
        assert f.version == version, "a second time finds nothing to do"


@settings(max_examples=examples(40))
@given(meetings())
def test_auto_ends_and_is_right(f: Fusion) -> None:
    note(str(f))
    ig.schedule.auto(f)
    assert ig.validate(f, target="numpy").ok


def test_a_circle_of_rewrites_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    f = Fusion("f")
    x = f.input("x", shape=(8, 4))
    f.output(ig.exp(x) + ig.sum(x, 1, keepdim=True))
    before = str(f)

    def circle(fusion: Fusion) -> None:
        for _ in range(BUILT[0] + 10 * BUILT[1]):  # more than the bound, so that the test ends without one
            ig.exp(fusion.inputs[0])

    monkeypatch.setattr(import_module("idgraph.schedule.auto"), "sink_reshapes_below_pointwise", circle)
    with pytest.raises(InternalError, match="does not end") as caught:
        ig.schedule.auto(f)
    assert "report" in str(caught.value) and caught.value.__traceback__ is not None
    assert str(f) == before


def test_the_users_own_exception_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alarm(Exception):
        pass

    def rings(_fusion: Fusion) -> None:
        raise Alarm("time is up")

    f = Fusion("f")
    x = f.input("x", shape=(8, 4))
    f.output(ig.exp(x) + ig.sum(x, 1, keepdim=True))
    before = str(f)
    monkeypatch.setattr(import_module("idgraph.schedule.auto"), "sink_reshapes_below_pointwise", rings)
    with pytest.raises(Alarm) as caught:
        ig.schedule.auto(f)
    assert not hasattr(caught.value, "__notes__") and str(f) == before


def test_a_number_read_twice() -> None:
    f = Fusion("f")
    a = ig.exp(f.input("s", shape=()))
    f.output(f.input("x", shape=(8, 16)) * (a * a))
    with at_most(f, 16):
        numbers_into_readers(f)
    assert [e.op for e in f.exprs].count("exp") == 1
    ig.schedule.auto(f)
    assert ig.validate(f, target="numpy").ok


def test_a_choice_behind_a_reshape_stands_with_its_rows() -> None:
    f = Fusion("norm")
    y = group_norm(f.input("x", shape=(2, 8, 12)), 4)
    f.output(ig.where(y > 0.0, y, y * 0.2))
    ig.schedule.auto(f)
    assert len(ig.emit(f, target="cuda").kernels) == 1
    assert ig.validate(f, target="numpy").ok
