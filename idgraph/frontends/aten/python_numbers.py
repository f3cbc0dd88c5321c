"""Handlers of numbers that Python computes of sizes; a value that is not an integer is a float64 scalar tensor."""

from __future__ import annotations

from collections.abc import Callable

from idgraph.arith import TRUE, Expr
from idgraph.frontends.importer import Call, Unmapped, handles
from idgraph.ir import Scalar, Tensor, ops

Number = Tensor | Scalar | Expr


def _tensor(c: Call, value: Number) -> Tensor:
    """A number as a tensor without axes."""
    if isinstance(value, Tensor):
        return value if value.dtype == "float64" else ops.cast(value, "float64")
    if isinstance(value, Expr):
        return ops.add(c.fusion.full((), 0.0, "float64"), value)
    return c.fusion.full((), float(value), "float64")


def _one(f: Callable[[Tensor], Tensor]) -> Callable[[Call], Tensor]:
    return lambda c: f(_tensor(c, c.operand(0, "self")))


def _two(f: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Call], Tensor]:
    return lambda c: f(_tensor(c, c.operand(0, "self")), _tensor(c, c.operand(1, "other")))


for _target in ("torch.sym_float", "_operator.pos"):
    handles(_target)(_one(ops.copy))
for _name, _f in {"sqrt": ops.sqrt, "exp": ops.exp, "log2": ops.log2, "sin": ops.sin, "cos": ops.cos}.items():
    handles(f"torch._sym_{_name}", f"math.{_name}")(_one(_f))
handles("math.log")(_one(ops.log))
handles("_operator.neg")(_one(ops.neg))
for _name, _f in {"add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "pow": ops.pow}.items():
    handles(f"_operator.{_name}")(_two(_f))


@handles("aten._assert_scalar.default")
def assert_scalar(c: Call) -> None:
    """A condition on sizes that their declared ranges imply; any other is checked when the program runs."""
    condition = c.get(0, "self")
    c.get(1, "assert_msg", None)
    holds = condition is True or (isinstance(condition, Expr) and condition == TRUE)
    if not holds:
        raise Unmapped("a check of values when the program runs")


@handles("aten._local_scalar_dense.default", "aten.item.default")
def item(c: Call) -> Tensor:
    """The one element of a tensor as a number: a float stays a tensor without axes, an integer is needed at once."""
    x = c.tensor(0, "self")
    if not x.dtype.startswith(("float", "bfloat")) or x.ndim:
        raise Unmapped("a number that depends on values")
    return _tensor(c, x)
