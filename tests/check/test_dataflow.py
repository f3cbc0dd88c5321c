"""What each address holds when it is read: memory laid over other memory, lost outputs, reductions in place."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from idgraph.check import CheckError


def fusion(*lines: str, outputs: str = "y", shape: str = "(4,)") -> str:
    return "\n".join(
        [f'fusion "f" {{\n  x = input(shape={shape}, dtype="float32")', *lines, f"  output {outputs}", "}"]
    )


def nest(name: str, to: str, of: str, index: str = "i", kernel: str = "", at: str = "i") -> dict[str, Any]:
    write = {"buffer": to, "index": at, "reads": [{"buffer": of, "index": index}]}
    return {"name": name, "loops": [["i", 4]], "writes": [write], "kernel": kernel}


def wrong(data: dict[str, Any]) -> ig.check.CheckReport:
    """Refuted, and some run on numbers is wrong."""
    r = ig.check.program(data)
    assert r.refuted and not r.ok, str(r)
    assert not all(ig.check.interpret(data, seed=s).right for s in range(8))
    return r


def right(data: dict[str, Any]) -> None:
    r = ig.check.program(data)
    assert r.ok and r.decided, str(r)
    assert all(ig.check.interpret(data, seed=s).right for s in range(8))


BOTH = ("  b = exp(x)", "  y = flip(x, dims=(0,))")


@pytest.mark.parametrize("over", [{"over": "x"}, {}])
@pytest.mark.parametrize("after", [{"after": "first"}, {}])
def test_what_lies_over_an_argument_is_seen_by_its_addresses(over: dict[str, str], after: dict[str, str]) -> None:
    data: dict[str, Any] = {
        "program": fusion(*BOTH), "buffers": {"b": {"storage": "x", **over, **after}},
        "nests": [nest("first", "b", "x"), nest("second", "y", "x", "3 - i")],
    }  # fmt: skip
    if over and after:  # the checker knows then that x is gone: it means nothing that is stored
        assert not ig.check.program(data).decided
    else:
        assert not ig.check.program(data).decided or wrong(data)
    data["nests"].reverse()  # x is read first, so that its memory is free
    right(data)


def test_an_output_that_is_overwritten_is_refuted() -> None:
    data: dict[str, Any] = {
        "program": fusion("  y = exp(x)", "  z = flip(x, dims=(0,))", "  output y", outputs="z"),
        "buffers": {"z": {"storage": "y", "after": "second"}},
        "nests": [nest("first", "y", "x"), nest("second", "z", "x", "3 - i")],
    }  # fmt: skip
    assert any("overwrites the output y" in row.because for row in wrong(data).refuted)
    data["buffers"]["z"]["offset"] = 4  # beside it
    data["nests"][1]["writes"][0]["index"] = "i + 4"
    right(data)


def test_writes_whose_order_nothing_says_are_refuted() -> None:
    """``y`` lies over ``b``, and another point of the one loop writes each address as ``b``."""
    data: dict[str, Any] = {
        "program": fusion("  b = exp(x)", "  c = exp(x)", "  y = flip(c, dims=(0,))"),
        "buffers": {"y": {"storage": "b", "after": "second"}},
        "nests": [nest("first", "b", "x", kernel="k"), nest("second", "y", "x", kernel="k", at="3 - i")],
    }  # fmt: skip
    assert any("run in any order" in row.because for row in wrong(data).refuted)
    for n in data["nests"]:
        n["kernel"] = ""
    assert ig.check.program(data).ok


def test_a_buffer_is_not_what_lay_there_before_it_is_written() -> None:
    data: dict[str, Any] = {
        "program": fusion("  b = exp(x)", "  y = flip(b, dims=(0,))"),
        "buffers": {"b": {"storage": "x", "after": "first"}},
        "nests": [nest("second", "y", "b", "3 - i"), nest("first", "b", "x")],
    }  # fmt: skip
    assert "first writes later" in str(wrong(data))
    data["nests"].reverse()
    right(data)


def test_a_buffer_that_no_nest_writes_is_not_the_argument_under_it() -> None:
    data: dict[str, Any] = {
        "program": fusion("  b = exp(x)", "  y = flip(b, dims=(0,))"), "buffers": {"b": {"storage": "x"}},
        "nests": [nest("second", "y", "b", "3 - i")],
    }  # fmt: skip
    wrong(data)


@pytest.mark.parametrize("kernel", ["", "k"])
def test_a_reduction_in_place_over_what_it_still_reads(kernel: str) -> None:
    """Sums of the columns, laid over the first row: each point reads a column, and only its own address is lost."""
    write = {"buffer": "y", "index": "i", "reads": [{"buffer": "x", "index": "i + r*3"}]}
    data: dict[str, Any] = {
        "program": fusion("  y = sum(x, dims=(0,))", shape="(4, 3)"),
        "buffers": {"y": {"storage": "x", "after": "k", "over": "x"}},
        "nests": [{"name": "k", "loops": [["i", 3]], "reduce": [["r", 4]], "writes": [write], "kernel": kernel}],
    }
    right(data)
    data["program"] = fusion("  y = sum(x, dims=(1,))", shape="(4, 3)")  # of rows: a point's result lies in another's
    data["nests"][0] |= {"loops": [["i", 4]], "reduce": [["r", 3]]}
    write["reads"] = [{"buffer": "x", "index": "i*3 + r"}]
    if kernel:
        wrong(data)
    else:
        right(data)  # row 0 is read before its address is written, and so on


def test_memory_without_a_tensor_that_two_nests_use_is_never_taken_as_right() -> None:
    data: dict[str, Any] = {
        "program": fusion("  b = exp(x)", "  y = flip(b, dims=(0,))", "  c = exp(y)", "  z = exp(c)", outputs="z"),
        "nests": [
            nest("a", "tmp", "x"), nest("b", "y", "tmp", "3 - i"),
            nest("c", "tmp", "y", "3 - i"), nest("d", "z", "tmp"),
        ],
    }  # fmt: skip
    r = ig.check.program(data)
    assert not (r.ok and r.decided)


@pytest.mark.parametrize("bad", [{"order": ["first"]}, {"order": ["first", "first", "second"]}])
def test_each_nest_stands_in_the_order_once(bad: dict[str, Any]) -> None:
    data = {"program": fusion(*BOTH), "nests": [nest("first", "b", "x"), nest("second", "y", "x", "3 - i")], **bad}
    with pytest.raises(CheckError, match="order"):
        ig.check.program(data)


def test_the_nests_of_one_kernel_stand_together() -> None:
    nests = [nest("a", "b", "x", kernel="k"), nest("b", "tmp", "x"), nest("c", "y", "x", "3 - i", kernel="k")]
    with pytest.raises(CheckError, match="together"):
        ig.check.program({"program": fusion(*BOTH), "nests": nests})


def test_after_names_a_nest_or_a_call() -> None:
    data = {
        "program": fusion(*BOTH),
        "buffers": {"y": {"after": "secnd"}},
        "nests": [nest("second", "y", "x", "3 - i")],
    }
    with pytest.raises(CheckError, match="secnd"):
        ig.check.program(data)


def test_large_memory_is_not_followed_address_by_address() -> None:
    data: dict[str, Any] = {
        "program": fusion("  y = cumsum(x, dim=0)", shape="(9000000,)"),
        "nests": [nest("run", "y", "x")],
    }  # fmt: skip
    data["nests"][0]["loops"] = [["i", 9_000_000]]
    data["nests"][0]["writes"][0]["reads"].append({"buffer": "y", "index": "i - 1", "when": "i > 0"})
    r = ig.check.program(data)
    assert r.ok and not r.decided and "too many" in str(r)
