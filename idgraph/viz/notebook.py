"""Notebook forms: pictures as SVG, tables as HTML. The classes shown derive from `idgraph.display.Shown`."""

from __future__ import annotations

from idgraph.display import Printed, Sheet
from idgraph.errors import IdGraphError
from idgraph.loading import LOADING
from idgraph.viz.draw import drawable, to_svg
from idgraph.viz.picture import xml


def page(what: object) -> str:
    """The HTML page of a report."""
    with LOADING:
        from idgraph.viz.report_page import to_html  # noqa: PLC0415 - loads the reports

    return to_html(what)


def svg_of(what: object) -> str | None:
    """The SVG of an object, or None where it is shown in another form."""
    if not drawable(what):
        return None
    try:
        return to_svg(what)
    except IdGraphError:
        return None


_CELL = "padding:2px 10px;text-align:left;vertical-align:top;border-bottom:1px solid rgba(128,128,128,.3)"
_MONO = "font-family:DejaVu Sans Mono,Menlo,Consolas,monospace;white-space:pre-wrap"


def sheet_html(sheet: Sheet) -> str:
    """A table as HTML. Everything is escaped."""
    colour = "" if sheet.good is None else f";color:{'#1a7f37' if sheet.good else '#d1242f'}"
    parts = [f'<div style="margin:4px 0"><div style="font-weight:bold{colour}">{xml(sheet.title)}</div>']
    if sheet.rows:
        head = "".join(f'<th style="{_CELL}">{xml(c)}</th>' for c in sheet.columns)
        rows = "".join(
            "<tr>" + "".join(f'<td style="{_CELL};{_MONO}">{_html_lines(c)}</td>' for c in row) + "</tr>"
            for row in sheet.rows
        )
        parts.append(
            f'<table style="border-collapse:collapse;font-size:90%"><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table>"
        )
    if sheet.notes:
        parts.append(f'<pre style="margin:4px 0;font-size:90%;{_MONO}">{_html_lines(chr(10).join(sheet.notes))}</pre>')
    return "".join([*parts, "</div>"])


def _html_lines(text: str) -> str:
    return "<br>".join(xml(line) for line in text.split("\n"))


def table_of(what: object) -> str | None:
    """The table of an object, or None where it is a picture, or only text."""
    if drawable(what) or not isinstance(what, Printed):
        return None
    return sheet_html(what.sheet())


def coloured(what: object, *, language: str = "python") -> str:
    """Text with the colours of ``language`` where standard output is a terminal that shows colours, else as it is."""
    from rich.console import Console  # noqa: PLC0415 - 30 ms
    from rich.syntax import Syntax  # noqa: PLC0415

    text = str(what)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal or console.color_system is None:
        return text
    shown = Syntax("", language, theme="ansi_dark", background_color="default").highlight(text)
    with console.capture() as captured:
        console.print(shown, end="")
    return captured.get()
