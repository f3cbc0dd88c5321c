"""What other lowerings compute again, spell out or hold for themselves; memory that nothing fills; numbers of loops."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from tests.check.tree_lowerings import cut, loop, put
from tests.check.tree_lowerings import text as program

Data = dict[str, Any]


def right(text: str, *body: Data, **more: Any) -> None:
    r = ig.check.program({"program": text, "body": list(body), **more})
    assert r.ok and r.decided, str(r)


def wrong(text: str, *body: Data, **more: Any) -> str:
    r = ig.check.program({"program": text, "body": list(body), **more})
    assert r.refuted and not r.ok, str(r)
    return str(r)


STORED_TWICE = program("(6,)", "  a = exp(x)", "  b = neg(a)", "  c = sub(b, a)", "  y = tanh(c)")


@pytest.mark.parametrize("index", ["i", "5 - i"])
def test_a_stored_tensor_may_be_computed_again(index: str) -> None:
    """`c` is made of what `b` holds, and of `a`, which has a buffer too, from `x`."""
    make = loop(
        "t", 2, loop("p", 3, put("a", "a", "t*3 + p", ("x", "t*3 + p")), put("b", "b", "t*3 + p", ("a", "t*3 + p")))
    )
    again = index.replace("i", "(t*3 + q)")
    part = loop("q", 3, put("c", "c", "q", ("b", "t*3 + q"), ("x", again)))
    use = loop("q", 3, put("y", "y", "t*3 + q", ("c", "q")))
    body = make, loop("t", 2, part, use, private=("c",))
    if index == "i":
        right(STORED_TWICE, *body)
    else:
        wrong(STORED_TWICE, *body)


PAIRS = "  s = reshape({}, shape=({}, {}))", "  b = sum(s, dims=(1,))"


@pytest.mark.parametrize("last", ["k*2 + 1", "k*2 + 2"])
def test_a_sum_is_spelled_out_inside_of_an_operation(last: str) -> None:
    """The result only moves what is computed of the sum, so that no buffer has its name."""
    text = program(
        "(8,)", "  a = exp(x)", *(s.format("a", 4, 2) for s in PAIRS), "  c = exp(b)", "  y = flip(c, dims=(0,))"
    )
    k, other = "(3 - i)", last.replace("k", "(3 - i)")
    halves = [{"if": c, "body": [put(c[2], "y", "i", ("a", f"{k}*2"), ("a", other))]} for c in ("i < 2", "i >= 2")]
    body = loop("j", 8, put("a", "a", "j", ("x", "j"))), loop("i", 4, *halves)
    if last == "k*2 + 1":
        right(text, *body)
    else:
        wrong(text, *body)


def test_a_sum_is_spelled_out_twice_inside_of_an_operation() -> None:
    text = program("(8,)", "  a = exp(x)", *(s.format("a", 4, 2) for s in PAIRS), "  y = square(b)")
    reads = ("a", "i*2"), ("a", "i*2 + 1"), ("a", "i*2"), ("a", "i*2 + 1")
    parts = [{"if": c, "body": [put(c[2], "a", "j", ("x", "j"))]} for c in ("j < 2", "j >= 2")]
    right(text, loop("j", 8, *parts), loop("i", 4, put("y", "y", "i", *reads)))
    wrong(text, loop("j", 8, *parts), loop("i", 4, put("y", "y", "i", *reads[:3], ("a", "(i*2 + 2)%8"))))


@pytest.mark.parametrize("shift", [0, 1])
def test_a_sum_that_has_an_element_twice_is_held_by_a_buffer_of_no_tensor(shift: int) -> None:
    repeat = "  t = unsqueeze(x, dims=(1,))", "  u = expand(t, shape=(6, 2))", "  a = reshape(u, shape=(12,))"
    text = program("(6,)", *repeat, *(s.format("a", 4, 3) for s in PAIRS), "  y = flip(b, dims=(0,))")
    fill = loop("p", 6, put("fill", "tmp", "t*6 + p", ("x", f"(t*6 + p)//2 - {shift}*(p//5)")))
    add = loop("q", 2, put("add", "sums", "t*2 + q", *(("tmp", f"(t*2 + q)*3 + {k}") for k in range(3))))
    body = loop("t", 2, fill, add), loop("i", 4, put("use", "y", "i", ("sums", "3 - i")))
    if shift == 0:
        right(text, *body)
    else:
        wrong(text, *body)


def test_an_operand_in_the_place_that_is_written_is_no_part_of_the_result() -> None:
    """`y`, which only moves `a`, is stored over `x`."""
    text = program(
        "(4,)", cut("u", "x", 2, 4), cut("v", "x", 0, 2), "  a = add(u, v)", "  y = roll(a, shifts=(2,), dims=(0,))"
    )
    buffers = {"y": {"tensor": "y", "strides": [3], "storage": "x"}}
    k = loop("i", 2, put("k", "y", "i*3", ("x", "i + 2"), ("x", "i")), order="any")
    right(text, k, buffers=buffers)
    k["body"][0]["writes"][0]["index"] = "i*2"
    buffers["y"]["strides"] = [2]
    assert "any order" in wrong(text, k, buffers=buffers)


def numbered(n: int, *more: str) -> str:
    """A program of `p`, the positions of n elements."""
    given = f'  i = iota(n={n}, start=1, step=1, dtype="int64")', '  p = cast(i, dtype="float32")'
    return program(f"({n},)", *given, *more)


POSITIONS = numbered(8, "  a = mul(x, p)", cut("u", "a", 0, 7), cut("v", "a", 1, 8), "  y = add(u, v)")


def positions(value: str, far: str = "j + 1", name: str = "tmp") -> tuple[Data, Data]:
    make, use = put("make", name, "i", ("x", "i")), put("use", "y", "j", (name, "j"), (name, far))
    if value:
        make["writes"][0]["value"], use["writes"][0]["value"] = value, "r0 + r1"
    return loop("i", 8, {"if": "i < 3", "body": [make]}, {"if": "i >= 3", "body": [{**make, "name": "rest"}]}), loop(
        "j", 7, use
    )


def test_positions_are_numbers_of_loops() -> None:
    right(POSITIONS, *positions("r0*(i + 1)"))
    assert "another number" in wrong(POSITIONS, *positions("r0*i"))
    wrong(POSITIONS, *positions("r0*(i + 1)", "j"))
    right(POSITIONS, *positions("", name="a"))  # its elements are told apart by those of `x`
    wrong(POSITIONS, *positions("", "j", "a"))


def test_positions_alone_are_told_apart_by_values_only() -> None:
    text = numbered(4, "  r = flip(p, dims=(0,))", "  y = add(x, r)")
    make = loop("i", 4, put("p", "tmp", "i"), order="any")
    use = loop(
        "t", 1, loop("j", 4, put("y", "y", "j", ("x", "j"), ("tmp", "3 - j"))), loop("e", 0, put("no", "y", "e"))
    )
    r = ig.check.program({"program": text, "body": [make, use]})
    assert not r.decided and "made of positions" in str(r), str(r)
    make["body"][0]["writes"][0]["value"] = "i + 1"
    use["body"][0]["body"][0]["writes"][0]["value"] = "r0 + r1"
    use["body"][1]["body"][0]["writes"][0]["value"] = "0.0"
    right(text, make, use)
    use["body"][0]["body"][0]["writes"][0]["reads"][1]["index"] = "j"
    wrong(text, make, use)


COPIED = program("(8,)", "  y = exp(x)")


@pytest.mark.parametrize("extent", [8, "n"])
@pytest.mark.parametrize("name", ["x", "y"])
def test_an_argument_or_a_result_that_each_iteration_has_for_itself(name: str, extent: object) -> None:
    symbols = {"symbols": {"n": {"min": 4}}} if extent == "n" else {}
    text = COPIED if extent == 8 else COPIED.replace("  x", "  symbol n min=4\n  x").replace("(8,)", "(`n`,)")
    k = put("k", "y", "i", ("x", "i"))
    right(text, loop("i", extent, k, order="any"), **symbols)  # type: ignore[arg-type]
    wrong(text, loop("i", extent, k, order="any", private=(name,)), **symbols)  # type: ignore[arg-type]


def test_a_buffer_that_nothing_fills_holds_nothing() -> None:
    text = program("(8,)", "  a = exp(x)", "  y = flip(a, dims=(0,))")
    use = loop("i", 8, put("k", "y", "i", ("a", "7 - i")), order="any")
    for buffers in ({}, {"a": {"tensor": "a"}}):
        assert "nothing has written" in wrong(text, use, buffers=buffers)
    right(text, loop("j", 8, put("a", "a", "j", ("x", "j"))), use, buffers={"a": {"tensor": "a"}})


@pytest.mark.parametrize("extent", [8, 9])
def test_what_fills_a_buffer_of_no_tensor_reads_inside_of_its_memory(extent: int) -> None:
    """The ninth element is computed, and not used."""
    text = program("(8,)", "  a = exp(x)", "  y = flip(a, dims=(0,))")
    body = loop("j", extent, put("a", "tmp", "j", ("x", "j"))), loop("i", 8, put("k", "y", "i", ("tmp", "7 - i")))
    if extent == 8:
        right(text, *body)
    else:
        assert "outside of the memory" in wrong(text, *body)


def test_a_result_that_no_nest_of_a_tree_writes() -> None:
    part = loop("t", 2, put("a", "tmp", "0", ("x", "t")), put("b", "tmp", "1", ("tmp", "0")))
    assert "no nest writes" in wrong(COPIED, part)


def test_the_least_integer_is_where_a_maximum_starts() -> None:
    text = program("(4, 3)", "  y = amax(x, dims=(1,))").replace("float32", "int32")
    start, step = put("start", "acc", "0"), put("step", "acc", "0", ("acc", "0"), ("x", "i*3 + k"))
    end = put("end", "y", "i", ("acc", "0"))
    for n, value in ((start, "-inf()"), (step, "max(r0, r1)"), (end, "r0")):
        n["writes"][0]["value"] = value
    body = loop("i", 4, start, loop("k", 3, step), end)
    right(text, body)
    step["writes"][0]["value"] = "min(r0, r1)"
    wrong(text, body)
