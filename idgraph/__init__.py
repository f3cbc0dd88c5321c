"""Which element of which tensor an expression touches at each point of its loops, and which loops are the same.

The exports stand in the order in which data flows: errors, index algebra, fusions, graphs, indices, schedules,
kernels, checks, pictures, imports from PyTorch.
"""

import sys
from typing import TYPE_CHECKING, Final

from idgraph.arith import CounterExample, Expr, IndexMap, Proof, Unknown, from_sympy, prove, prove_equal, simplify
from idgraph.display import load_with
from idgraph.errors import (
    VERSION,
    EmitError,
    FrontendError,
    FusionError,
    IdGraphError,
    IndexingError,
    InternalError,
    OperationError,
    ParseError,
    ScheduleError,
    no_attribute,
    shortened,
)  # fmt: skip
from idgraph.ir import (  # fmt: skip
    Fusion,
    IterDomain,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir import hooks as advice  # fmt: skip
from idgraph.ir import hooks as estimates  # fmt: skip
from idgraph.ir import parse_fusion as parse
from idgraph.ir.foreign_calls import ELSEWHERE as _ELSEWHERE
from idgraph.ir.limits import Limits
from idgraph.ir.mesh import Mesh, MeshError, Placement
from idgraph.ir.ops_index import index_get, index_put, scatter, scatter_add
from idgraph.ir.ops_pointwise import abs as abs
from idgraph.ir.ops_pointwise import (
    add,
    atan2,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    ceil,
    copy,
    cos,
    div,
    eq,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    ge,
    gt,
    isinf,
    isnan,
    le,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    neg,
    reciprocal,
    relu,
    remainder,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    sub,
    tan,
    tanh,
    trunc,
    where,
)  # fmt: skip
from idgraph.ir.ops_pointwise import pow as pow
from idgraph.ir.ops_pointwise import round as round
from idgraph.ir.ops_ragged import combine, crop_ragged, pad_ragged, partition
from idgraph.ir.ops_reduce import all as all
from idgraph.ir.ops_reduce import (
    amax,
    amin,
    cross_entropy,
    cross_entropy_backward,
    cummax,
    cummin,
    cumprod,
    cumsum,
    embedding,
    gather,
    index_select,
    log_softmax,
    logcumsumexp,
    matmul,
    mean,
    prod,
    softmax,
    take_along_dim,
)  # fmt: skip
from idgraph.ir.ops_reduce import any as any
from idgraph.ir.ops_reduce import sum as sum
from idgraph.ir.ops_view import (
    broadcast,
    cat,
    expand,
    flatten,
    flip,
    full,
    iota,
    pad,
    permute,
    repeat,
    reshape,
    roll,
    select,
    slice_scatter,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)  # fmt: skip
from idgraph.ir.ops_view import slice as slice
from idgraph.loading import load
from idgraph.runtime import emit
from idgraph.validate import validate

if TYPE_CHECKING:
    from idgraph import check, frontends, fuse, kernel, layout, schedule, shard, viz
    from idgraph.cost import cost
    from idgraph.frontends import from_torch
    from idgraph.graphs import AlignEdge, AlignedGraph, Cycle, DomainGraph, Explanation, ExtentsGraph, IndexGraph
    from idgraph.index import (
        Access,
        AccessTable,
        BankConflicts,
        Contiguity,
        IdModel,
        Loop,
        LoopVariable,
        Predicate,
        Suggestion,
        VectorWidth,
    )
    from idgraph.reports import report
    from idgraph.runtime.fusion_call import Compiled
    from idgraph.runtime.fusion_call import compile as compile
    from idgraph.runtime.tuning import Measured, Tuned, Tuner, tune
    from idgraph.sweeps import sweep
    from idgraph.validate import Report

__version__ = VERSION
simplify, prove, prove_equal = shortened(simplify), shortened(prove), shortened(prove_equal)
set = copy  # nvFuser's word for a copy


# Packages behind the fusion are loaded when first asked for: who only builds fusions does not wait for them.
_LATER: Final = {
    "graphs": ("AlignEdge", "AlignedGraph", "Cycle", "DomainGraph", "Explanation", "ExtentsGraph", "IndexGraph"),
    "index": ("Access", "AccessTable", "BankConflicts", "Contiguity", "IdModel", "Loop", "LoopVariable",
    "Predicate", "Suggestion", "VectorWidth"), "cost": ("cost",), "runtime.fusion_call": ("Compiled", "compile"),
    "runtime.tuning": ("Measured", "Tuned", "Tuner", "tune"), "reports": ("report",), "validate": ("Report",),
    "frontends": ("from_torch",), "sweeps": ("sweep",),
}  # fmt: skip
_ROOMS: Final = (
    "check", "frontends", "fuse", "graphs", "index", "kernel", "layout", "reports", "schedule", "shard", "sweeps",
    "testing",
    "viz",
)  # fmt: skip
_HOME: Final = {name: room for room, names in _LATER.items() for name in names}

# Public names that are also Python's: `ig.sum` is there, and `from idgraph import *` leaves the builtin alone.
BUILTIN_NAMES: Final = ("abs", "all", "any", "compile", "pow", "round", "set", "slice", "sum")

__all__ = [
    "Access", "AccessTable", "AlignEdge", "AlignedGraph", "BankConflicts", "Compiled", "Contiguity", "CounterExample",
    "Suggestion", "Cycle", "DomainGraph", "EmitError", "Explanation", "Expr", "ExtentsGraph", "FrontendError",
    "Fusion", "FusionError", "IdGraphError", "IdModel", "IndexGraph", "IndexMap", "IndexingError", "InternalError",
    "IterDomain", "Limits", "Loop", "LoopVariable", "Measured", "Merge", "Mesh", "MeshError", "OperationError",
    "ParseError", "RowPartition", "Placement", "Predicate", "Proof", "Report", "Resize", "Roll", "ScheduleError",
    "Split", "Stride",
    "Swizzle", "Tensor", "TensorExpr", "Tuned", "Tuner", "Unknown", "VectorWidth", "add", "amax", "amin", "atan2",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast", "cast", "cat", "ceil", "check",
    "combine", "copy", "cos", "cost", "crop_ragged", "cross_entropy", "cross_entropy_backward", "cummax", "cummin",
    "cumprod", "cumsum", "div",
    "embedding", "emit", "eq", "erf", "exp", "exp2", "expand", "expm1", "flatten", "flip", "floor", "floor_divide",
    "fmod", "from_sympy", "from_torch", "frontends", "full", "fuse", "gather", "ge", "gt", "index_get", "index_put",
    "index_select", "iota", "isinf", "isnan", "kernel", "layout", "le", "log", "log10", "log1p", "log2", "log_softmax",
    "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "matmul", "maximum", "mean",
    "minimum", "mul", "ne", "neg", "pad", "pad_ragged", "parse", "partition",
    "permute", "prod", "prove", "prove_equal", "reciprocal", "relu",
    "remainder", "repeat", "report", "reshape", "roll", "rsqrt", "scatter", "scatter_add", "schedule", "select",
    "shard", "shift_left", "shift_right", "sigmoid", "sign", "simplify", "sin", "slice_scatter", "softmax", "sqrt",
    "square", "squeeze", "stack", "sub", "sweep", "take_along_dim", "tan", "tanh", "transpose", "trunc", "tune",
    "unsqueeze", "validate", "viz", "where",
]  # fmt: skip


load_with(lambda: load(f"{__name__}.viz"))
advice.load_adviser_with(lambda: load(f"{__name__}.schedule"))
estimates.load_estimator_with(lambda: load(f"{__name__}.cost.model"))


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return load(f"{__name__}.{name}")
    if name not in _HOME:
        ways = "; write it with ig.cat, slices and the like, or import a function of torch: ig.from_torch(fn, args)"
        otherwise = "" if name.startswith("_") else ways
        raise no_attribute(sys.modules[__name__], name, otherwise, _ELSEWHERE.get(name, ""))
    found = getattr(load(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *BUILTIN_NAMES})
