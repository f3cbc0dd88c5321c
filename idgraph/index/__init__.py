"""Index maps: coordinates, addresses and predicates of every access, in the loop variables of its operation."""

from idgraph.index.access import Access, AccessTable
from idgraph.index.access_relation import LoopVariable
from idgraph.index.allocation import AllocatedBuffer, Storage, address_of, buffer_size, strides
from idgraph.index.bank_conflict_advice import (
    BankConflicts,
    BankSuggestion,
    FragmentConflicts,
    ldmatrix,
    ldmatrix_conflicts,
    mma_operand,
)
from idgraph.index.id_model import IdModel
from idgraph.index.predicate import Conjunct, Predicate
from idgraph.index.thread_accesses import AccessPicture, ElementAccess, WarpCount
from idgraph.index.vector_width import Contiguity
from idgraph.index.vectorization_advice import Suggestion, VectorWidth

Loop = LoopVariable  # the public name; `idgraph.kernel.Loop` is a statement

__all__ = [
    "Access", "AccessPicture", "BankConflicts", "BankSuggestion", "AllocatedBuffer", "Conjunct", "Contiguity",
    "IdModel", "AccessTable", "Loop", "LoopVariable", "Predicate", "Storage", "Suggestion", "ElementAccess",
    "FragmentConflicts", "VectorWidth", "WarpCount", "address_of", "buffer_size", "ldmatrix",
    "ldmatrix_conflicts", "mma_operand", "strides",
]  # fmt: skip
