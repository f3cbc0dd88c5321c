"""Steps that combine an element again, memory of no tensor, memory with an end, outputs that only share a memory."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from idgraph.check.program_json import read_any, to_json
from tests.check.test_tree import right, wrong
from tests.check.tree_lowerings import loop, put
from tests.check.tree_lowerings import text as program

Data = dict[str, Any]
ONCE, EACH_TIME = ("amax", "amin"), ("sum", "prod")
AGAIN = "i*5 + min(t*3, 2) + k"  # tiles of 3 over rows of 5: the last one is shifted back over an element


def row(op: str) -> str:
    return program("(3, 5)", f"  y = {op}(x, dims=(1,))")


def again(op: str, *, stepwise: bool) -> Data:
    """Each row combined in two tiles that share an element, in one nest or step by step."""
    if not stepwise:
        nest = put("all", "y", "i", ("x", AGAIN), loops=[["i", 3]], reduce=[["t", 2], ["k", 3]])
        return {"program": row(op), "nests": [nest]}
    step = loop("t", 2, loop("k", 3, put("step", "y", "i", ("y", "i"), ("x", AGAIN))))
    return {"program": row(op), "body": [loop("i", 3, put("start", "y", "i"), step)]}


@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize("op", ONCE)
def test_a_largest_value_may_be_combined_twice(op: str, stepwise: bool) -> None:
    right(again(op, stepwise=stepwise))


@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize("op", EACH_TIME)
def test_a_sum_may_not(op: str, stepwise: bool) -> None:
    wrong(again(op, stepwise=stepwise))


def test_an_element_that_is_missing_in_a_largest_value() -> None:
    data = again("amax", stepwise=True)
    data["body"][0]["body"][1]["for"][1] = 1
    wrong(data)


def test_a_running_largest_value() -> None:
    step = put("step", "y", "i + 1", ("y", "i"), ("x", "i + 1"), ("x", "i"))
    body = [put("first", "y", "0", ("x", "0")), loop("i", 3, step)]
    data: Data = {"program": program("(4,)", "  y = cummax(x, dim=0)"), "body": body}
    right(data)
    wrong({**data, "program": program("(4,)", "  y = cumsum(x, dim=0)")})


@pytest.mark.parametrize("op", [*ONCE, *EACH_TIME])
def test_steps_in_memory_of_no_tensor(op: str) -> None:
    step = put("step", "acc", "0", ("acc", "0"), ("x", "i*5 + k"))
    parts = [put("start", "acc", "0"), loop("k", 5, step), put("out", "y", "i", ("acc", "0"))]
    right({"program": row(op), "body": [loop("i", 3, *parts)]})
    wrong({"program": row(op), "body": [loop("i", 3, *parts, order="any")]})
    wrong({"program": row(op), "body": [loop("i", 3, *parts[1:])]})
    parts[1]["for"][1] = 4
    wrong({"program": row(op), "body": [loop("i", 3, *parts)]})


def test_parts_of_largest_values_overlap() -> None:
    """Two windows of four elements over six."""
    window = put("part", "part", "t", *(("x", f"t*2 + {k}") for k in range(4)))
    last = put("last", "y", "0", ("part", "0"), ("part", "1"))
    data: Data = {"program": program("(6,)", "  y = amax(x, dims=(0,))"), "body": [loop("t", 2, window), last]}
    right(data)
    wrong({**data, "body": [loop("t", 1, window), last]})


def test_steps_of_parallel_iterations_are_a_race() -> None:
    step = put("step", "y", "i", ("y", "i"), ("x", "i*5 + k"))
    r = wrong({"program": row("sum"), "body": [loop("i", 3, put("start", "y", "i"), loop("k", 5, step, order="any"))]})
    assert "any order" in str(r)
    added = put("step", "y", "i", ("x", "i*5 + k"), mode="add")  # each an atomic one
    right({"program": row("sum"), "body": [loop("i", 3, put("start", "y", "i"), loop("k", 5, added, order="any"))]})


def test_a_sum_of_nothing_is_stored() -> None:
    nests = [put(n, "y", "i", ("x", "i"), loops=[["i", 3]], reduce=[["k", 0]]) for n in ("once", "again")]
    p = program("(3, 0)", "  y = sum(x, dims=(1,))")
    right({"program": p, "nests": nests[:1]})
    right({"program": p, "body": [loop("t", 1, *nests)]})


@pytest.mark.parametrize("private", [(), ("tile",)])
def test_memory_ends_where_its_size_says(private: tuple[str, ...]) -> None:
    make = loop("p", 4, put("make", "tile", "p", ("x", "t*4 + p")))
    use = loop("i", 4, put("use", "y", "t*4 + i", ("tile", "i")))
    data: Data = {"program": program("(8,)", "  y = exp(x)"), "buffers": {"tile": {"size": 4}}}
    data["body"] = [loop("t", 2, make, use, private=private)]
    right(data)
    assert '"size": 4' in to_json(read_any(data)) and ig.check.program(to_json(read_any(data))).ok
    data["buffers"]["tile"]["size"] = 3
    assert "tile[3]" in str(wrong(data))


def test_a_size_is_judged_in_nests_and_at_all_sizes() -> None:
    nests = [put("make", "tmp", "i", ("x", "i"), loops=[["i", "n"]])]
    nests.append(put("use", "y", "i", ("tmp", "i"), loops=[["i", "n"]]))
    f = ig.Fusion("f")
    y = ig.exp(f.input("x", shape=(f.symbol("n", min=1),)))
    y.name = "y"
    f.output(y)
    data: Data = {"program": str(f), "symbols": {"n": {"min": 1}}, "nests": nests}
    data["buffers"] = {"tmp": {"size": "n"}}
    r = ig.check.program(data)
    assert r.ok and r.decided, str(r)
    data["buffers"]["tmp"]["size"] = "n - 1"
    assert not ig.check.program(data).ok


def test_an_output_whose_memory_only_another_one_uses_is_not_written() -> None:
    p = program("(2,)", "  a = exp(x)", "  y = flip(x, dims=(0,))", "  output a")
    nest = put("k", "y", "i", ("x", "1 - i"), loops=[["i", 2]])
    r = ig.check.program({"program": p, "buffers": {"y": {"storage": "a"}}, "nests": [nest]})
    assert not r.ok and "no nest writes this output" in str(r)


def test_what_no_run_shows_is_not_refuted() -> None:
    """A sum by doubling steps: the element that a step reads is a sum already."""
    first = loop("i", 4, put("one", "p", "i", ("x", "i"), ("x", "max(i - 1, 0)", "i >= 1")))
    last = loop("i", 4, put("two", "y", "i", ("p", "i"), ("p", "max(i - 2, 0)", "i >= 2")))
    data: Data = {"program": program("(4,)", "  y = cumsum(x, dim=0)"), "body": [first, last]}
    assert not ig.check.program(data).refuted
    assert all(ig.check.interpret(data, seed=s).right for s in range(10))


@pytest.mark.parametrize("start", [True, False])
def test_a_step_goes_on_from_what_was_written(start: bool) -> None:
    """Memory of no tensor that nothing has written holds no 0."""
    clear = [put("clear", "part", "h")] if start else []
    steps = loop("k", 3, put("step", "part", "h", ("part", "h"), ("x", "h*3 + k")))
    last = put("last", "y", "0", ("part", "0"), ("part", "1"))
    r = ig.check.program({"program": program("(6,)", "  y = sum(x, dims=(0,))"), "body": [
        loop("h", 2, *clear, steps), last,
    ]})  # fmt: skip
    assert r.ok == r.decided == start, str(r)
