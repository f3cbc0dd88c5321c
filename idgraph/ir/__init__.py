"""Axes, tensors, operations and fusions, with a text form that prints and parses back."""

from idgraph.ir import create, gather, pointwise, reduce, reshape, scan, scatter, shape
from idgraph.ir.changed_copy import AttrEdit, Edit, InputEdit, NewSteps, StepEdit, SymbolEdit, clone_fusion
from idgraph.ir.domains import DomainExpr, IterDomain, Merge, Resize, Roll, Split, Stride, Swizzle, TensorDomain
from idgraph.ir.dtypes import DTYPES, DType, Scalar, is_float, is_integer, item_size
from idgraph.ir.exprs import SCANS, SCATTERS, AxisRead, Fixed, LoadedCoordinate, Mapped
from idgraph.ir.fusion import Fusion, Tensor, TensorExpr, check_fusion, current_fusion, tensor_of
from idgraph.ir.parsing import copy_fusion, parse_fusion
from idgraph.ir.printing import print_fusion
from idgraph.ir.scatter import adds, entry_axes, has_atomic_update, scatter_axes

# Importing these modules registers the primitive operations.
PRIMITIVES = (create, gather, pointwise, reduce, reshape, scan, scatter, shape)

__all__ = [
    "DTYPES", "SCANS", "SCATTERS", "AttrEdit", "AxisRead", "DType", "DomainExpr", "Edit", "Fixed", "Fusion",
    "InputEdit", "IterDomain", "LoadedCoordinate", "Mapped", "Merge", "NewSteps", "Resize", "Roll", "Scalar",
    "Split", "StepEdit", "Stride", "Swizzle", "SymbolEdit", "Tensor", "TensorDomain", "TensorExpr", "adds",
    "check_fusion", "has_atomic_update", "copy_fusion", "current_fusion", "entry_axes", "is_float", "is_integer",
    "item_size", "parse_fusion", "print_fusion", "clone_fusion", "tensor_of", "scatter_axes",
]  # fmt: skip
