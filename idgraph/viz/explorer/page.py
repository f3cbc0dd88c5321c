"""The explorer in a page: its style, its script and its data, all in the page itself.

The explorer as a notebook widget, by anywidget: the same script as in the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from idgraph.errors import IdGraphError
from idgraph.loading import load
from idgraph.viz.explorer.data import Data

HERE = Path(__file__).resolve().parent


@cache
def style() -> str:
    """The style sheet."""
    return (HERE / "explorer.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Libraries and explorer: defines ``idgraphExplorer(element, data)``."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("vendor.js", "explorer.js"))


START = """
document.querySelectorAll("[data-explorer]").forEach(function (place) {
  idgraphExplorer(place, JSON.parse(document.getElementById(place.getAttribute("data-explorer")).textContent));
});
"""


def policy(code: str) -> str:
    """The element that tells a browser to load nothing and to run no other script than ``code``.

    >>> policy("alert(1)").count("script-src 'sha256-")
    1
    """
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    rules = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def place_of(data: Data, anchor: str) -> str:
    """The element of one explorer and its data; `script` and `START` bring it to life.

    >>> "</script><" in place_of({"name": "</script><img>"}, "a")
    False
    """
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div data-explorer="{anchor}-data"></div><script type="application/json" id="{anchor}-data">{text}</script>'
    )


_RENDER = "\nexport default { render({ model, el }) { idgraphExplorer(el, model.get('data')); } };\n"


def widget(data: Data) -> Any:
    """A widget that shows ``data``; raises `IdGraphError` where anywidget is not installed."""
    try:
        anywidget, traitlets = load("anywidget"), load("traitlets")
    except ImportError as error:
        raise IdGraphError(
            "the notebook widget needs anywidget", because=[str(error)], hint="pip install anywidget, or .save(path)"
        ) from None
    kind: Any = type(
        "ExplorerWidget",
        (anywidget.AnyWidget,),
        {"_esm": script() + _RENDER, "_css": style(), "data": traitlets.Dict().tag(sync=True)},
    )
    return kind(data=data)
