"""Trees of loops: right programs of each kind are decided, wrong variants refuted at a point that a run confirms."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import idgraph as ig
from idgraph.check import CheckError
from idgraph.check.program_json import read_any, to_json
from tests.check.tree_lowerings import cut as cut_of
from tests.check.tree_lowerings import loop, put
from tests.check.tree_lowerings import text as program

Data = dict[str, Any]


def text(*lines: str, shape: str = "(10,)", outputs: str = "y") -> str:
    return program(shape, *lines, output=outputs)


def right(data: Data) -> ig.check.CheckReport:
    r = ig.check.program(data)
    assert r.ok and r.decided, str(r)
    assert all(ig.check.interpret(data, seed=s).right for s in range(10))
    return r


def wrong(data: Data) -> ig.check.CheckReport:
    r = ig.check.program(data)
    assert r.refuted and not r.ok, str(r)
    assert not all(ig.check.interpret(data, seed=s).right for s in range(10))
    assert all("reads nothing\n  meant nothing" not in str(row) for row in r.refuted)
    return r


STENCIL = ("  b = exp(x)", cut_of("l", "b", 0, 8), cut_of("r", "b", 2, 10), "  y = add(l, r)")


def tiles(halo: int = 2, order: str = "serial", buffer: str = "b", private: tuple[str, ...] = ()) -> Data:
    """Two tiles of y, each with the part of b that it reads."""
    make = loop("p", 4 + halo, put("make", buffer, "t*4 + p", ("x", "t*4 + p")))
    use = loop("i", 4, put("use", "y", "t*4 + i", (buffer, "t*4 + i"), (buffer, "t*4 + i + 2")))
    return {"program": text(*STENCIL), "body": [loop("t", 2, make, use, order=order, private=private)]}


@pytest.mark.parametrize("buffer", ["b", "tmp"])
@pytest.mark.parametrize("order", ["serial", "any"])
def test_a_producer_recomputed_with_its_halo(buffer: str, order: str) -> None:
    right(tiles(2, order, buffer))
    r = wrong(tiles(1, order, buffer))
    found = r.refuted[0].counterexample
    assert r.refuted[0].node == "use" and found is not None and found.read is not None and found.meant is not None


def test_a_tile_of_its_own_for_each_iteration() -> None:
    data = tiles(2, "any", "tile", ("tile",))
    make, use = (node["body"][0]["writes"][0] for node in data["body"][0]["body"])
    make["index"] = "p"
    for k, r in enumerate(use["reads"]):
        r["index"] = f"i + {2 * k}"
    right(data)
    data["body"][0]["private"] = []
    r = wrong(data)
    assert "any order" in str(r) and "t=0" in str(r) and "t=1" in str(r)


def test_what_another_iteration_left_is_not_in_a_buffer_of_its_own() -> None:
    first: Data = {"if": "t == 0", "body": [loop("p", 2, put("make", "tmp", "p", ("x", "p")))]}
    use = put("use", "y", "t", ("tmp", "t"))
    data: Data = {"program": text("  y = exp(x)", shape="(2,)"), "body": [loop("t", 2, first, use)]}
    right(data)
    data["body"][0]["private"] = ["tmp"]
    assert "nothing has written before" in str(wrong(data))


def test_a_double_buffer() -> None:
    """Tile t lies in half t % 2, and tile t + 1 is made before t is used."""
    prolog = loop("q", 4, put("first", "ring", "q", ("x", "q")))
    make = {"if": "t < 1", "body": [loop("p", 4, put("next", "ring", "(t + 1)%2*4 + p", ("x", "t*4 + 4 + p")))]}
    use = loop("i", 4, put("use", "y", "t*4 + i", ("ring", "t%2*4 + i")))
    data: Data = {
        "program": text("  b = exp(x)", "  y = neg(b)", shape="(8,)"),
        "body": [prolog, loop("t", 2, make, use)],
    }
    data["buffers"] = {"ring": {"tensor": "b"}}
    right(data)
    use["body"][0]["writes"][0]["reads"][0]["index"] = "i"
    wrong(data)


@pytest.mark.parametrize("fold", [3, 4])
def test_a_folded_buffer(fold: int) -> None:
    """Three elements of b are alive at once: a ring of two loses one."""
    start = loop("q", 2, put("start", "b", f"q%{fold}", ("x", "q")))
    step = put("make", "b", f"(i + 2)%{fold}", ("x", "i + 2"))
    use = put("use", "y", "i", ("b", f"i%{fold}"), ("b", f"(i + 2)%{fold}"))
    data: Data = {"program": text(*STENCIL), "body": [start, loop("i", 8, step, use)]}
    right(data)
    small = json.loads(json.dumps(data).replace(f"%{fold}", "%2"))
    r = wrong(small)
    assert "make wrote it at i=0" in str(r)


@pytest.mark.parametrize("nests", [True, False])
def test_a_pad_as_fill_and_copy(nests: bool) -> None:
    fill = put("fill", "y", "i", loops=[["i", 12]])
    move = put("copy", "y", "i + 1", ("x", "i"), loops=[["i", 10]])
    p = text("  y = pad(x, left=(1,), right=(1,), value=0.0)")
    data: Data = {"program": p, "nests" if nests else "body": [fill, move]}
    right(data)
    wrong({**data, "nests" if nests else "body": [move, fill]})
    move["writes"][0]["index"] = "i"
    wrong(data)


@pytest.mark.parametrize("nests", [True, False])
def test_a_sum_as_start_and_steps(nests: bool) -> None:
    start = put("start", "y", "i", loops=[["i", 3]])
    steps = put("step", "y", "i", ("x", "i*4 + k"), mode="add", loops=[["i", 3], ["k", 4]])
    p = text("  y = sum(x, dims=(1,))", shape="(3, 4)")
    data: Data = {"program": p, "nests" if nests else "body": [start, steps]}
    right(data)
    r = wrong({**data, "nests" if nests else "body": [steps, start]})
    assert r.refuted
    wrong({**data, "nests" if nests else "body": [steps]})
    twice = copy.deepcopy(data)
    twice["nests" if nests else "body"].append({**copy.deepcopy(steps), "name": "again"})
    assert "times" in str(wrong(twice))


def test_partial_sums_of_a_split_axis() -> None:
    clear = put("clear", "part", "i*2 + h", loops=[["i", 3], ["h", 2]])
    part = put("part", "part", "i*2 + h", ("x", "i*5 + h*3 + k"), mode="add", when="h*3 + k < 5",
               loops=[["i", 3], ["h", 2], ["k", 3]])  # fmt: skip
    start, total = put("start", "y", "i"), put("total", "y", "i", ("part", "i*2 + h"), mode="add", loops=[["h", 2]])
    data: Data = {
        "program": text("  y = sum(x, dims=(1,))", shape="(3, 5)"), "body": [clear, part, loop("i", 3, start, total)],
    }  # fmt: skip
    right(data)
    lost = copy.deepcopy(data)
    lost["body"][1]["writes"][0]["when"] = "True"
    wrong(lost)


@pytest.mark.parametrize("order", ["serial", "any"])
def test_a_last_tile_that_is_shifted_back(order: str) -> None:
    at = "min(t*4, 6) + i"
    move = put("move", "y", at, ("x", at))
    data: Data = {"program": text("  y = exp(x)"), "body": [loop("t", 3, loop("i", 4, move), order=order)]}
    right(data)
    move["writes"][0]["reads"][0]["index"] = "min(t*4 + i, 9)"
    wrong(data)


def test_a_producer_cut_down_to_what_its_reader_needs() -> None:
    for buffer in ("b", "tmp"):
        make = put("make", buffer, "i", ("x", "i"), loops=[["i", 4]])
        use = put("use", "y", "i", (buffer, "i"), loops=[["i", 4]])
        data: Data = {"program": text("  b = exp(x)", cut_of("y", "b", 0, 4)), "nests": [make, use]}
        right(data)
        make["loops"] = [["i", 3]]
        wrong(data)


@pytest.mark.parametrize("when", ["k_0*4 + k_1 < 6", "(k_0*4 + k_1 < 6) & (i_0*4 + i_1 < 10)"])
def test_a_guard_on_the_store_of_a_reduction(when: str) -> None:
    total = put("s", "y", "i_0*4 + i_1", ("x", "(i_0*4 + i_1)*6 + k_0*4 + k_1"), when=when,
                loops=[["i_0", 3], ["i_1", 4]], reduce=[["k_0", 2], ["k_1", 4]])  # fmt: skip
    data: Data = {"program": text("  y = sum(x, dims=(1,))", shape="(10, 6)"), "nests": [total]}
    (right if "i_0" in when else wrong)(data)
    total["writes"][0]["when"] = "i_0*4 + i_1 < 10"
    wrong(data)


def test_an_update_in_place_inside_of_a_tile() -> None:
    up = put("up", "y", "t*5 + i", ("x", "t*5 + i"))
    data: Data = {
        "program": text("  y = exp(x)"), "buffers": {"y": {"storage": "x"}},
        "body": [loop("t", 2, loop("i", 5, up), put("other", "z", "t", ("x", "t*5")))],
    }  # fmt: skip
    data["program"] = text(
        "  y = exp(x)", "  z = slice(x, dims=(0,), starts=(0,), stops=(10,), steps=(5,))", "  output y", outputs="z"
    )
    wrong(data)  # z reads x when y lies over it
    data["body"][0]["body"].reverse()
    right(data)


def test_a_race_between_iterations_names_both_points() -> None:
    make, use = put("make", "b", "i", ("x", "i")), put("use", "y", "i", ("b", "9 - i"))
    data: Data = {
        "program": text("  b = exp(x)", "  y = flip(b, dims=(0,))"),
        "body": [loop("i", 10, make, use, order="any")],
    }
    shown = str(wrong(data))
    assert "at i=9" in shown and "make writes it at i=0" in shown and "any order" in shown
    data["body"] = [loop("i", 10, make, order="any"), loop("j", 10, put("use", "y", "j", ("b", "9 - j")), order="any")]
    right(data)


def test_a_lost_mask_touches_what_is_outside() -> None:
    move = put("move", "y", "t*4 + i", ("x", "t*4 + i"), when="t*4 + i < 10")
    data: Data = {
        "program": text("  y = exp(x)"),
        "body": [loop("t", 3, loop("i", 4, move), put("o", "tmp", "0", ("x", "0")))],
    }
    right(data)
    del move["writes"][0]["when"]
    assert "outside of the memory" in str(wrong(data))


def test_a_tree_that_shares_no_loop_is_proved_for_any_size() -> None:
    move = put("move", "y", "i", ("x", "49999999 - i"))
    big = text("  y = flip(x, dims=(0,))", shape="(50000000,)")
    data: Data = {"program": big, "body": [loop("i", 50_000_000, move, order="any")]}
    r = ig.check.program(data)
    assert r.ok and r.decided and "proved" in str(r)


def permuted(count: int, step: int) -> Data:
    """Each element filled and added to once, where the step shares no factor with the count."""
    at = f"i*{step} % {count}"
    start, more = put("start", "y", at), put("more", "y", at, ("x", at), mode="add")
    return {"program": text("  y = exp(x)", shape=f"({count},)"), "body": [loop("i", count, start, more)]}


def test_what_is_too_large_says_what_would_decide_it() -> None:
    assert ig.check.program(permuted(5_000_000, 1)).decided  # by algebra, at any size
    r = ig.check.program(permuted(5_000_000, 7))
    assert r.unknown and not r.refuted and "smaller sizes would decide it" in str(r)
    later = permuted(5_000_000, 7)
    start, more = later["body"][0]["body"]
    later["body"] = [loop("i", 5_000_000, start), loop("i", 5_000_000, more)]
    assert "whether x is needed" in str(ig.check.program(later))
    right(permuted(50, 7))
    wrong(permuted(50, 5))


def test_the_form_is_written_as_it_is_read() -> None:
    data = tiles(2, "any", "tile", ("tile",))
    data["body"][0]["body"].append({"if": "t < 1", "body": [put("more", "tile", "0", ("x", "0"))]})
    p = read_any(data)
    assert read_any(to_json(p)) == p or to_json(read_any(to_json(p))) == to_json(p)


@pytest.mark.parametrize(
    ("path", "key", "near"),
    [
        ([], "bdy", "body"), ([0], "ordr", "order"), ([0], "prvate", "private"), ([0, "body", 0], "fro", "for"),
        ([0, "body", 0, "body", 0], "redce", "reduce"), ([0, "body", 2], "bodi", "body"),
    ],
)  # fmt: skip
def test_keys_of_a_body_are_strict(path: list[Any], key: str, near: str) -> None:
    data = tiles()
    data["body"][0]["body"].append({"if": "t < 1", "body": []})
    at: Any = data["body"] if path else data
    for k in path:
        at = at[k]
    at[key] = "x"
    with pytest.raises(CheckError, match=key) as error:
        ig.check.program(data)
    assert repr(near) in str(error.value)


BAD: list[Data] = [
    {"nests": []},
    {"order": []},
    {"body": [{"body": []}]},
    {"body": [loop("i", -1)]},
    {"body": [loop("i", 2, loop("i", 2))]},
    {"body": [{"for": ["i", 2], "order": "parallel"}]},
    {"body": [{"for": ["i", 2], "private": [1]}]},
    {"body": [{**put("s", "y", "0"), "kernel": "k"}]},
    {"body": [{"if": "i < 2", "body": []}]},
    {"body": 3},
    {"body": [3]},
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_bodies_are_errors(bad: Data) -> None:
    with pytest.raises(CheckError):
        ig.check.program({**tiles(), **bad})


def test_a_deep_body_is_an_error() -> None:
    deep: list[Data] = []
    for k in range(200):
        deep = [loop(f"i{k}", 1, *deep)]
    with pytest.raises(CheckError, match="inside of each other"):
        ig.check.program({**tiles(), "body": deep})
