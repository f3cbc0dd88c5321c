"""Where statements say what they compute, numbers have the last word; memory ends where its argument ends."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from tests.check.tree_lowerings import cut, loop, put, text


def program(lines: str, *body: Any, **buffers: Any) -> dict[str, Any]:
    return {"version": 1, "program": text("(6,)", *lines.split("; ")), "buffers": buffers, "body": list(body)}


def stored(name: str, to: str, at: str, value: str, *reads: Any, **more: Any) -> dict[str, Any]:
    nest = put(name, to, at, *reads, **more)
    nest["writes"][0]["value"] = value
    return nest


TWICE = "  t = gt(x, 0.0); a = where(t, x, 0.0); u = gt(x, 0.0); y = where(u, x, 0.0); output a"


@pytest.mark.parametrize("value", ["where(r0 > 0.0, r0, 0.0)", "where(r0 > -9.0, r0, 0.0)"])
def test_a_coincidence_of_numbers_is_not_refuted(value: str) -> None:
    """The second statement reads what the first has left in x: the positive part of a positive part."""
    first = loop("i", 6, stored("first", "a", "i", "where(r0 > 0.0, r0, 0.0)", ("x", "i")))
    again = loop("j", 6, stored("again", "y", "j", value, ("x", "j")))
    r = ig.check.program(program(TWICE, first, again, a={"storage": "x"}))
    assert not r.refuted and r.unknown and "no run on numbers shows it" in r.unknown[0].because, str(r)
    wrong = loop("j", 6, stored("again", "y", "j", "r0", ("x", "5 - j")))
    assert ig.check.program(program(TWICE, first, wrong, a={"storage": "x"})).refuted


def test_other_elements_of_one_value_are_not_refuted() -> None:
    lines = "  d = sub(x, x); y = tanh(d)"
    make = loop("i", 6, stored("make", "d", "i", "r0 - r1", ("x", "i"), ("x", "i")))
    for at, of in (("j//2", "r0 - r1"), ("j//2", "r0 - 2*r1")):
        make["body"][0]["writes"][0]["value"] = of
        use = loop("j", 6, stored("use", "y", "j", "tanh(r0)", ("d", at)))
        r = ig.check.program(program(lines, make, use, d={"tensor": "d"}))
        assert bool(r.refuted) is (of != "r0 - r1"), str(r)


def test_orders_are_tried_where_numbers_decide() -> None:
    """Iterations in any order overwrite what others read: right in order, and refuted."""
    shift = stored("shift", "x", "j", "r0", ("x", "j + 1"))
    lines = cut("y", "x", 1, 6)
    for order in ("serial", "any"):
        r = ig.check.program(program(lines, loop("j", 5, shift, order=order), y={"storage": "x"}))
        assert bool(r.refuted) is (order == "any"), str(r)


@pytest.mark.parametrize("name", ["y", "t"])
def test_what_is_laid_over_an_argument_ends_with_it(name: str) -> None:
    lines = "  t = cat(x, x, dim=0); y = neg(t)"
    make = loop("i", 12, stored("make", "t", "i", "r0", ("x", "i%6")))
    use = loop("j", 12, stored("use", "y", "j", "-r0", ("t", "j")))
    plain: dict[str, Any] = {"t": {"tensor": "t"}}
    assert ig.check.program(program(lines, make, use, **plain)).ok
    r = ig.check.program(program(lines, make, use, **plain | {name: {"storage": "x"}}))
    assert any("outside of the memory" in x.because for x in r.refuted), str(r)
    assert "an address of x, which has 0 to 5" in str(r)


def test_a_result_in_a_larger_buffer_ends_with_the_buffer() -> None:
    lines = f"  t = cat(x, x, dim=0); {cut('y', 't', 3, 9)}"
    make = loop("i", 12, stored("make", "t", "i", "r0", ("x", "i%6")))
    assert ig.check.program(program(lines, make, t={"tensor": "t"}, y={"storage": "t", "offset": 3})).ok


@pytest.mark.parametrize("order", ["serial", "any"])
def test_one_statement_that_adds_to_nothing_is_refuted(order: str) -> None:
    lone = loop("i", 6, put("add", "y", "i", ("x", "i"), mode="add"), order=order)
    assert ig.check.program(program("  y = copy(x)", lone)).refuted
    start = loop("j", 6, put("start", "y", "j"))
    assert ig.check.program(program("  y = copy(x)", start, lone)).ok


@pytest.mark.parametrize("low", [-1.5, -1.0, -0.5, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_constant_of_few_elements_is_compared(n: int, low: float) -> None:
    """A number that shows at some of the inputs only."""
    for other in ("0.0", "2.0"):
        program = f'fusion "f" {{\n  x = input(shape=({n},), dtype="float32")\n  t = gt(x, {low})\n'
        program += "  y = where(t, x, 0.0)\n  output y\n}"
        body = loop("i", n, stored("k", "y", "i", f"where(r0 > {low}, r0, {other})", ("x", "i")))
        r = ig.check.program({"version": 1, "program": program, "body": [body]})
        assert bool(r.refuted) is (other == "2.0"), str(r)


def test_conditions_of_floats_are_no_integers_that_wrap() -> None:
    """The largest of the elements, as a minimum: infinity is another number, whatever conditions stand in between."""
    lines = "  t = gt(x, 0.5); y = amax(x, dims=(0,)); z = where(t, x, 0.0); output z"
    for step, wrong in (("max(r1, r0)", False), ("min(r1, r0)", True)):
        body = loop("k", 6, stored("step", "y", "0", step, ("x", "k"), ("y", "0")))
        other = loop("i", 6, stored("other", "z", "i", "where(r0 > 0.5, r0, 0.0)", ("x", "i")))
        r = ig.check.program(program(lines, stored("start", "y", "0", "-inf()"), body, other))
        assert bool(r.refuted) is wrong, str(r)
