"""Index maps: coordinates, addresses and predicates of every access, in the loop variables of its operation."""

from idgraph.index.access import Access
from idgraph.index.access_table import AccessTable
from idgraph.index.bank_layouts import BankConflicts, BankSuggestion
from idgraph.index.layout import address_of, buffer_size, strides
from idgraph.index.loop import LoopVariable
from idgraph.index.model import IdModel
from idgraph.index.predicates import Conjunct, Predicate
from idgraph.index.storage import AllocatedBuffer, Storage
from idgraph.index.touched_elements import AccessPicture, ElementAccess, WarpCount
from idgraph.index.vector_width import Contiguity
from idgraph.index.wider_vectors import Suggestion, VectorWidth

__all__ = [
    "Access", "AccessPicture", "BankConflicts", "BankSuggestion", "AllocatedBuffer", "Conjunct", "Contiguity",
    "IdModel", "AccessTable", "LoopVariable", "Predicate", "Storage", "Suggestion", "ElementAccess", "VectorWidth",
    "WarpCount", "address_of", "buffer_size", "strides",
]  # fmt: skip
