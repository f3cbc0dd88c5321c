"""Graphs of equal axes: exact and index graphs, with reasons, cycles and loop nests."""

from idgraph.graphs.aligned import AlignEdge, AlignedGraph, ExtentsGraph, build_aligned
from idgraph.graphs.builder import CongruenceClosure
from idgraph.graphs.coarser import (
    build_almost_exact,
    build_broadcast,
    build_loop,
    build_permissive,
    build_permissive_resize,
)  # fmt: skip
from idgraph.graphs.cycles import Cycle
from idgraph.graphs.domain_graph import DomainGraph, ExactBuilder, SelfMapping, build_exact
from idgraph.graphs.forms import SignatureTable, TensorTemplates, own_domains, own_exprs
from idgraph.graphs.index_graph import IndexGraph, build_index_graph, common_loops
from idgraph.graphs.loops import LoopNests, PromotedDomain
from idgraph.graphs.nest_order import NestMembers
from idgraph.graphs.numbering import key_text
from idgraph.graphs.reasons import Explanation, Fact, Reason
from idgraph.graphs.rounds import CycleKind
from idgraph.graphs.uses import canonical_operand, key_of
from idgraph.graphs.valgraph import ExprGroup, Group, ValGraph

__all__ = [
    "AlignEdge", "AlignedGraph", "Cycle", "CycleKind", "DomainGraph", "Explanation", "ExprGroup", "ExtentsGraph",
    "Fact", "SignatureTable", "CongruenceClosure", "Group", "IndexGraph", "NestMembers", "LoopNests",
    "TensorTemplates", "Reason", "SelfMapping", "PromotedDomain", "ValGraph", "build_aligned", "build_almost_exact",
    "build_broadcast", "build_exact", "build_index_graph", "build_loop", "build_permissive",
    "build_permissive_resize", "canonical_operand", "common_loops", "ExactBuilder", "key_of", "key_text",
    "own_domains", "own_exprs",
]  # fmt: skip
