"""Entry points: an object of the library as a picture, as DOT, as SVG, in a file."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard, cast

from idgraph.display import write_atomically
from idgraph.errors import IdGraphError, arguments, short_repr
from idgraph.graphs import Cycle, DomainGraph, Explanation, IndexGraph
from idgraph.index import AccessPicture
from idgraph.ir import Fusion
from idgraph.shard import Ownership
from idgraph.viz import render as dot
from idgraph.viz import render as svg
from idgraph.viz.access_picture import access_svg
from idgraph.viz.cell_picture import RaggedPicture, ownership_svg, ragged_svg
from idgraph.viz.domain_graph_picture import Highlight, cycle_picture, domain_picture, explanation_picture
from idgraph.viz.fusion_picture import fusion_picture
from idgraph.viz.index_graph_picture import index_picture
from idgraph.viz.picture import Picture

LARGE = 60  # tensors; above that a picture shows one box for each, or for several
Grid = AccessPicture | Ownership | RaggedPicture
Drawable = Fusion | DomainGraph | IndexGraph | Cycle[Any] | Explanation | Picture | Grid
DRAWABLE = (Fusion, DomainGraph, IndexGraph, Cycle, Explanation, Picture, AccessPicture, Ownership, RaggedPicture)
OPTIONS = {"highlight", "by", "collapse", "title"}


@arguments(IdGraphError)
def picture(what: object, **options: object) -> Picture:
    """The drawing of a fusion, a graph, a cycle or an explanation. In a notebook it shows itself.

    Options: ``title``; ``collapse`` (default: True above 60 tensors) draws large ones with fewer boxes; for graphs
    ``highlight``, a `Cycle` or an `Explanation` to mark in red, None for nothing (default: the first cycle that
    changes the index), and ``by`` "group" or "tensor" (default: "tensor" for an explanation, else "group"). Raises
    `IdGraphError` for anything else.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(64,)) * 2.0)
    >>> [n.key for n in picture(f).nodes]
    ['a', 't1']
    """
    strange = sorted(options.keys() - OPTIONS)
    if strange:
        raise IdGraphError(f"pictures have no option {strange[0]!r}", hint=f"they have {', '.join(sorted(OPTIONS))}")
    title = options.get("title", "")
    if not isinstance(title, str):
        raise IdGraphError(f"the title of a picture is text, not {short_repr(title)}")
    match what:
        case Fusion():
            return fusion_picture(what, title=title, collapse=_collapse(what, options))
        case DomainGraph():
            highlight = _highlight(what, options)
            by = options.get("by") or ("tensor" if isinstance(highlight, Explanation) else "group")
            if by not in ("group", "tensor"):
                raise IdGraphError(f"a graph is drawn by group or by tensor, not by {by!r}")
            return domain_picture(what, highlight, by=str(by), title=title, collapse=_collapse(what.fusion, options))
        case IndexGraph():
            return index_picture(what, _highlight(what, options), title=title, collapse=_collapse(what.fusion, options))
        case Cycle():
            return cycle_picture(cast("Cycle[Any]", what), title=title)
        case Explanation():
            return explanation_picture(what, title=title)
        case Picture():
            return replace(what, title=title or what.title)
        case RaggedPicture():
            raise IdGraphError("rows are drawn as a grid, which is SVG only", hint="ig.viz.to_svg(picture)")
        case Ownership():
            raise IdGraphError("an ownership is drawn as a grid, which is SVG only", hint="ig.viz.to_svg(owner)")
        case AccessPicture():
            raise IdGraphError("an access is drawn as a grid, which is SVG only", hint="a.picture().to_svg()")
        case _:
            raise IdGraphError(
                f"there is no picture of a {type(what).__name__}",
                hint="draw a Fusion, a graph of an IdModel, a Cycle or an Explanation",
            )


def drawable(what: object) -> TypeGuard[Drawable]:
    """True of what `picture` draws."""
    return isinstance(what, DRAWABLE)


@arguments(IdGraphError)
def to_dot(what: object, **options: object) -> str:
    """Graphviz text; options as for `picture`."""
    return dot.to_dot(picture(what, **options))


@arguments(IdGraphError)
def to_svg(what: object, **options: object) -> str:
    """A self-contained SVG document, laid out here; options as for `picture`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> to_svg(f.output(f.input("a", shape=(64,)) * 2.0).fusion).startswith("<svg")
    True
    """
    match what:
        case AccessPicture():
            return access_svg(what)
        case RaggedPicture():
            return ragged_svg(what)
        case Ownership():
            return ownership_svg(what)
        case _:
            return svg.to_svg(picture(what, **options))


@arguments(IdGraphError)
def draw(what: object, kind: str = "svg", **options: object) -> str:
    """`to_svg` or `to_dot` by ``kind``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> draw(f.output(f.input("a", shape=(64,)) * 2.0).fusion, "dot").splitlines()[0]
    'digraph "Fusion f" {'
    """
    if kind not in ("svg", "dot"):
        raise IdGraphError(f"pictures are svg or dot, not {kind!r}")
    return to_svg(what, **options) if kind == "svg" else to_dot(what, **options)


@arguments(IdGraphError)
def write(what: object, path: str | Path, **options: object) -> Path:
    """Write a picture to a file, ``.svg`` or ``.dot`` by its name; returns the path."""
    target = Path(path)
    if target.suffix not in (".svg", ".dot"):
        raise IdGraphError(f"{target.name} is neither .svg nor .dot", hint="name the file picture.svg or picture.dot")
    write_atomically(target, draw(what, target.suffix[1:], **options))
    return target


@arguments(IdGraphError)
def graphviz_svg(what: object, **options: object) -> str:
    """The SVG that Graphviz lays out; raises `IdGraphError` where its Python package or ``dot`` is not installed."""
    text = to_dot(what, **options)
    try:
        import graphviz
    except ImportError as error:
        raise IdGraphError("the graphviz package is not installed", hint="to_svg() needs nothing") from error
    if shutil.which("dot") is None:
        raise IdGraphError("Graphviz's program dot is not installed", hint="to_svg() needs nothing")
    return str(graphviz.Source(text).pipe(format="svg", encoding="utf-8"))


def _collapse(fusion: Fusion, options: dict[str, object]) -> bool:
    wanted = options.get("collapse")
    return len(fusion.tensors) > LARGE if wanted is None else bool(wanted)


def _highlight(graph: DomainGraph | IndexGraph, options: dict[str, object]) -> Highlight:
    """The marked cycle: as asked, or the first one that a search must not run through."""
    if "highlight" not in options:
        return next((c for c in graph.cycles() if c.changes_index), None)
    wanted = options["highlight"]
    if wanted is None or isinstance(wanted, (Cycle, Explanation)):
        return wanted  # pyright: ignore[reportUnknownVariableType]
    raise IdGraphError(
        f"cannot mark a {type(wanted).__name__}", hint="highlight=g.cycles()[0], or highlight=g.explain(a, b)"
    )
