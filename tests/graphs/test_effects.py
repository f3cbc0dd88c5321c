"""What expressions do to coordinates is asked once for each kind: equal layers of a fusion cost one of them."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.arith import TRUE, symbol
from idgraph.graphs.coordinate_rules import TransferFunctions


def _layers(n: int) -> ig.IdModel:
    f = ig.Fusion("layers")
    t = f.input("a", shape=(4, 8, 6))
    for _ in range(n):
        u = ig.reshape(ig.reshape(t, 4, 48), (4, 8, 6))
        t = ig.exp(ig.cat([u[..., 2:], u[..., :2]], dim=-1) + t) * u
    f.output(t)
    return ig.IdModel(f)


def _asked(monkeypatch: pytest.MonkeyPatch, layers: int) -> int:
    """How many coordinates the algebra is given for the aligned graph."""
    asked: list[object] = []
    made = TransferFunctions.outputs_of

    def counted(self: TransferFunctions, *args: object) -> object:
        before = len(self._made)  # pyright: ignore[reportPrivateUsage]
        found = made(self, *args)  # pyright: ignore[reportArgumentType]
        asked.extend([args] * (len(self._made) - before))  # pyright: ignore[reportPrivateUsage]
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TransferFunctions, "outputs_of", counted)
        assert len(_layers(layers).aligned.left_out) == layers + 1
    return len(asked)


def test_equal_layers_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_asked(monkeypatch, n) for n in (4, 16))
    assert 0 < many == few


def test_expressions_of_one_form_and_other_extents_are_kept_apart() -> None:
    f = ig.Fusion("cuts")
    a, b = (ig.slice(f.input(f"x{n}", shape=(n,)), 0, 0, n - 2) for n in (8, 6))
    (one,), (two,) = a.domain.exprs, b.domain.exprs
    effects, i = TransferFunctions(), symbol("i", 0, 7)
    assert one.attributes == two.attributes and effects.kind(one) != effects.kind(two)
    inside = [str(effects.inside(e, (i,), (TRUE,))) for e in (one, two)]
    assert inside == ["i < 6", "i < 4"]
