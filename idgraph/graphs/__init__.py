"""Graphs of equal axes: exact and index graphs, with reasons, cycles and loop nests."""

from idgraph.graphs.aligned import AlignEdge, AlignedGraph, ExtentsGraph, build_aligned
from idgraph.graphs.congruence_closure import CongruenceClosure
from idgraph.graphs.cycle_kind import CycleKind
from idgraph.graphs.cycles import Cycle
from idgraph.graphs.exact import (
    DomainGraph,
    ExactBuilder,
    SelfMapping,
    build_almost_exact,
    build_broadcast,
    build_exact,
    build_loop,
    build_permissive,
    build_permissive_resize,
)  # fmt: skip
from idgraph.graphs.index_graph import IndexGraph, build_index_graph, common_loops
from idgraph.graphs.loop_nest import LoopNests, PromotedDomain
from idgraph.graphs.nest_order import NestMembers
from idgraph.graphs.proof import Explanation, Fact, Reason
from idgraph.graphs.signature import (
    SignatureTable,
    TensorTemplates,
    canonical_operand,
    key_of,
    key_text,
    own_domains,
    own_exprs,
)
from idgraph.graphs.val_graph import ExprGroup, Group, ValGraph

__all__ = [
    "AlignEdge", "AlignedGraph", "Cycle", "CycleKind", "DomainGraph", "Explanation", "ExprGroup", "ExtentsGraph",
    "Fact", "SignatureTable", "CongruenceClosure", "Group", "IndexGraph", "NestMembers", "LoopNests",
    "TensorTemplates", "Reason", "SelfMapping", "PromotedDomain", "ValGraph", "build_aligned", "build_almost_exact",
    "build_broadcast", "build_exact", "build_index_graph", "build_loop", "build_permissive",
    "build_permissive_resize", "canonical_operand", "common_loops", "ExactBuilder", "key_of", "key_text",
    "own_domains", "own_exprs",
]  # fmt: skip
