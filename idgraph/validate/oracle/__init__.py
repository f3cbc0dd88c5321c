"""The meaning of each operation, by NumPy: the judge of index maps and kernels.

It sees operations by name and attributes only. It imports no graph, no index map, no schedule, no emitter, and reads
no axis expression: a mistake there cannot hide here.
"""

from idgraph.validate.oracle.element_reads import element_numbers, optional, reads
from idgraph.validate.oracle.moves import INDEXED
from idgraph.validate.oracle.numbers import kept_dtype, stored
from idgraph.validate.oracle.scatters import SCATTERED, index_operands
from idgraph.validate.oracle.symbol_values import bind, shape_of
from idgraph.validate.oracle.values import ancestors, evaluate

__all__ = [
    "INDEXED", "SCATTERED", "ancestors", "bind", "element_numbers", "evaluate", "index_operands", "kept_dtype",
    "optional", "reads", "shape_of",
    "stored",
]  # fmt: skip
