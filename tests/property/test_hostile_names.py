"""Names are data: with hostile names every text the library writes has the structure that it has with plain ones."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.cost.report import FORMULA, csv_text, csv_value
from idgraph.reports import metrics
from idgraph.viz.explorer import script
from tests.property.budget import examples

PIECES = (  # quotes, markup, words of several languages, letters of two directions
    "'", '"', '"""', "\\", "\\n", "{", "}", "{x}", "%s", "$(id)", "`id`", "<b>", "</script>",
    "<script>alert(1)</script>", "&lt;", "]]>", "-->", "*/", "//", "# ", "];", "--", "; drop", "|", "=1+1", "@x",
    "lambda", "import os", "buf0", "i0", "t0", "kernel0", "cuda", "__import__('os')", "range", "None", "../x",
    "/etc/passwd", "[bold]", "[/]", "+1", "-1", "'=1", "\uff1d1", "\u05d0", "\u00e9", " ", "a", "\U0001f600",
)  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
TARGETS = ("python", "numpy", "cpu", "cuda")


def built(names: list[str]) -> ig.Fusion:
    """A rotation with a residual, a gather and a sum, under these names."""
    f = ig.Fusion(names[0])
    x = f.input(names[1], shape=(64,))
    i = f.input(names[2], shape=(8,), dtype="int64")
    y = ig.cat([x[32:], x[:32]], dim=0, name=names[3])
    f.output(ig.add(x, y, name=names[4]), ig.index_select(y, 0, i, name=names[5]), ig.sum(x, 0, name=names[6]))
    return f


PLAIN = built([f"n{k}" for k in range(7)])


def code(source: str) -> str:
    """A Python source without its comments."""
    return ast.dump(ast.parse(source))


class Tags(HTMLParser):
    """The tags of a page, with the names of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[object] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, tuple(sorted(a for a, _ in attrs))))

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(tag)


def tags(svg: str) -> list[tuple[str, tuple[str, ...]]]:
    """Elements and names of their attributes, but for runs of text, which are cut where a line is full."""
    return [(e.tag, tuple(sorted(e.attrib))) for e in ET.fromstring(svg).iter() if not e.tag.endswith("tspan")]


def dot_structure(dot: str) -> str:
    """A DOT text whose quoted strings are empty."""
    return re.sub(r"\s+", " ", re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot))


LONG = built([f"{'long' * 20}{k}" for k in range(7)])  # long names are folded on a page, behind a button


# Of the plain names, once for all examples, and by the worker that has the test.


@cache
def plain_code(target: Any) -> tuple[str, int]:
    """The code and the number of lines of its program."""
    source = ig.emit(PLAIN, target=target).source
    return code(source), len(source.splitlines())


@cache
def plain_tags() -> set[object]:
    """Elements of the picture of its graph."""
    return set(tags(ig.IdModel(PLAIN).exact.to_svg()))


@cache
def known_tags() -> set[object]:
    """Elements of pages of short names and of long ones."""
    return {x for f in (PLAIN, LONG) for x in Tags(ig.report(f).to_html()).seen}


@dataclass(frozen=True)
class Shown:
    """What is shown of a fusion: the explorer's data and page, numbers of lines, and the last access's picture."""

    data: Any
    page: list[object]
    lines: tuple[int, int]
    picture: set[object]
    cost: str

    @classmethod
    def of(cls, f: ig.Fusion) -> Shown:
        explorer, program, last = ig.viz.explore(f), ig.emit(f, target="cuda"), ig.IdModel(f)
        picture = last.access(f.exprs[-1], f.outputs[-1]).picture().to_svg()
        return cls(
            explorer.data, Tags(explorer.to_html().replace(script(), "")).seen,
            (len(shown(f.show)), len(shown(program.show))), set(tags(picture)), ig.cost(program).to_json(),
        )  # fmt: skip


@cache
def plain_shown() -> Shown:
    """Of the plain names."""
    return Shown.of(PLAIN)


@settings(max_examples=examples(25), phases=(Phase.explicit, Phase.generate))
@given(st.lists(NAMES, min_size=7, max_size=7, unique=True))
def test_structure_does_not_depend_on_names(names: list[str]) -> None:
    f = built(names)
    assert str(ig.parse(str(f))) == str(f)
    for target in TARGETS:
        hostile = ig.emit(f, target=target).source
        assert (code(hostile), len(hostile.splitlines())) == plain_code(target)
    assert set(tags(ig.IdModel(f).exact.to_svg())) == plain_tags()
    assert dot_structure(f.to_dot()) == dot_structure(PLAIN.to_dot())
    assert set(Tags(ig.report(f).to_html()).seen) <= known_tags()


def shape_of(data: Any, names: dict[str, str]) -> object:
    """JSON whose texts are empty but for names that it knows: those of a plain fusion."""
    if isinstance(data, dict):
        return {names.get(k, k): shape_of(v, names) for k, v in cast("dict[str, Any]", data).items()}
    return [shape_of(x, names) for x in cast("list[Any]", data)] if isinstance(data, list) else type(data).__name__


def shown(what: Any) -> list[str]:
    """The lines that ``what`` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        what()
    return out.getvalue().splitlines()


