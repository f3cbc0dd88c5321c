"""The explorer as a notebook widget, by anywidget: the same script as in the page."""

from __future__ import annotations

from typing import Any

from idgraph.errors import IdGraphError
from idgraph.loading import load
from idgraph.viz.explorer.data import Data
from idgraph.viz.explorer.page import script, style

_RENDER = "\nexport default { render({ model, el }) { idgraphExplorer(el, model.get('data')); } };\n"


def widget(data: Data) -> Any:
    """A widget that shows ``data``; raises `IdGraphError` where anywidget is not installed."""
    try:
        anywidget, traitlets = load("anywidget"), load("traitlets")
    except ImportError as error:
        raise IdGraphError(
            "the notebook widget needs anywidget", because=[str(error)], hint="pip install idgraph[viz], or .save(path)"
        ) from None
    kind: Any = type(
        "ExplorerWidget",
        (anywidget.AnyWidget,),
        {"_esm": script() + _RENDER, "_css": style(), "data": traitlets.Dict().tag(sync=True)},
    )
    return kind(data=data)
