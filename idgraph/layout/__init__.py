"""Memory formats: the order of a tensor's axes in memory, by mapping; which outputs are views; strides that pay.

orders (carried over along the mapping) -> infer (decisions) -> apply; eager (torch's own strides)
"""

from idgraph.errors import suggesting
from idgraph.layout.aliasing import Alias, NoAlias, alias
from idgraph.layout.inference import Candidate, Decisions, LayoutDecision, apply, dense_strides, infer
from idgraph.layout.padding import PaddedStrides, StridePadding, blocked, pad_strides

__all__ = [
    "Alias", "Candidate", "Decisions", "LayoutDecision", "NoAlias", "PaddedStrides", "StridePadding", "alias", "apply",
    "blocked", "dense_strides", "infer", "pad_strides",
]  # fmt: skip

__getattr__ = suggesting(__name__)