@settings(max_examples=6, phases=(Phase.explicit, Phase.generate), deadline=None)
@given(st.lists(NAMES, min_size=7, max_size=7, unique=True))
def test_pages_tables_and_lines_do_not_depend_on_names(names: list[str]) -> None:
    f = built(names)
    known = dict(zip(names, (f"n{k}" for k in range(7)), strict=True))
    hostile, plain = Shown.of(f), plain_shown()
    rows, kept = (json.dumps(x.data["ops"]) for x in (hostile, plain))
    assert [o["name"] for o in json.loads(rows)] == [names[int(o["name"][1:])] if o["name"][0] == "n" else o["name"]
                                                     for o in json.loads(kept)]  # fmt: skip
    for part in ("ops", "loops", "kernels", "passes"):
        assert shape_of(hostile.data[part], known) == shape_of(plain.data[part], {}), part
    assert hostile.page == plain.page
    assert hostile.lines == plain.lines
    assert json.loads(hostile.cost)["name"] == names[0]
    assert hostile.picture == plain.picture


@settings(max_examples=200)
@given(st.lists(NAMES | st.sampled_from(["-1.5", "'", "''=", "=", "+", "-", "@SUM(A1)", "-1+cmd|' /C calc'!A0"])))
def test_no_cell_is_a_formula_and_each_is_read_back(names: list[str]) -> None:
    read = list(csv.reader(io.StringIO(csv_text(["a"], [{"a": n} for n in names]))))[1:]
    for (cell,), name in zip(read, names, strict=True):
        assert csv_value(cell) == name
        assert cell[:1] not in FORMULA - {"'"} or re.fullmatch(r"[-+][0-9.]+", cell)


def test_rows_of_a_hostile_model_are_replaced(tmp_path: Path) -> None:
    f = built(["=1+1", "@x", "+y", "-z", "=a", "=b", "=c"])
    for _ in range(2):
        metrics(f, target="python", auto=False).to_csv(tmp_path)
    with (tmp_path / "models.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["model"] == "'=1+1"


SYMBOLS = (
    "lambda", "range", "None", "true", "none", "fusion", "symbol", "input", "output", "schedule", "self", "np", "u64",
    "f32", "maximum", "cuda", "int", "__import__", "_", "t0", "buf0", "kernel0", "first_block", "threadIdx", "con",
    "mod", "xor_", "x" * 200, "half", "print", "N",
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", SYMBOLS)
def test_a_symbol_may_have_any_name_that_is_not_one_of_the_texts_own(name: str) -> None:
    f = ig.Fusion("f")
    n = f.symbol(name, min=1)
    x = f.input("x", shape=(n, 4))
    f.output(ig.reshape(ig.cat([x[1:], x[:1]], 0), -1) + ig.flatten(ig.flip(x, 1)))
    assert str(ig.parse(str(f))) == str(f)
    given = np.arange(20, dtype=np.float32).reshape(5, 4)
    expected = (np.concatenate([given[1:], given[:1]]) + given[:, ::-1]).reshape(-1)
    for target in ("python", "numpy"):
        (found,) = ig.emit(f, target=target).run({"x": given}, {name: 5}).values()
        assert np.array_equal(found, expected)
    for target in ("cpu", "cuda"):
        ast.parse(ig.emit(f, target=target).source)


@pytest.mark.parametrize(
    "name", ["True", "False", "xor", "ceildiv", "floordiv", "inf", "nan", "min", "and", "i7", "ld0"]
)
def test_words_of_expressions_are_no_symbols(name: str) -> None:
    f = ig.Fusion("f")
    with pytest.raises(ig.OperationError, match="not a name for a symbol"):
        f.symbol(name, min=1)
    assert str(f) == str(ig.Fusion("f"))


def test_the_comparison_can_fail() -> None:
    assert code("x = 1") != code("x = 1; y = 2")
    assert tags("<svg><g/></svg>") != tags('<svg><g onload="x"/></svg>')
    assert dot_structure('a [label="x"]; b') != dot_structure('a [label="x"]')


@pytest.mark.parametrize(
    "name", ["a\nb", "a\rb", "a\u2028b", "a\u202eb", "a\u200bb", "\x1b[31m", "", "a" * 201, "\ud800"]
)
def test_names_that_change_lines_or_direction_are_refused(name: str) -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(2,))

    def renamed() -> None:
        t.name = name

    def fusion_renamed() -> None:
        f.name = name

    builds = (lambda: f.input(name, shape=(2,)), lambda: ig.Fusion(name), lambda: f.symbol(name))
    for build in (*builds, renamed, fusion_renamed):
        with pytest.raises(ig.IdGraphError) as caught:
            build()
        assert all(line.isprintable() for line in str(caught.value).split("\n"))
    assert (f.name, t.name) == ("f", "t")
