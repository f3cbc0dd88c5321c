"""The meaning of each operation, by NumPy: the judge of index maps and kernels.

It sees operations by name and attributes only. It imports no graph, no index map, no schedule, no emitter, and reads
no axis expression: a mistake there cannot hide here.
"""

from idgraph.validate.oracle.evaluate import (
    WRITTEN,
    ancestors,
    element_numbers,
    evaluate,
    kept_dtype,
    optional,
    reads,
    stored,
    writes,
)
from idgraph.validate.oracle.views import INDEXED, ROWED, SCATTERED, bind, index_operands, shape_of

__all__ = [
    "INDEXED", "ROWED", "SCATTERED", "WRITTEN", "ancestors", "bind", "element_numbers", "evaluate", "index_operands",
    "kept_dtype", "optional", "reads", "shape_of", "stored", "writes",
]  # fmt: skip
