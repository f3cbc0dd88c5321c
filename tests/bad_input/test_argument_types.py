"""Arguments of a wrong type: an error of this library with the user's line; NumPy's integers are integers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig

BAD: list[Any] = [1.5, "1", {"a": 1}, object(), True, np.float32(1), None]
OPERATIONS: dict[str, Callable[[Any, Any, Any], object]] = {
    "roll": lambda f, t, v: ig.roll(t, v, 0),
    "select": lambda f, t, v: ig.select(t, 0, v),
    "select dim": lambda f, t, v: ig.select(t, v, 0),
    "gather dim": lambda f, t, v: ig.gather(t, v, ig.cast(t, "int64")),
    "unsqueeze": lambda f, t, v: ig.unsqueeze(t, v),
    "stack dim": lambda f, t, v: ig.stack([t, t], v if v is not True else 9),
    "transpose": lambda f, t, v: ig.transpose(t, v, 0),
    "pad": lambda f, t, v: ig.pad(t, v),
    "pad amount": lambda f, t, v: ig.pad(t, (v, 0)),
    "cat": lambda f, t, v: ig.cat(v),
    "index_put": lambda f, t, v: ig.index_put(t, [v], t),
    "full": lambda f, t, v: ig.full(v, 1.0, fusion=f),
    "cast": lambda f, t, v: ig.cast(t, v),
    "shape": lambda f, t, v: f.input("a", shape=v),
    "strides": lambda f, t, v: f.input("a", shape=(2,), strides=(v,)),
    "offset": lambda f, t, v: f.input("a", shape=(2,), offset=v),
    "symbol": lambda f, t, v: f.symbol("n", multiple_of=v),
    "tensor by name": lambda f, t, v: f[v],
}
STEPS: dict[str, Callable[[Any, Any, Any], object]] = {
    "split": lambda f, t, v: t.split(0, v),
    "split axis": lambda f, t, v: t.split(v, 2),
    "merge": lambda f, t, v: t.merge(v),
    "reorder": lambda f, t, v: t.reorder(v),
    "resize": lambda f, t, v: t.resize(0, v, 0),
    "stride": lambda f, t, v: t.stride(0, v, 1, 1),
    "inline": lambda f, t, v: t.inline(v),
    "set_loop": lambda f, t, v: t.set_loop(v),
    "set_allocation": lambda f, t, v: t.set_allocation([v]),
    "set_memory": lambda f, t, v: t.set_memory(v),
    "persistent": lambda f, t, v: t.persistent(v),
    "items_per_thread": lambda f, t, v: t.items_per_thread(v),
    "like": lambda f, t, v: ig.schedule.like(f, v),
    "resize_to_inputs": lambda f, t, v: ig.schedule.resize_to_inputs(f, v),
}


@pytest.mark.parametrize("value", BAD, ids=[type(v).__name__ for v in BAD])
@pytest.mark.parametrize("name", [*OPERATIONS, *STEPS])
def test_an_error_with_a_line(name: str, value: Any) -> None:
    f = ig.Fusion("f")
    t = ig.copy(f.input("t", shape=(4, 6)))
    with pytest.raises(ig.OperationError if name in OPERATIONS else ig.ScheduleError) as caught:
        {**OPERATIONS, **STEPS}[name](f, t, value)
    assert "test_argument_types.py" in str(caught.value)


def test_a_symbol_without_values() -> None:
    f = ig.Fusion("f")
    with pytest.raises(ig.OperationError, match="no multiple of 4 from 5 to 7"):
        f.symbol("n", min=5, max=7, multiple_of=4)


def test_integers_of_numpy() -> None:
    f = ig.Fusion("f")
    one: Any = np.int64(1)
    two: Any = np.int32(2)
    t: Any = f.input("t", shape=(4 * one, two))
    assert t.shape == (4, 2) and t[one:, one].shape == (3,)
    assert ig.sum(t, one).shape == (4,) and ig.reshape(t, two, -1).shape == (2, 4)
    assert ig.pad(t, (one, two)).shape == (4, 5) and ig.roll(t, one, one).shape == (4, 2)
    assert ig.stack([t, t], two).shape == (4, 2, 2) and ig.unsqueeze(t, one).shape == (4, 1, 2)


def test_symbols_of_nobody() -> None:
    """A loop variable or another fusion's symbol in an operation would be a value that nothing binds."""
    f, other = ig.Fusion("f"), ig.Fusion("other").symbol("n", min=1)
    x = f.input("x", shape=(4, 6))
    loop = ig.simplify("i0", {"i0": 4})
    for build in (
        lambda: x + other,
        lambda: ig.roll(x, other, 0),
        lambda: ig.slice(x, 0, loop),
        lambda: ig.expand(ig.unsqueeze(x, 0), other, 4, 6),
        lambda: f.input("y", shape=(4,), offset=other),
        lambda: f.input("y", shape=(4,), strides=(other,)),
        lambda: ig.copy(x).split(0, other),
        lambda: ig.copy(x).roll(0, loop),
    ):
        with pytest.raises(ig.IdGraphError, match="not a symbol of fusion f"):
            build()


