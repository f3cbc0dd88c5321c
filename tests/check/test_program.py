"""The neutral form: what is right is proved, each mistake is refuted with its point, bad input ends in an error."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.check import CheckError
from idgraph.check.decide import decide
from idgraph.check.program_json import read_program

ROTATE = """fusion "rotate" {
  x = input(shape=(4, 8), dtype="float32")
  a = slice(x, dims=(1,), starts=(4,), stops=(8,), steps=(1,))
  b = slice(x, dims=(1,), starts=(0,), stops=(4,), steps=(1,))
  y = cat(a, b, dim=1)
  z = add(x, y)
  output z
}"""


def rotate() -> dict[str, Any]:
    reads = [{"buffer": "x", "index": "i*8 + j"}, {"buffer": "x", "index": "i*8 + (j + 4)%8"}]
    write = {"buffer": "z", "index": "i*8 + j", "reads": reads}
    return {"program": ROTATE, "nests": [{"name": "k", "loops": [["i", 4], ["j", 8]], "writes": [write]}]}


def test_rotation_is_proved() -> None:
    r = ig.check.program(rotate())
    assert r.ok and r.decided and r.counts["proved"] == 2


def test_a_program_is_checked_without_the_frontends() -> None:
    """They, and what runs and schedules programs, took three times as long to load as all that a first check does."""
    code = (
        f"import sys; import idgraph as ig; assert ig.check.program({rotate()!r}).decided\n"
        "print([m for m in sys.modules if m.startswith(('idgraph.frontends', 'idgraph.schedule', 'idgraph.lower'))])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "[]\n"


def test_masked_halves_are_the_same_rotation() -> None:
    data = rotate()
    data["nests"][0]["writes"][0]["reads"] = [
        {"buffer": "x", "index": "8*i + j"},
        {"buffer": "x", "index": "8*i + j + 4", "when": "j < 4"},
        {"buffer": "x", "index": "8*i + j - 4", "when": "j >= 4"},
    ]
    assert ig.check.program(data).decided


@pytest.mark.parametrize(
    "index", ["i*8 + (j + 3)%8", "i*8 + (j + 4)%7", "i*8 + j + 4", "j*8 + i", "i*4 + (j + 4)%8", "i*8 + j"]
)
def test_each_wrong_formula_is_refuted_at_a_point_where_it_differs(index: str) -> None:
    data = rotate()
    data["nests"][0]["writes"][0]["reads"][1]["index"] = index
    r = ig.check.program(data)
    row = r.refuted[0]
    found = row.counterexample
    assert not r.ok and found is not None
    reach = {int(ig.simplify(index).evaluate({"i": i, "j": j})) for i in range(4) for j in range(8)}
    outside = [x for x in r.refuted if "outside of the memory" in x.because]  # a finding of its own
    assert len(outside) == (max(reach) > 31) and len(r.refuted) == 1 + len(outside)
    # the point is real: evaluated here, by Python itself, the sets of elements differ
    i, j = found.point["i"], found.point["j"]
    meant = {i * 8 + j, i * 8 + (j + 4) % 8}
    read = {i * 8 + j, int(ig.simplify(index).evaluate({"i": i, "j": j}))}
    assert meant != read


def test_a_reduction_is_a_multiset() -> None:
    text = 'fusion "f" {\n  x = input(shape=(4, 6), dtype="float32")\n  y = sum(x, dims=(1,))\n  output y\n}'
    write = {"buffer": "y", "index": "i", "reads": [{"buffer": "x", "index": "i*6 + r*2 + s"}]}
    nest = {"name": "k", "loops": [["i", 4]], "reduce": [["r", 3], ["s", 2]], "writes": [write]}
    data: dict[str, Any] = {"program": text, "nests": [nest]}
    assert ig.check.program(data).counts["proved"] == 2
    write["reads"] = [{"buffer": "x", "index": "i*6 + (r + s)%6"}]  # some twice, some never
    assert not ig.check.program(data).ok
    write["reads"] = [{"buffer": "x", "index": "i*6 + s*3 + r"}]  # another order of the same
    assert ig.check.program(data).decided
    nest["reduce"] = [["r", 3], ["s", 3]]
    write["reads"] = [{"buffer": "x", "index": "i*6 + (s*3 + r)%6"}]  # too long a range
    assert not ig.check.program(data).ok


def test_an_index_is_the_same_loaded_value_on_both_sides() -> None:
    text = """fusion "f" {
  x = input(shape=(9, 4), dtype="float32")
  i = input(shape=(5,), dtype="int64")
  y = index_select(x, i, dim=0)
  output y
}"""
    write = {
        "buffer": "y",
        "index": "a*4 + b",
        "reads": [{"buffer": "x", "index": "p*4 + b"}, {"buffer": "i", "index": "a"}],
    }
    nest: dict[str, Any] = {
        "name": "k", "loops": [["a", 5], ["b", 4]], "loads": {"v": {"buffer": "i", "index": "a"}},
        "places": {"p": {"value": "v", "size": 9}}, "writes": [write],
    }  # fmt: skip
    data: dict[str, Any] = {"program": text, "nests": [nest]}
    assert ig.check.program(data).counts["proved"] == 3
    nest["loads"]["v"]["index"] = "a*4//5"
    assert not ig.check.program(data).ok


def test_what_is_written_is_checked() -> None:
    data = rotate()
    data["nests"][0]["writes"][0]["index"] = "i*8 + j//2"
    assert any(r.counterexample for r in ig.check.program(data).refuted), str(ig.check.program(data))
    data["nests"][0]["writes"][0]["index"] = "i*8 + j + 1"
    assert any(
        r.counterexample and r.counterexample.written == "z[1] = z[0, 1]" for r in ig.check.program(data).refuted
    )
    data = rotate()
    data["nests"][0]["loops"][0][1] = 3
    assert any("nothing writes" in r.because for r in ig.check.program(data).refuted), str(ig.check.program(data))


def test_dynamic_sizes_are_proved_for_all() -> None:
    text = """fusion "f" {
  n = symbol(min=1)
  x = input(shape=(n, 8), dtype="float32")
  y = flip(x, dims=(1,))
  output y
}"""
    try:
        ig.parse(text)
    except ig.IdGraphError:
        f = ig.Fusion("f")
        f.output(ig.flip(f.input("x", shape=(f.symbol("n", min=1), 8)), dims=(1,)))
        f.outputs[0].name = "y"
        text = str(f)
    write = {"buffer": "y", "index": "i*8 + j", "reads": [{"buffer": "x", "index": "i*8 - j + 7"}]}
    data: dict[str, Any] = {
        "program": text, "symbols": {"n": {"min": 1}},
        "nests": [{"name": "k", "loops": [["i", "n"], ["j", 8]], "writes": [write]}],
    }  # fmt: skip
    assert ig.check.program(data).counts["proved"] == 2
    write["reads"] = [{"buffer": "x", "index": "i*8 - j + 6"}]
    assert not ig.check.program(data).ok


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["program"], "fusion {"), (["program"], 3), (["nests"], 3), (["nests", 0], []),
        (["nests", 0, "loops"], [["i"]]),
        (["nests", 0, "loops", 0], ["i", "j"]), (["nests", 0, "loops", 0], ["i", -4]), (["nests", 0, "name"], "a\nb"),
        (["nests", 0, "loops", 1], ["i", 4]), (["nests", 0, "writes", 0, "index"], "__import__('os')"),
        (["nests", 0, "writes", 0, "index"], "i*8 +"), (["nests", 0, "writes", 0, "index"], "q"),
        (["nests", 0, "writes", 0, "index"], 1.5), (["nests", 0, "writes", 0, "when"], "i"),
        (["nests", 0, "writes", 0, "mode"], "max"), (["nests", 0, "writes", 0, "reads"], [3]),
        (["nests", 0, "writes", 0, "index"], "(" * 3000), (["nests", 0, "writes", 0, "index"], "i < 3"),
        (["buffers"], {"z": {"tensor": "q"}}), (["buffers"], {"z": {"strides": [1]}}),
        (["symbols"], {"n": {"min": "a"}}),
        (["buffers"], {"z": {"strides": [-8, 1]}}), (["facts"], ["1 +"]),
    ],
)  # fmt: skip
def test_bad_input_ends_in_one_error(path: list[Any], value: object) -> None:
    data = copy.deepcopy(rotate())
    at: Any = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(CheckError):
        ig.check.program(data)
    with pytest.raises(CheckError):
        ig.check.program(json.dumps(data))


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"program": ' + "[" * 100_000, "no_such_file.json", '{"a": ' + "1" * 9999 + "}"]
)
def test_bad_text_ends_in_one_error(text: str) -> None:
    with pytest.raises(CheckError):
        ig.check.program(text)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(rotate()))
    assert ig.check.program(tmp_path / "p.json").ok
    assert json.loads(ig.check.program(tmp_path / "p.json").to_json())["counts"]["proved"] == 2


def test_loaded_values_are_made_of_their_place_alone() -> None:
    from idgraph.check.enumeration import spread

    a = spread(np.arange(1000), 3)
    assert np.array_equal(a, spread(np.arange(1000), 3)) and len(set(a.tolist())) == 1000


def test_padded_rows_of_any_size_are_decided_without_counting() -> None:
    """One loop over all elements of rows that are padded: the inverse of the address is found, no element counted."""
    for rows, columns in ((5, 3), (4096, 4095)):
        f = ig.Fusion("f")
        y = f.output(ig.exp(f.input("x", shape=(rows, columns))))
        reads = [{"buffer": "x", "index": "i"}]
        write = {"buffer": "out", "index": f"i + i//{columns}", "reads": reads}
        data: dict[str, Any] = {
            "program": str(f),
            "buffers": {"out": {"tensor": y.name, "strides": [columns + 1, 1]}},
            "nests": [{"name": "k", "loops": [["i", rows * columns]], "writes": [write]}],
        }
        r = ig.check.program(data)
        assert r.ok and {row.verdict for row in r.rows} == {"proved"}
        write["index"] = f"i + i//{columns + 1}"
        assert {row.verdict for row in ig.check.program(data).rows} != {"proved"}


def test_tiles_of_a_dynamic_length_are_proved_where_the_guard_leaves_no_element_out() -> None:
    program = 'fusion "f" {\n  symbol n min=1\n  x = input(shape=(`n`,), dtype="float32")\n  y = exp(x)\n  output y\n}'

    def judged(when: str) -> ig.check.CheckReport:
        write = {"buffer": "y", "index": "t*4 + i", "when": when, "reads": [{"buffer": "x", "index": "t*4 + i"}]}
        nest = {"name": "k", "loops": [["t", "(n + 3)//4"], ["i", 4]], "writes": [write]}
        return ig.check.program({"program": program, "symbols": {"n": {"min": 1}}, "nests": [nest]})

    assert {row.verdict for row in judged("t*4 + i < n").rows} == {"proved"}
    assert not judged("t*4 + 4 <= n").decided and not judged("t*4 + i <= n").decided


@pytest.mark.parametrize("when", ["v > 0", "v >= 0", "v > -5000", "v < 100000", "w > 0"])
def test_a_read_that_a_loaded_value_limits_is_not_called_right(when: str) -> None:
    """Values that are made up may all satisfy the condition; those of an argument need not."""
    loads = {"v": {"buffer": "k", "index": "i"}, "w": {"text": "floor(x * 0.5)"}}
    reads = [{"buffer": "x", "index": "3 - i", "when": when}, {"buffer": "k", "index": "i"}]
    nest = {"name": "n", "loops": [["i", 4]], "loads": loads, "writes": [{"buffer": "y", "index": "i", "reads": reads}]}
    p = "\n".join((
        'fusion "f" {', '  x = input(shape=(4,), dtype="float32")', '  k = input(shape=(4,), dtype="int64")',
        "  z = flip(x, dims=(0,))", "  y = add(z, k)", "  output y", "}",
    ))  # fmt: skip
    assert not ig.check.program({"program": p, "nests": [nest]}).decided
    del reads[0]["when"]
    assert ig.check.program({"program": p, "nests": [nest]}).decided


def test_parts_of_no_dynamic_size_are_counted() -> None:
    """Two nests store a result of two elements, of a program whose sizes are dynamic, and have a remainder."""
    program = """fusion "f" {
  symbol n min=2
  symbol k
  x = input(shape=(`n`,), dtype="float32")
  a = sum(x, dims=(0,), keepdim=true)
  b = add(a, 1.0)
  y = cat(a, b, dim=0)
  output y
}"""
    reads = [{"buffer": "s", "index": "0"}]
    nests: list[Any] = [
        {"name": "s", "reduce": [["i", "n"]], "writes": [
            {"buffer": "s", "index": "0", "reads": [{"buffer": "x", "index": "i"}]}]},
        {"name": "first", "loops": [["j", 1]], "writes": [{"buffer": "y", "index": "j*j", "reads": reads}]},
        {"name": "second", "loops": [["j", 2]], "writes": [
            {"buffer": "y", "index": "j*j", "when": "j*j > 0", "reads": reads}]},
    ]  # fmt: skip
    data = {
        "program": program, "nests": nests, "buffers": {"s": {"tensor": "a"}}, "symbols": {"n": {"min": 2}, "k": {}},
        "facts": ["k % 19 == 18", "n % 13 == 11"],
    }  # fmt: skip
    r = decide(read_program(data))
    assert r.ok and r.decided, str(r)
    nests[2]["writes"][0]["when"] = "j*j < 1"
    assert not decide(read_program(data)).decided


@pytest.mark.parametrize(
    ("index", "when", "told"),
    [
        ("i*1000 + j", "(i != 617) | (j != 77)", "1 of 2000000 elements are not written"),
        ("(i*1000 + j) % 1999999", "True", "an element is written twice"),
    ],
)
def test_one_wrong_write_of_many_points_is_counted_again(index: str, when: str, told: str) -> None:
    """More points than plain Python goes over: those at the address are found by halves."""
    text = 'fusion "f" {\n  x = input(shape=(2000, 1000), dtype="float32")\n  y = exp(x)\n  output y\n}'
    write = {"buffer": "y", "index": index, "when": when, "reads": [{"buffer": "x", "index": "i*1000 + j"}]}
    nest = {"name": "k", "loops": [["i", 2000], ["j", 1000]], "writes": [write]}
    found = ig.check.program({"program": text, "nests": [nest]})
    assert any(told in r.because for r in found.refuted), str(found)
