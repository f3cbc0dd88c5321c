"""Display in notebooks: pictures as SVG, tables as HTML, text for everybody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import idgraph as ig
from idgraph import viz
from idgraph.display import Sheet, Shown
from idgraph.viz.notebook import sheet_html
from tests.viz.cases import rotation

GRAPH = Path(__file__).parents[1] / "frontends" / "graphs" / "sort_gather.core.json"


def first_read() -> ig.Access:
    f = rotation()
    return ig.IdModel(f).read(f.exprs[0], 0)


def decided() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    f.output(ig.gather(ig.exp(x), 1, i))
    ig.schedule.auto(f)
    return f


PICTURES: dict[str, Callable[[], object]] = {
    "fusion": rotation,
    "exact graph": lambda: ig.IdModel(rotation()).exact,
    "index graph": lambda: ig.IdModel(rotation()).index,
    "cycle": lambda: ig.IdModel(rotation()).exact.cycles()[0],
    "explanation": lambda: (g := ig.IdModel(rotation()).exact).explain(*g.groups[0].keys[:2]),
    "picture": lambda: viz.picture(rotation()),
}
TABLES: dict[str, Callable[[], object]] = {
    "index map": lambda: ig.IdModel(f := rotation()).index_map(f.exprs[0]),
    "access": first_read,
    "report": lambda: ig.report(rotation()),
    "validation": lambda: ig.validate(rotation(), target="python"),
    "proof": lambda: ig.prove_equal("(i*32 + j)//32", "i", {"i": 4, "j": 32}),
    "counterexample": lambda: ig.prove_equal("(i + 32)%64", "i", {"i": 64}),
    "unknown": lambda: ig.prove_equal("a*a*b", "a*b*b"),
    "import": lambda: ig.frontends.fx.from_json(GRAPH),
    "tensor": lambda: rotation()["t3"],
    "operation": lambda: rotation().exprs[0],
    "model": lambda: ig.IdModel(rotation()),
    "expression": lambda: first_read().address,
    "program": lambda: ig.emit(rotation(), target="python"),
    "kernel": lambda: ig.emit(rotation(), target="python").kernels[0],
    "plan": lambda: ig.emit(rotation(), target="python").plan,
    "decisions": lambda: ig.emit(rotation(), target="python").report,
    "decision": lambda: decided().decisions[0],
    "coverage": lambda: ig.frontends.fx.from_json(GRAPH).coverage,
}


def formatted(what: object, kind: str) -> str | None:
    """The data that a front end that follows IPython gets."""
    return getattr(what, f"_repr_{kind}_")()


class Balanced(HTMLParser):
    """Every tag is closed, in order; collects the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name: str) -> None:
    what = PICTURES[name]()
    assert formatted(what, "svg") == viz.to_svg(what)
    assert formatted(what, "html") is None


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    what = TABLES[name]()
    shown = formatted(what, "html")
    assert shown is not None
    assert formatted(what, "svg") is None
    assert "".join(Balanced(shown).text).strip()
    assert "<script" not in shown


def test_what_a_table_says() -> None:
    text = " ".join(Balanced(formatted(first_read(), "html") or "").text)
    assert "i0 - 32" in text and "reads" in text
    told = " ".join(Balanced(formatted(ig.prove_equal("i", "i + 1", {"i": 4}), "html") or "").text)
    assert "fails at i=0" in told


def test_a_failed_check_shows_its_counterexample_in_red() -> None:
    from idgraph.validate import AddressMismatch, AddressReport

    bad = AddressMismatch("wrong element", "t1 = <b>", "t0", 0, {"i0": 3}, (3,), 3, 35, 3, 35, ("t1.I2 = i0",))
    report = ig.Report("f<i>", "cpu", 0, AddressReport(bad, 1, 1, "numpy", 0.1), None)
    for what in (bad, report):
        shown = formatted(what, "html") or ""
        assert "#d1242f" in shown and "<b>" not in shown and "<i>" not in shown
        assert "wrong element" in " ".join(Balanced(shown).text)


def test_hostile_text_is_escaped() -> None:
    evil = '<img src=x onerror="alert(1)">&\x00'
    shown = sheet_html(Sheet(evil, (evil,), ((evil,),), (evil,), good=True))
    assert "<img" not in shown and "\x00" not in shown
    Balanced(shown)


def test_text_is_everybody_elses() -> None:
    printed: list[str] = []

    class Printer:
        def text(self, text: str, /) -> None:
            printed.append(text)

    a = first_read()
    a._repr_pretty_(Printer(), False)  # pyright: ignore[reportPrivateUsage]
    assert printed == [str(a)]


def test_nothing_is_shown_of_what_has_no_form() -> None:
    assert (formatted(Shown(), "svg"), formatted(Shown(), "html")) == (None, None)
    assert viz.notebook.svg_of(3) is None


def test_importing_loads_no_ipython() -> None:
    code = (
        "import sys, idgraph.viz; "
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'IPython', 'graphviz', 'networkx', 'sympy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_inside_ipython_each_has_one_rich_form_and_text() -> None:
    pytest.importorskip("IPython")
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
from tests.viz.test_notebook import PICTURES, TABLES
for kind, cases in (("image/svg+xml", PICTURES), ("text/html", TABLES)):
    for name, make in cases.items():
        data, _ = shell.display_formatter.format(make())
        assert sorted(data) == sorted([kind, "text/plain"]), (name, sorted(data))
        assert data["text/plain"].strip(), name
print("all")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["all"], done.stderr


def test_a_cell_is_called_a_cell() -> None:
    # The kernel runs a cell from a file of its own, whose number says nothing to a reader.
    names: dict[str, ig.Fusion] = {}
    source = "import idgraph as ig\nf = ig.Fusion('f')\nf.input('t', (4,))"
    exec(compile(source, "/tmp/ipykernel_7/1234.py", "exec"), names)
    t = names["f"].tensors[0]
    assert t.source_line is not None
    assert (t.source_line.file, t.source_line.line) == ("cell", 3)


def test_hostile_names_are_text_in_every_table() -> None:
    f = ig.Fusion("<script>fusion")
    x = f.input("<script>x", shape=(8, 4))
    t = f.output(ig.exp(x, name="<script>t"))
    model, program = ig.IdModel(f), ig.emit(f, target="python")
    for what in (x, t, t.definition, model, program, program.kernels[0], program.plan, program.report):
        shown = formatted(what, "html") or ""
        assert "<script" not in shown
        assert "".join(Balanced(shown).text).strip()