def test_sizes_that_no_address_reaches() -> None:
    f = ig.Fusion("f")
    for build in (
        lambda: f.input("y", shape=(1 << 63,)),
        lambda: ig.iota(1 << 70, fusion=f),
        lambda: ig.iota(4, 1 << 63, fusion=f),
        lambda: f.input("z", shape=(4,)) + (1 << 63),
    ):
        with pytest.raises(ig.OperationError, match=r"beyond 2\^63 - 1|does not fit an int64"):
            build()
    for offset, strides in ((1 << 62, (1 << 61, 1)), (1 << 63, None)):
        g = ig.Fusion("g")
        g.output(g.input("y", shape=(4, 4), offset=offset, strides=strides) + 1)
        with pytest.raises(ig.FusionError, match="no address reaches"):
            g.verify()


class Raising:
    """All that a refusal may ask of it fails."""

    @property
    def tensors(self) -> object:
        raise ZeroDivisionError("not ours")

    @property
    def name(self) -> object:
        raise ZeroDivisionError("not ours")


def test_an_argument_whose_attributes_fail_is_refused() -> None:
    """The refusal names a tensor by number, and looks among the arguments where that was made."""
    f = ig.Fusion("f")
    t = f.output(f.input("x", (4,)) + 1.0)
    axis: Any = Raising()
    with pytest.raises(ig.ScheduleError, match="has no loop axis") as caught:
        t.split(axis, 2)
    assert list(caught.value.origins) == [t.name]


WAYS_OUT: dict[str, Callable[[Any, Any], object]] = {
    "x = f.input(name, shape)": lambda f, t: ig.sum(1, t),  # pyright: ignore[reportArgumentType]
    "ig.cat([x, y], dim)": lambda f, t: ig.cat([]),
    'k = f.symbol("k", min=1)': lambda f, t: f.input("w", (ig.Fusion("g").symbol("k", min=1),)),
    "for t in decisions": lambda f, t: ig.layout.infer(f)["x"],  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("hint", WAYS_OUT)
def test_a_way_out_and_the_line(hint: str) -> None:
    f = ig.Fusion("f")
    t = f.output(ig.copy(f.input("t", shape=(4, 6))))
    with pytest.raises(ig.IdGraphError) as caught:
        WAYS_OUT[hint](f, t)
    assert hint in caught.value.hint and "test_argument_types.py" in caught.value.where


HINTS: dict[str, Callable[[Any, Any], object]] = {
    "target: one of 'python', 'numpy', 'cpu', 'cuda'": lambda f, v: ig.emit(f, target=v),
    "symbols: a mapping of strings to integers or None": lambda f, v: ig.validate(f, symbols=v),
    "seed: an integer": lambda f, v: ig.validate(f, seed=v),
    "exhaustive: True or False": lambda f, v: ig.validate(f, exhaustive=v),
    "tensors: a sequence of Tensors or None": lambda f, v: ig.schedule.inline_most(f, v),
    "device: a Device, a string or None": lambda f, v: ig.schedule.auto(f, device=v),
}


@pytest.mark.parametrize("words", HINTS)
def test_a_hint_says_types_in_words(words: str) -> None:
    f = ig.Fusion("f")
    f.output(ig.copy(f.input("t", shape=(4, 6))))
    with pytest.raises(ig.IdGraphError) as caught:
        HINTS[words](f, 2.5)
    assert caught.value.hint == words
