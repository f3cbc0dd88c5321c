"""Pictures in notebooks: formatters registered from outside, so that fusions and graphs know nothing of IPython."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from idgraph.errors import IdGraphError
from idgraph.viz.drawing import DRAWABLE, to_svg


def enable() -> bool:
    """Show fusions, graphs, cycles and explanations as SVG in the running IPython; False where there is none.

    Called when `idgraph.viz` is imported inside IPython. The text form stays as it is for everybody else.

    >>> enable()
    False
    """
    module: ModuleType | None = sys.modules.get("IPython")
    shell: Any = module.get_ipython() if module is not None else None
    if shell is None:
        return False
    formatter = shell.display_formatter.formatters["image/svg+xml"]
    for kind in DRAWABLE:
        formatter.for_type(kind, shown)
    return True


def shown(what: object) -> str | None:
    """The SVG of an object, or None (text is shown) where it cannot be drawn."""
    try:
        return to_svg(what)
    except IdGraphError:
        return None
