"""Limits of what is read: each is held to its number, told by name, and can be raised."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.frontends.graph_json import parse_program
from idgraph.frontends.import_ import from_json
from idgraph.ir import parser as parsing

TEXT = """fusion f {
  symbol n
  t0 = input(shape=(`n*(n + 2) + 1`, 3, 4))
  t1 = mul(t0, 2.0)
  t2 = add(t1, t0)
  output t2
  schedule t2 split(2, 2)
}
"""


@pytest.mark.parametrize(
    ("limit", "most", "told"),
    [
        ("bytes", len(TEXT), f"the text has {len(TEXT)} bytes"),
        ("nodes", 3, "the text has 3 nodes"),
        ("terms", 5, "the expression in line 3 has 5 terms"),
        ("rank", 3, "input t0 has 3 axes"),
        ("loops", 4, "t2 has 4 loops"),
    ],
)
def test_a_text_at_its_limit_is_read_and_one_beyond_is_not(limit: str, most: int, told: str) -> None:
    assert len(ig.parse(TEXT, limits=ig.Limits(**{limit: most})).exprs) == 2
    with pytest.raises(ig.ParseError) as caught:
        ig.parse(TEXT, limits=ig.Limits(**{limit: most - 1}))
    assert told in str(caught.value) and f"Limits({limit}=...)" in caught.value.hint


LONG = {  # a text far beyond a limit, and what is told
    "nodes": ("".join(f"t{n} = neg(t{n - 1})\n" for n in range(1, 150_000)), "the text has 150000 nodes"),
    "terms": (
        f"t1 = input(shape=(`{'+'.join(f'n%{n}' for n in range(2, 50_000))}`,))\n",
        "line 4: .* has 149993 terms",
    ),
    "entries": ("t1 = reshape(t0, shape=(" + "1, " * 1_000_000 + "))\n", "line 4: a tuple has 10001 entries"),
    "arguments": ("t1 = cat(" + "t0, " * 1_000_000 + "dim=0)\n", "line 4: a call has 10001 arguments"),
    "nesting": ("t1 = reshape(t0, shape=" + "(" * 1_000_000 + "\n", "line 4: tuples are nested"),
    "symbols": ("symbol n\n" * 150_000, "the text has 150001 symbols"),
    "outputs": ("output t0\n" * 150_000, "the text has 150001 outputs"),
    "loops": ("t1 = neg(t0)\n" + "schedule t1 split(0, 1)\n" * 100_000, "line 1004: t1 has 1001 loops"),
    "steps": ("t1 = neg(t0)\n" + "schedule t1 reorder(())\n" * 100_000, "line 1005: the schedule of t1 has 1001 steps"),
    "an open string": ('"' + "a" * 15_000_000 + "\n", "line 4: unexpected character"),
    "a long name": ("a" * 15_000_000 + "\n", "line 4: expected a name, not 15000000 characters, found 'a{40}'"),
    "an expression's nesting": (f"t1 = input(shape=(`{'(' * 400_000}`,))\n", "line 4: cannot read expression: nested"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("limit", LONG)
def test_far_beyond_a_limit_little_is_made(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is refused before what it says is made: by counts, at most twice what the limit allows."""
    made: dict[str, int] = dict.fromkeys(("apply", "parse_in", "_Token"), 0)

    def counted(name: str) -> Callable[..., Any]:
        found = getattr(parsing, name)

        def call(*args: Any) -> Any:
            made[name] += 1
            return found(*args)

        return call

    for name in made:
        monkeypatch.setattr(parsing, name, counted(name))
    lines, told = LONG[limit]
    began = time.process_time()
    with pytest.raises(ig.ParseError, match=f"^{told}"):
        ig.parse("fusion f {\nsymbol n\nt0 = input(shape=(4,))\n" + lines + "output t0\n}\n")
    assert made["apply"] == (limit in ("loops", "steps")) and made["parse_in"] <= (limit == "an expression's nesting")
    assert made["_Token"] < 100_000
    assert time.process_time() - began < 3  # each takes about 0.1 s; a text of 150 000 operations took 5


