"""Ragged axes in a fusion: what they are, which operations take them, which are refused and by which name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import Fusion, Tensor
from idgraph.ir.fusion import apply_op


def rows() -> tuple[Fusion, Tensor, Tensor, Tensor]:
    f = ig.Fusion("f")
    x, off = f.input("x", (9, 2)), f.input("off", (4,), "int64")
    return f, x, off, ig.partition(x, 0, off, name="u")


def test_axes_say_their_extent() -> None:
    _, x, off = rows()[:3]
    c, r = x.partition(0, off)
    assert str(c.extent) == "3"
    assert repr(r).endswith("[off]")
    assert r.rows is not None
    assert r.rows.extent == "off[b + 1] - off[b]"
    assert r.rows.component is c
    assert r.rows.offsets is off
    assert c.tensor is r.tensor


def test_combine_of_what_was_partitioned() -> None:
    f, x, off, _ = rows()
    c, _ = x.partition(0, off)
    y = f.output(ig.combine(x))
    assert y.shape == x.shape
    assert y.definition is not None
    assert y.definition.inputs[0] is c.tensor


def test_two_ragged_axes_are_one_if_their_offsets_are() -> None:
    f = ig.Fusion("f")
    x, y, off, other = (
        f.input("x", (9,)),
        f.input("y", (9,)),
        f.input("off", (4,), "int64"),
        f.input("o", (4,), "int64"),
    )
    (cx, rx), (cy, ry), (co, ro) = x.partition(0, off), y.partition(0, off), y.partition(0, other)
    m = ig.IdModel(f)
    assert m.exact.mapped(cx, cy)
    assert m.exact.mapped(rx, ry)
    assert not m.exact.mapped(rx, ro)
    assert not m.exact.mapped(cx, co)
    assert "has rows of" in str(m.exact.explain(rx, ry))


def test_text_knows_rows() -> None:
    f, _, _, u = rows()
    f.output(ig.combine(ig.softmax(u, 1)), ig.mean(u, (1, 2)), ig.pad_ragged(u, 3))
    g = ig.parse(str(f))
    assert str(g) == str(f)
    found = next(d for d in g["u"].axes if d.rows is not None)
    assert found.rows is not None
    assert found.rows.offsets is g["off"]
    ig.schedule.auto(f, device="cpu")
    assert str(ig.parse(str(f))) == str(f)


def test_index_maps_load() -> None:
    f, x, _, u = rows()
    y = f.output(ig.combine(u))
    m = ig.IdModel(f)
    assert u.definition is not None
    assert y.definition is not None
    read, write = m.access(u.definition, x), m.write(y.definition)
    assert [str(c) for c in read.coordinates] == ["i1 + ld1", "i2"]
    assert str(read.predicate) == str(write.predicate) == "i1 < ld2"
    assert {n: t.name for n, (t, _) in write.loads.items()} == {"ld1": "t2", "ld2": "t4"}
    assert [str(b) for b in write.load_bounds] == ["ld1 >= 0", "ld2 >= 0", "ld1 + ld2 <= 9"]
    assert "row of off" in str(read.explain_predicate())


def test_maps_through_loaded_rows_are_refused() -> None:
    f, x, _, u = rows()
    y = f.output(ig.combine(u))
    with pytest.raises(ig.IndexingError, match="known only when t2 is loaded"):
        ig.IdModel(f).output_to_input(y, x)


def test_there_and_back_is_the_identity_in_graphs() -> None:
    f = ig.Fusion("f")
    x, off = f.input("x", (9,)), f.input("off", (4,), "int64")
    f.output(ig.combine(ig.partition(x, 0, off)) + x)
    assert [c.kind for c in ig.IdModel(f).exact.cycles()] in ([], ["identity"])


REFUSED: dict[str, tuple[Callable[[Fusion, Tensor, Tensor], object], str, str]] = {
    "plain axis": (lambda f, u, off: u + f.input("w", (3, 9, 2)), "meets an axis of w that is not ragged", "pad"),
    "plain axis first": (lambda f, u, off: f.input("w", (9, 2)) * u, "meets an axis of w that is not ragged", "pad"),
    "other offsets": (
        lambda f, u, off: u + ig.partition(f["x"], 0, f.input("o", (4,), "int64")),
        "has the rows of o, that of u those of off: they are not the same axis", "ig.pad_ragged",
    ),
    "reshape": (lambda f, u, off: ig.reshape(u, -1), "reshape takes plain axes", "ig.combine"),
    "slice": (lambda f, u, off: u[:, :4], "slice takes plain axes", "ig.combine"),
    "cumsum": (lambda f, u, off: ig.cumsum(u, 1), "cumsum takes plain axes", "ig.combine"),
    "cumsum from the end": (lambda f, u, off: ig.cumsum(u, -2), "cumsum takes plain axes", "ig.combine"),
    "cumsum over rows": (lambda f, u, off: ig.cumsum(u, 0), "cumsum takes plain axes", "ig.combine"),
    "selected rows": (
        lambda f, u, off: ig.index_select(u, 0, f.input("at", (2,), "int64")), "index_select takes plain", "ig.combine",
    ),
    "selected places": (
        lambda f, u, off: ig.index_select(u, 1, f.input("at", (2,), "int64")), "index_select takes plain", "ig.combine",
    ),
    "gathered places": (
        lambda f, u, off: ig.gather(u, 1, ig.partition(f.input("at", (9, 2), "int64"), 0, off)),
        "gather takes plain axes", "ig.combine",
    ),
    "flip": (lambda f, u, off: ig.flip(u, (0,)), "flip takes plain axes", "ig.combine"),
    "merged with a plain axis": (lambda f, u, off: ig.reshape(u, (3, 18)), "reshape takes plain axes", "ig.combine"),
    "cat with plain rows": (
        lambda f, u, off: ig.cat([u, f.input("w", (3, 9, 2))], dim=2), "meets an axis of w that is not ragged", "pad",
    ),
    "product along rows": (
        lambda f, u, off: ig.permute(u, (0, 2, 1)) @ u, "matmul reduces the ragged axis", "ig.sum(a * b, dim)",
    ),
    "output": (lambda f, u, off: f.output(u), "output u has a ragged axis", "ig.combine"),
    "component": (lambda f, u, off: ig.sum(u, 0), "sum reduces the component axis of u", "ig.combine"),
    "twice": (lambda f, u, off: ig.partition(u, 2, off), "partition takes plain axes", "ig.combine"),
    "not ragged": (lambda f, u, off: ig.combine(f["off"]), "off has no ragged axis", "partition"),
    "turned": (lambda f, u, off: ig.combine(ig.permute(u, (1, 0, 2))), "does not stand in front", "permute"),
    "float offsets": (lambda f, u, off: f["x"].partition(0, f.input("o", (4,))), "offsets o are float32", "cast"),
    "matrix of offsets": (
        lambda f, u, off: f["x"].partition(0, f.input("o", (4, 4), "int64")), "offsets o have 2 axes", "",
    ),
    "one offset": (lambda f, u, off: f["x"].partition(0, f.input("o", (1,), "int64")), "fewer than the two", "min=2"),
    "no such axis": (lambda f, u, off: f["x"].partition(2, off), "x has no axis 2", "shape"),
    "another fusion": (
        lambda f, u, off: f["x"].partition(0, ig.Fusion("g").input("o", (4,), "int64")), "not a tensor of fusion", "",
    ),
    "made by hand": (
        lambda f, u, off: apply_op("partition", f["x"], off[1:], off[1:], dim=0),
        "are not where rows of 9 elements", "",
    ),
    "padded with a fraction": (
        lambda f, u, off: ig.pad_ragged(ig.partition(off, 0, off), 0.5), "0.5 is not a number of type int64", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    f, _, off, u = rows()
    call, said, hint = REFUSED[name]
    before = [e.op for e in f.exprs]
    with pytest.raises(ig.IdGraphError, match=said) as info:
        call(f, u, off)
    assert hint in str(info.value)
    assert [e.op for e in f.exprs if e.op not in ("partition", "permute", "slice", "sub")] == [
        op for op in before if op not in ("partition", "slice", "sub")
    ]  # what the call makes before the operation that is refused, stays


def test_other_axes_are_changed_beside_rows() -> None:
    """Rows stay rows where an operation leaves both of their axes as they are; a product of groups is one of them."""
    f, x, off, u = rows()
    w = f.input("w", (3, 2, 2))
    found = (
        u[:, :, 1:],
        ig.pad(u, (1, 0)),
        ig.flip(u, (2,)),
        ig.reshape(u, (3, 9, 2, 1)),
        ig.cat([u, -u], dim=2),
        u @ w,
    )
    for t in found:
        assert t.axes[1].rows is not None and t.axes[1].rows.component is t.axes[0], t.definition
        f.output(ig.combine(t))
    rng, ends = np.random.default_rng(0), np.array([0, 2, 2, 9])
    given = {"x": rng.random((9, 2), np.float32), "w": rng.random((3, 2, 2), np.float32), "off": ends}
    made = list(ig.emit(f, target="numpy").run(given).values())
    a = given["x"]
    group = np.repeat(np.arange(3), np.diff(ends))
    expected = [a[:, 1:], np.pad(a, ((0, 0), (1, 0))), a[:, ::-1], a[..., None], np.concatenate([a, -a], 1)]
    for one, want in zip(made, [*expected, np.einsum("nk,nkm->nm", a, given["w"][group])], strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-6)
    y = ig.Fusion("products")
    x, off = y.input("x", (9, 2)), y.input("off", (4,), "int64")
    u = ig.partition(x, 0, off)  # what the refusal of a product along rows advises
    y.output(ig.sum(ig.unsqueeze(u, 3) * ig.unsqueeze(u, 2), 1))
    (gram,) = ig.emit(y, target="numpy").run({"x": a, "off": ends}).values()
    np.testing.assert_allclose(gram, [r.T @ r for r in np.split(a, ends[1:-1])], rtol=1e-5)


Array = np.ndarray[Any, np.dtype[Any]]
Pick = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
PICKS: dict[str, tuple[Pick, Callable[[Array, Array, Array, Array, Array, Array], Array]]] = {
    "embedding": (lambda u, ids, at, w, few: ig.combine(ig.embedding(ids, w)), lambda x, ids, at, w, few, ends: w[ids]),
    "bag": (
        lambda u, ids, at, w, few: ig.sum(ig.embedding(ids, w), 1),
        lambda x, ids, at, w, few, ends: np.stack([w[r].sum(0) for r in np.split(ids, ends[1:-1])]),
    ),
    "index_select": (
        lambda u, ids, at, w, few: ig.combine(ig.index_select(ig.softmax(u, 1), 2, few)),
        lambda x, ids, at, w, few, ends: np.concatenate(
            [np.exp(r) / np.exp(r).sum(0) for r in np.split(x, ends[1:-1])]
        )[:, few],
    ),
    "gather": (
        lambda u, ids, at, w, few: ig.combine(ig.gather(u, 2, at)),
        lambda x, ids, at, w, few, ends: np.take_along_axis(x, at, 1),
    ),
    "take_along_dim": (
        lambda u, ids, at, w, few: ig.combine(ig.take_along_dim(u, at, 2)),
        lambda x, ids, at, w, few, ends: np.take_along_axis(x, at, 1),
    ),
    "cumsum": (
        lambda u, ids, at, w, few: ig.combine(ig.cumsum(u, 2)),
        lambda x, ids, at, w, few, ends: np.cumsum(x, 1),
    ),
}


@pytest.mark.parametrize("device", [None, "cpu", "H200"])
@pytest.mark.parametrize("name", PICKS)
def test_elements_are_picked_and_scanned_beside_rows(name: str, device: str | None) -> None:
    """Where an index, or the axis of a scan, is not one of the rows', they stay rows; of an index, too."""
    build, expected = PICKS[name]
    rng, ends = np.random.default_rng(0), np.array([0, 2, 2, 9])
    f = ig.Fusion("picks")
    x, off, w = f.input("x", (9, 3)), f.input("off", (4,), "int64"), f.input("w", (7, 2))
    ids, at, few = f.input("ids", (9,), "int64"), f.input("at", (9, 2), "int64"), f.input("few", (4,), "int64")
    f.output(build(ig.partition(x, 0, off), ig.partition(ids, 0, off), ig.partition(at, 0, off), w, few))
    if device is not None:
        ig.schedule.auto(f, device=device)
    given: dict[str, Array] = {
        "x": rng.random((9, 3), np.float32), "ids": rng.integers(0, 7, 9), "at": rng.integers(0, 3, (9, 2)),
        "w": rng.random((7, 2), np.float32), "few": np.array([2, 0, 1, 1]), "off": ends,
    }  # fmt: skip
    want = expected(given["x"], given["ids"], given["at"], given["w"], given["few"], ends)
    (made,) = ig.emit(f, target="numpy").run({t.name: given[t.name] for t in f.inputs}).values()
    np.testing.assert_allclose(made, want, rtol=1e-6)


