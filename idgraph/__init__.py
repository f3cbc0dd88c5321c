"""idgraph: which element of which tensor an expression touches at each point of its loops, and which loops are one.

The exports stand in the order in which data flows: errors, index algebra, fusions, graphs, indices, schedules,
kernels, checks, pictures, imports from PyTorch.
"""

from idgraph.arith import (
    CounterExample, Expr, Proof, Unknown, from_sympy, prove, prove_equal, simplify,
)  # fmt: skip
from idgraph.errors import (
    EmitError, FrontendError, FusionError, IdGraphError, IndexingError, OperationError, ParseError, ScheduleError,
)  # fmt: skip
from idgraph.graphs import Cycle, DomainGraph, Explanation, IndexGraph
from idgraph.index import Access, IdModel, IndexMap, Loop
from idgraph.ir import (
    Fusion, IterDomain, Merge, Resize, Roll, Split, Stride, Swizzle, Tensor, TensorExpr, parse_fusion as parse,
)  # fmt: skip
from idgraph.ir.composite import (
    all, amax, amin, any, cumsum, embedding, gather, index_put, index_select, log_softmax, matmul, mean, prod, scatter,
    scatter_add, softmax, sum, take_along_dim,
)  # fmt: skip
from idgraph.ir.movement import (
    broadcast, cat, expand, flatten, flip, full, iota, pad, permute, repeat, reshape, roll, select, slice, slice_scatter,
    squeeze, stack, transpose, unsqueeze,
)  # fmt: skip
from idgraph.ir.ops import (
    abs, add, atan2, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, cast, ceil, copy, cos, div, eq, erf, exp, exp2,
    expm1, floor, floor_divide, fmod, ge, gt, isinf, isnan, le, log, log1p, log2, logical_and, logical_not, logical_or,
    logical_xor, lt, maximum, minimum, mul, ne, neg, pow, reciprocal, relu, remainder, round, rsqrt, sigmoid, sign, sin,
    sqrt, square, sub, tan, tanh, trunc, where,
)  # fmt: skip

set = copy  # nvFuser's word for a copy
