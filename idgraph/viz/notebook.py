"""Notebook forms: pictures as SVG, tables as HTML. The classes shown derive from `idgraph.display.Shown`."""

from __future__ import annotations

from idgraph.errors import IdGraphError
from idgraph.loading import LOADING
from idgraph.viz.drawing import drawable, to_svg


def page(what: object) -> str:
    """The HTML page of a report."""
    with LOADING:
        from idgraph.viz.page import to_html  # noqa: PLC0415 - loads the reports

    return to_html(what)


def svg_of(what: object) -> str | None:
    """The SVG of an object, or None where it is shown in another form."""
    if not drawable(what):
        return None
    try:
        return to_svg(what)
    except IdGraphError:
        return None
