"""Pictures of fusions, graphs, cycles and explanations: Graphviz text, self-contained SVG, display in notebooks.

Importing this package makes ``to_dot()`` and ``to_svg()`` of fusions and graphs work, and notebooks show them.
"""

import sys
from typing import TYPE_CHECKING

from idgraph.display import register_display, register_renderer
from idgraph.errors import no_attribute
from idgraph.loading import load
from idgraph.viz import notebook
from idgraph.viz import notebook as sheets
from idgraph.viz.cell_picture import RaggedPicture, ragged
from idgraph.viz.draw import draw, drawable, graphviz_svg, picture, to_dot, to_svg, write
from idgraph.viz.fusion_picture import loop_nest
from idgraph.viz.notebook import coloured
from idgraph.viz.picture import Cluster, Line, Picture, PictureEdge, PictureNode, Swatch

if TYPE_CHECKING:
    from idgraph.viz.explorer import Explorer, explore

__all__ = [
    "Cluster", "PictureEdge", "Explorer", "Line", "PictureNode", "Picture", "RaggedPicture", "Swatch", "draw",
    "drawable", "explore", "graphviz_svg", "loop_nest", "notebook", "picture", "ragged", "to_dot", "to_svg", "write",
]  # fmt: skip

register_renderer("dot", to_dot)
register_renderer("svg", to_svg)
register_renderer("html", notebook.page)
register_renderer("loops", loop_nest)
register_renderer("terminal", coloured)
register_display("svg", notebook.svg_of)
register_display("html", sheets.table_of)


def __getattr__(name: str) -> object:
    if name not in ("Explorer", "explore"):
        raise no_attribute(sys.modules[__name__], name)
    return getattr(load(f"{__name__}.explorer"), name)  # loads the kernels
