"""Axes, tensors, operations and fusions, with a text form that prints and parses back."""

from idgraph.ir import gather_scatter_builders as scatter
from idgraph.ir import op_builders as pointwise
from idgraph.ir import op_builders as reduce
from idgraph.ir import op_builders as scan
from idgraph.ir import ops_ragged as ragged
from idgraph.ir import reshape
from idgraph.ir import view_builders as create
from idgraph.ir import view_builders as shape
from idgraph.ir.axis_read import AxisRead, Fixed, LoadedCoordinate, Mapped
from idgraph.ir.clone import AttrEdit, Edit, InputEdit, NewSteps, StepEdit, SymbolEdit, clone_fusion
from idgraph.ir.dtypes import DTYPES, DType, Scalar, is_float, is_integer, item_size
from idgraph.ir.fusion import Fusion, Tensor, TensorExpr, check_fusion, current_fusion, tensor_of
from idgraph.ir.gather_scatter_builders import adds, entry_axes, has_atomic_update, scatter_axes
from idgraph.ir.iter_domain import (
    DomainExpr,
    IterDomain,
    Merge,
    RaggedRows,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    TensorDomain,
)
from idgraph.ir.op_table import SCANS, SCATTERS
from idgraph.ir.parser import copy_fusion, parse_fusion
from idgraph.ir.printer import print_fusion

# Importing these modules registers the primitive operations.
PRIMITIVES = (create, pointwise, ragged, reduce, reshape, scan, scatter, shape)

__all__ = [
    "DTYPES", "SCANS", "SCATTERS", "AttrEdit", "AxisRead", "DType", "DomainExpr", "Edit", "Fixed", "Fusion",
    "InputEdit", "IterDomain", "LoadedCoordinate", "Mapped", "Merge", "NewSteps",
    "RowPartition", "RaggedRows", "Resize", "Roll", "Scalar",
    "Split", "StepEdit", "Stride", "Swizzle", "SymbolEdit", "Tensor", "TensorDomain", "TensorExpr", "adds",
    "check_fusion", "has_atomic_update", "copy_fusion", "current_fusion", "entry_axes", "is_float", "is_integer",
    "item_size", "parse_fusion", "print_fusion", "clone_fusion", "tensor_of", "scatter_axes",
]  # fmt: skip
