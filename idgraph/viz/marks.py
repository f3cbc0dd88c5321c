"""The parts that every SVG of this package is made of: numbers, text, the document around them."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.viz.labels import xml
from idgraph.viz.picture import INK, WHITE

MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"
SANS = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"


def px(x: float) -> str:
    """Pixels, to a tenth.

    >>> px(3.0), px(2.25)
    ('3', '2.2')
    """
    return f"{x:.1f}".rstrip("0").rstrip(".")


def label(
    text: str,
    x: float,
    y: float,
    *,
    size: float = 12,
    fill: str = INK,
    weight: str = "normal",
    family: str = "",
    anchor: str = "",
) -> str:
    """One line of text, escaped."""
    bold = f' font-weight="{weight}"' if weight != "normal" else ""
    sized = f' font-size="{size:g}"' if size != 12 else ""
    named = f' font-family="{family}"' if family else ""
    placed = f' text-anchor="{anchor}"' if anchor else ""
    marks = f'fill="{fill}"{sized}{bold}{named}{placed}'
    return f'<text x="{px(x)}" y="{px(y)}" {marks} xml:space="preserve">{xml(text)}</text>'


def document(title: str, about: str, size: tuple[float, float], body: Sequence[str]) -> str:
    """A self-contained SVG document on a white sheet of ``size`` pixels."""
    width, height = px(size[0]), px(size[1])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{xml(title)}" '
            f'font-family="{MONO}" font-size="12">',
            f"<title>{xml(title)}</title>",
            f"<desc>{xml(about)}</desc>",
            f'<rect width="{width}" height="{height}" fill="{WHITE}"/>',
            *body,
            "</svg>",
            "",
        ]
    )
