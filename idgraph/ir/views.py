"""Where pictures plug in: `idgraph.viz` registers its renderers here, so that what is drawn need not import it."""

from __future__ import annotations

from collections.abc import Callable

from idgraph.errors import IdGraphError

_RENDERERS: dict[str, Callable[..., str]] = {}


def register_renderer(kind: str, renderer: Callable[..., str]) -> None:
    """Name a function that draws an object as text of ``kind`` ("dot", "svg")."""
    _RENDERERS[kind] = renderer


def render(kind: str, what: object, **options: object) -> str:
    """Draw ``what``; raises where no renderer is loaded."""
    renderer = _RENDERERS.get(kind)
    if renderer is None:
        raise IdGraphError(f"no {kind} renderer is loaded", hint="import idgraph.viz")
    return renderer(what, **options)
