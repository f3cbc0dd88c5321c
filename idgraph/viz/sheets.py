"""Tables in notebooks: index maps, accesses, verdicts, counterexamples as HTML that needs no style sheet."""

from __future__ import annotations

from idgraph.display import Printed, Sheet
from idgraph.viz.drawing import drawable
from idgraph.viz.labels import xml

_CELL = "padding:2px 10px;text-align:left;vertical-align:top;border-bottom:1px solid rgba(128,128,128,.3)"
_MONO = "font-family:DejaVu Sans Mono,Menlo,Consolas,monospace;white-space:pre-wrap"


def sheet_html(sheet: Sheet) -> str:
    """A table as HTML. Everything is escaped.

    >>> "<b>" in sheet_html(Sheet("a<b>", ("x",), (("<b>",),)))
    False
    """
    colour = "" if sheet.good is None else f";color:{'#1a7f37' if sheet.good else '#d1242f'}"
    parts = [f'<div style="margin:4px 0"><div style="font-weight:bold{colour}">{xml(sheet.title)}</div>']
    if sheet.rows:
        head = "".join(f'<th style="{_CELL}">{xml(c)}</th>' for c in sheet.columns)
        rows = "".join(
            "<tr>" + "".join(f'<td style="{_CELL};{_MONO}">{_lines(c)}</td>' for c in row) + "</tr>"
            for row in sheet.rows
        )
        parts.append(
            f'<table style="border-collapse:collapse;font-size:90%"><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table>"
        )
    if sheet.notes:
        parts.append(f'<pre style="margin:4px 0;font-size:90%;{_MONO}">{_lines(chr(10).join(sheet.notes))}</pre>')
    return "".join([*parts, "</div>"])


def _lines(text: str) -> str:
    return "<br>".join(xml(line) for line in text.split("\n"))


def table_of(what: object) -> str | None:
    """The table of an object, or None where it is a picture, or text alone."""
    if drawable(what) or not isinstance(what, Printed):
        return None
    return sheet_html(what.sheet())