def test_ways_out_work() -> None:
    """What the errors advise is taken: pad both, partition the other, put the axes side by side."""
    f = ig.Fusion("f")
    x, w, off, o = f.input("x", (9,)), f.input("w", (9,)), f.input("off", (4,), "int64"), f.input("o", (4,), "int64")
    u, v = ig.partition(x, 0, off), ig.partition(x, 0, o)
    f.output(
        ig.pad_ragged(u, 0) + w, ig.pad_ragged(u, 0) * ig.pad_ragged(v, 0), ig.combine(u + ig.partition(w, 0, off))
    )
    f.output(ig.combine(ig.permute(ig.permute(u, (1, 0)), (1, 0))))
    values = np.arange(9, dtype=np.float32)
    ends = {"off": np.array([0, 2, 2, 9]), "o": np.array([0, 4, 5, 9])}
    a, b, c, d = map(np.asarray, ig.emit(f, target="python").run({"x": values, "w": values + 1, **ends}).values())
    pad = {k: np.array([[*r, *[0] * (9 - len(r))] for r in np.split(values, e[1:-1])]) for k, e in ends.items()}
    assert np.array_equal(a, pad["off"] + values + 1)
    assert np.array_equal(b, pad["off"] * pad["o"])
    assert np.array_equal(c, 2 * values + 1)
    assert np.array_equal(d, values)


def test_one_element_in_all_is_still_ragged() -> None:
    f = ig.Fusion("one")
    x, off, y = f.input("x", (1,)), f.input("off", (4,), "int64"), f.input("y", (3, 5))
    u = ig.exp(ig.exp(ig.partition(x, 0, off)))
    assert [(d.is_broadcast, d.rows is not None) for d in u.axes] == [(False, False), (False, True)]
    assert ig.combine(ig.softmax(u, 1) + u).shape == (1,)
    with pytest.raises(ig.OperationError, match="not the same axis and neither is a broadcast"):
        _ = u + y
