"""Index maps: coordinates, addresses and predicates of every access, in the loop variables of its operation."""

from idgraph.index.access import Access
from idgraph.index.layout import address_of, buffer_size, strides
from idgraph.index.loop import Loop
from idgraph.index.model import IdModel, IndexMap

__all__ = ["Access", "IdModel", "IndexMap", "Loop", "address_of", "buffer_size", "strides"]