def test_empty_lines_are_one_token() -> None:
    tokens = list(parsing._tokens("a\n" + "\n # no\n\t\n" * 100_000 + "b"))  # pyright: ignore[reportPrivateUsage]
    assert [(t.kind, t.text, t.line) for t in tokens] == [
        ("word", "a", 1), ("newline", "\n", 1), ("word", "b", 300_002), ("end", "", 300_002),
    ]  # fmt: skip


BLANK = {
    "lines": "\n", "lines of two characters": "\r\n", "spaces": " ", "lines of spaces": "  \n", "comments": "#\n",
    "one comment": "# it goes on",
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("of", BLANK)
def test_megabytes_of_nothing_take_little(of: str) -> None:
    """16 million empty lines took 1.2 to 1.8 s, and 3 s where the error then looked for its line."""
    nothing = BLANK[of] * (15_000_000 // len(BLANK[of]))
    began = time.thread_time()
    assert not ig.parse("fusion f {" + nothing + "\n}").tensors
    with pytest.raises(ig.ParseError, match="expected 'fusion', found the end of the text"):
        ig.parse(nothing)
    assert time.thread_time() - began < 1.5


def test_bytes_are_those_of_the_encoded_text() -> None:
    text = "fusion f { # " + "\u00e4" * 20 + "\n}"
    ig.parse(text, limits=ig.Limits(bytes=len(text.encode())))
    with pytest.raises(ig.ParseError, match="bytes"):
        ig.parse(text, limits=ig.Limits(bytes=len(text)))


def test_the_rank_of_what_operations_make_counts_too() -> None:
    text = "fusion f {\n t0 = input(shape=(4, 4))\n t1 = unsqueeze(t0, dims=(0, 1))\n output t1\n}"
    assert ig.parse(text).outputs[0].ndim == 4
    with pytest.raises(ig.ParseError, match="t1 has 4 axes, at most 3"):
        ig.parse(text, limits=ig.Limits(rank=3))


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "9", None])
def test_limits_are_positive_numbers(wrong: object) -> None:
    with pytest.raises(ig.ParseError, match="limits: rank is"):
        ig.Limits(rank=wrong)  # type: ignore[arg-type]
    with pytest.raises(ig.ParseError, match="limits is"):
        ig.parse(TEXT, limits=wrong)  # type: ignore[arg-type]


def graph(nodes: int, rank: int) -> bytes:
    """A captured graph with placeholders of this rank."""
    out = {"shape": [1] * rank, "stride": [1] * rank, "dtype": "float32"}
    rows: list[dict[str, object]] = [
        {"name": f"p{n}", "op": "placeholder", "target": f"p{n}", "args": [], "kwargs": {}, "out": out}
        for n in range(nodes - 1)
    ]
    last: dict[str, object] = {
        "name": "output",
        "op": "output",
        "target": "output",
        "args": [[{"ref": "p0"}]],
        "kwargs": {},
        "out": None,
    }
    return json.dumps({"nodes": [*rows, last]}).encode()


def test_limits_of_captured_graphs(tmp_path: Path) -> None:
    data = graph(4, 70)
    with pytest.raises(ig.ParseError, match="node 'p0' has 70 axes, at most 64"):
        parse_program(data)
    assert len(parse_program(data, limits=ig.Limits(rank=70)).nodes) == 3
    with pytest.raises(ig.ParseError, match="the graph has 4 nodes, at most 3"):
        parse_program(data, limits=ig.Limits(rank=70, nodes=3))
    file = tmp_path / "graph.json"
    file.write_bytes(graph(3, 2))
    from_json(file, limits=ig.Limits(bytes=len(graph(3, 2)), nodes=3, rank=2))
    for limits in (ig.Limits(bytes=len(graph(3, 2)) - 1), ig.Limits(nodes=2), ig.Limits(rank=1)):
        with pytest.raises(ig.ParseError):
            from_json(file, limits=limits)


@pytest.mark.parametrize("most", [0, -1, True, 2**63, 10**5000], ids=["0", "-1", "true", "64 bits", "long"])
def test_a_limit_is_a_positive_number_of_63_bits(most: int) -> None:
    with pytest.raises(ig.ParseError, match=r"limits: rank is .*, not a positive number of 63 bits"):
        ig.Limits(rank=most)
    assert "9223372036854775807" in repr(ig.Limits(rank=2**63 - 1))
