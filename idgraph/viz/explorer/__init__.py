"""The explorer: pictures of a fusion to search, fold and walk through, beside its accesses, kernels and user's lines.

One script draws it, in the report page and as a notebook widget. dagre (MIT) places boxes, d3-zoom and d3-selection
(ISC) pan and zoom; they are bundled in ``vendor.js``, made from ``tools/explorer``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, get_args, runtime_checkable

from idgraph.cost.iteration_count import visiting
from idgraph.cost.model import VISITED
from idgraph.display import write_atomically
from idgraph.errors import IdGraphError, arguments, one_of
from idgraph.index import IdModel
from idgraph.ir import Fusion, copy_fusion
from idgraph.ir.device import TargetName as Target
from idgraph.loading import LOADING, load
from idgraph.reports.collect import Emission, segment_facts
from idgraph.runtime.program import emit
from idgraph.schedule import auto as schedule_automatically
from idgraph.validate.report import busy
from idgraph.viz.explorer.data import Data, explorer_data
from idgraph.viz.picture import xml

if TYPE_CHECKING:
    from idgraph.kernel.ir import KernelModule
    from idgraph.runtime import Program

__all__ = ["Explorer", "explore"]


class Explorer:
    """A fusion to explore: `save` writes a page, a notebook shows it as a widget (with the package anywidget)."""

    __slots__ = ("data",)

    def __init__(self, data: Data) -> None:
        self.data = data

    def to_html(self) -> str:
        """A page of its own, with nothing loaded from elsewhere; a policy lets the browser run no other script.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> ig.viz.explore(f).to_html().startswith("<!DOCTYPE html>")
        True
        """
        code = f"{script()}{START}"
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark">{policy(code)}'
            f"<title>{xml(self.data['name'])}</title>"
            f"<style>{style()} body {{ margin:8px; background:Canvas }} .ig-explorer {{ height:calc(100dvh - 18px) }}"
            "</style></head><body>"
            f"{place_of(self.data, 'e', links=True)}<script>{code}</script></body></html>\n"
        )

    @arguments(IdGraphError)
    def save(self, path: str | Path) -> Path:
        """Write the page to a ``.html`` file; returns the path.

        >>> import tempfile
        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(ig.viz.explore(f).save(f"{folder}/half.html").name)
        half.html
        """
        target = Path(path)
        if target.suffix != ".html":
            raise IdGraphError(f"{target.name} is not an .html file", hint="explore(f).save('explorer.html')")
        write_atomically(target, self.to_html())
        return target

    def widget(self) -> Any:
        """The explorer as a notebook widget; raises `IdGraphError` where anywidget is not installed.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> type(ig.viz.explore(f).widget()).__name__
        'ExplorerWidget'
        """
        with LOADING:
            from idgraph.viz.explorer import widget  # noqa: PLC0415 - loads anywidget

        return widget(self.data)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget()._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return f"Explorer({self.data['name']!r}, {len(self.data['ops'])} operations)"


@runtime_checkable
class HasFusion(Protocol):
    """Anything with a fusion: an import of `idgraph.frontends`, a program."""

    @property
    def fusion(self) -> Fusion:
        """The fusion."""
        ...


@arguments(IdGraphError, first=True)
def explore(fusion: Fusion | HasFusion, *, target: Target = "cuda", auto: bool = False) -> Explorer:
    """Pictures of ``fusion`` to walk through: click from a box to its operation, accesses, kernel and your line.

    ``fusion`` is one, or an import (of `idgraph.frontends`), whose fusion is shown. ``target`` is the language of the
    kernels; ``auto`` schedules a copy first. A fusion that `idgraph.emit` refuses is shown without kernels, and the
    summary says why. Raises `IdGraphError` for anything without a fusion.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> y = f.output(f.input("x", (8,))[4:] * 2.0)
    >>> ig.viz.explore(f)
    Explorer('half', 2 operations)
    """
    if not isinstance(fusion, Fusion):
        fusion = _fusion_of(fusion)
    if target not in get_args(Target):
        raise IdGraphError(f"unknown target {target!r}", hint=one_of(target, get_args(Target)))
    with busy(f"explorer of {fusion.name}") as now:
        if auto:
            now("schedule")
            fusion = copy_fusion(fusion)
            schedule_automatically(fusion)
        model = IdModel(fusion)
        program: Program | None = None
        passes: list[tuple[str, KernelModule]] = []
        now("index maps")
        model.verify()
        try:
            now("kernels")
            program = emit(fusion, target, model=model, passes=passes)
        except IdGraphError:
            program = None
        now("accesses")
        how = Emission(target, program=program, boundaries=False)
        with visiting(VISITED):  # of its estimates only the bytes are shown
            facts = segment_facts(fusion, model, suggestions=0, how=how)
        now("pictures")
        return Explorer(explorer_data(fusion, facts, program, model, passes if program is not None else ()))


def _fusion_of(given: HasFusion) -> Fusion:
    found = cast("object", given.fusion)
    if not isinstance(found, Fusion):  # a class of the user's that has a field of this name
        raise IdGraphError(f"explore: {type(given).__name__}.fusion is not a fusion", hint="ig.viz.explore(f)")
    return found


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


def place_of(data: Data, anchor: str, *, links: bool = False) -> str:
    """The element of one explorer and its data; `script` and `START` bring it to life.

    ``links``: the page's address names what is chosen, as ``#view=index+graph&op=t6&tab=kernel``.

    >>> "</script><" in place_of({"name": "</script><img>"}, "a")
    False
    """
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    own = " data-links" if links else ""
    stored = f'<script type="application/json" id="{anchor}-data">{text}</script>'
    return f'<div data-explorer="{anchor}-data"{own}></div>{stored}'


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
