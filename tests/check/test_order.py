"""What runs when decides what a read sees: programs that were once called proved, each refuted with what orders it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

import idgraph as ig
from idgraph.check import CheckError

CHAIN = """fusion "f" {
  x = input(shape=(4,), dtype="float32")
  b = exp(x)
  y = flip(b, dims=(0,))
  output y
}"""
FLIP = 'fusion "f" {\n  x = input(shape=(4,), dtype="float32")\n  y = flip(x, dims=(0,))\n  output y\n}'


def nest(name: str, to: str, of: str, index: str = "i", kernel: str = "") -> dict[str, Any]:
    write = {"buffer": to, "index": "i", "reads": [{"buffer": of, "index": index}]}
    return {"name": name, "loops": [["i", 4]], "writes": [write], "kernel": kernel}


def chain(middle: str = "b", kernel: str = "", *, late: bool = False) -> dict[str, Any]:
    nests = [nest("first", middle, "x", kernel=kernel), nest("second", "y", middle, "3 - i", kernel)]
    return {"version": 1, "program": CHAIN, "nests": nests[::-1] if late else nests}


@pytest.mark.parametrize("middle", ["b", "tmp"])
def test_nests_in_their_order_are_right(middle: str) -> None:
    r = ig.check.program(chain(middle))
    assert r.ok and r.decided, str(r)


@pytest.mark.parametrize("middle", ["b", "tmp"])
def test_a_reader_fused_with_its_writer_at_another_point_is_refuted(middle: str) -> None:
    r = ig.check.program(chain(middle, "fused"))
    (row,) = r.refuted
    found = row.counterexample
    assert found is not None and found.meant is not None
    assert f"first writes it at i={3 - found.point['i']}" in found.meant and "any order" in found.meant


def test_a_reader_fused_with_its_writer_at_the_same_point_is_right() -> None:
    data = chain(kernel="fused")
    data["program"] = CHAIN.replace("flip(b, dims=(0,))", "neg(b)")
    data["nests"][1]["writes"][0]["reads"][0]["index"] = "i"
    r = ig.check.program(data)
    assert r.ok and r.decided, str(r)


@pytest.mark.parametrize("middle", ["b", "tmp"])
def test_a_reader_before_its_writer_is_refuted(middle: str) -> None:
    r = ig.check.program(chain(middle, late=True))
    assert any("nothing has written before" in row.because for row in r.refuted), str(r)


@pytest.mark.parametrize("over", ["x", ""])
@pytest.mark.parametrize("kernel", ["", "k"])
def test_a_flip_in_place_is_refuted(over: str, kernel: str) -> None:
    y = {"tensor": "y", "strides": [1], "storage": "x", "after": "k", "over": over}
    data: dict[str, Any] = {
        "program": FLIP,
        "buffers": {"x": {}, "y": y},
        "nests": [nest("k", "y", "x", "3 - i", kernel)],
    }
    r = ig.check.program(data)
    assert r.refuted, str(r)
    if not kernel:
        found = r.refuted[0].counterexample
        assert found is not None and found.point == {"i": 2} and "wrote it at i=1" in str(found.read)


def test_an_update_in_place_at_its_own_point_is_right() -> None:
    y = {"tensor": "y", "strides": [1], "storage": "x", "after": "k", "over": "x"}
    data: dict[str, Any] = {
        "program": FLIP.replace("flip(x, dims=(0,))", "exp(x)"), "buffers": {"x": {}, "y": y},
        "nests": [nest("k", "y", "x")],
    }  # fmt: skip
    r = ig.check.program(data)
    assert r.ok and r.decided, str(r)


def test_an_argument_that_another_buffer_lies_over_is_gone() -> None:
    """``b`` lies over ``x``, and nobody says so: what ``second`` reads is judged by its address."""
    text = CHAIN.replace("flip(b, dims=(0,))", "flip(x, dims=(0,))")
    data: dict[str, Any] = {
        "program": text, "buffers": {"x": {}, "b": {"storage": "x", "after": "first"}},
        "nests": [nest("first", "b", "x"), nest("second", "y", "x", "3 - i")],
    }  # fmt: skip
    r = ig.check.program(data)
    assert any(row.node == "second" and "written as b" in row.because for row in r.refuted), str(r)


def test_an_output_that_nothing_writes_is_refuted() -> None:
    for nests in ([], [nest("first", "b", "x")]):
        r = ig.check.program({"program": CHAIN, "nests": nests})
        assert not r.ok and any("no nest writes" in row.because for row in r.refuted)
    assert not ig.check.CheckReport("f", ()).ok and not ig.check.CheckReport("f", ()).decided


@pytest.mark.parametrize(
    ("path", "key", "near"),
    [
        ([], "nest", "nests"), ([], "bufers", "buffers"), (["nests", 0], "kernal", "kernel"),
        (["nests", 0, "writes", 0], "Mode", "mode"), (["nests", 0, "writes", 0, "reads", 0], "whn", "when"),
    ],
)  # fmt: skip
def test_a_key_that_the_form_lacks_is_an_error_with_the_nearest(path: list[Any], key: str, near: str) -> None:
    data = copy.deepcopy(chain())
    at: Any = data
    for k in path:
        at = at[k]
    at[key] = "x"
    with pytest.raises(CheckError, match=key) as error:
        ig.check.program(data)
    assert repr(near) in str(error.value)


@pytest.mark.parametrize("version", [0, 2, "1", None, True])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(CheckError, match="version"):
        ig.check.program({**chain(), "version": version})


def test_a_fusion_at_other_points_is_refuted_in_captured_loops() -> None:
    torch: Any = pytest.importorskip("torch")
    from idgraph.check.decide import decide
    from idgraph.check.inductor_capture import Capture

    def fn(x: Any) -> Any:
        b = torch.sin(x)
        return b, b.flip(0) + 1

    capture = Capture(name="f")
    capture.run(fn, (torch.arange(8.0),))
    right = capture.lowered[0].after
    assert decide(right).ok
    fused = replace(right, nests=tuple(replace(n, kernel="fused") for n in right.nests))
    (row,) = decide(fused).refuted
    found = row.counterexample
    assert found is not None and found.point == {"p0": 0} and "p0=7" in str(found.meant)
