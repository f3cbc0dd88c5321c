"""Programs of other systems as fusions: captured torch graphs (`fx.from_json`) and torch itself (`from_torch`).

read (reading, exporting) -> nodes -> importer + aten handlers -> segments -> run (fx.Import)
"""

from idgraph.frontends import fx
from idgraph.frontends.exporting import from_torch

__all__ = ["from_torch", "fx"]
