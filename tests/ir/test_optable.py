"""The table of operations: what its readers need of a row is there, and every language has the functions it names."""

from __future__ import annotations

import ast
import math
import operator
from typing import Any, get_args

import numpy as np
import pytest

from idgraph.codegen.runtime_lib import numpy_ops as arrays
from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.codegen.runtime_lib import vector_ops as plain
from idgraph.errors import EmitError
from idgraph.ir import ops_pointwise as ops
from idgraph.ir.op_table import OPERATIONS, POINTWISE, SCANS, SCANS_OF, Operation, names, primitives
from idgraph.kernel import parse
from idgraph.kernel.statements import AccumulateOp
from idgraph.lower.statements import Accumulator, identity
from idgraph.runtime.cpu import namespace as cpu
from idgraph.validate.oracle.evaluate import BINARY, UNARY


def texts(o: Operation) -> list[str]:
    return [t for t in (o.floats, o.integers, o.truth) if t is not None]


def functions(text: str) -> set[str]:
    """The functions that a text calls, in float32 and in float64."""
    trees = [
        ast.parse(text.format("a", "b", "c", one="one", zero="zero", width=width), mode="eval") for width in ("", "_32")
    ]
    calls = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return {n.func.id for n in calls if isinstance(n.func, ast.Name)} - {"abs"}


@pytest.mark.parametrize("o", OPERATIONS.values(), ids=list(OPERATIONS))
def test_a_row_is_whole(o: Operation) -> None:
    assert o.meaning
    joins = o.kind in ("reduction", "running")
    assert joins == bool(o.combine)
    assert bool(texts(o)) != (joins or o.name in ("cast", "where"))
    assert all(f"{{{o.operands}}}" not in t for t in texts(o))
    assert (o.result is not None) <= (o.name in primitives())


def test_every_language_has_the_functions_of_every_row() -> None:
    made_by_passes = {"exp32", "near_int", "fast_exp_sub", "fast_exp", "short_exp"}
    wanted = {n for o in OPERATIONS.values() for t in texts(o) for n in functions(t)}
    assert wanted - made_by_passes <= vars(scalars).keys()
    assert wanted - made_by_passes <= vars(arrays).keys()
    assert wanted <= cpu.namespace().keys()


def test_public_names_and_the_oracle_have_every_row() -> None:
    assert all(hasattr(ops, n) for n in POINTWISE - {"fma"})
    assert {*UNARY, *BINARY, "fma", "where"} == POINTWISE


def test_reductions_combine_by_a_row_and_start_at_its_identity() -> None:
    assert (*names(kind="reduction"), *names(kind="running")) == get_args(AccumulateOp)
    assert set(SCANS_OF) == SCANS
    known: dict[str, Any] = {
        "sum": operator.add,
        "prod": operator.mul,
        "amax": max,
        "amin": min,
        "any": max,
        "all": min,
    }
    for op, combine in known.items():
        row, values = OPERATIONS[op], [False, True] if op in ("any", "all") else [3, -2, 0]
        start: Any = identity(Accumulator(op, "bool" if op in ("any", "all") else "int64"))  # pyright: ignore[reportArgumentType]
        assert all(combine(start, v) == v for v in values)
        assert OPERATIONS[row.combine].operands == 2
        assert arrays.REDUCE[op].reduce(np.array([values])[0]) == _all(combine, values)


@pytest.mark.parametrize("op", names(kind="running"))
def test_what_only_scans_do_starts_at_its_identity(op: str) -> None:
    row, start = OPERATIONS[op], identity(Accumulator(op, "float64"))  # type: ignore[arg-type]
    combine = getattr(scalars, row.combine)
    values = [3.0, -2.0, 0.0, -800.0, 800.0, math.inf, -math.inf]
    assert all(combine(start, v) == v for v in values) and math.isnan(combine(math.nan, math.inf))
    for a in values:
        for b in values:
            assert np.isclose(combine(a, b), np.logaddexp(a, b), rtol=1e-15, atol=0)


def _all(combine: Any, values: list[Any]) -> Any:
    found = values[0]
    for v in values[1:]:
        found = combine(found, v)
    return found


def test_what_is_above_zero_is() -> None:
    with np.errstate(all="ignore"):
        x = np.array([-3.0, -1.5, -0.5, 0.0, 0.5, 2.0, 9.0])
        for o in OPERATIONS.values():
            if o.floats is None or o.kind == "key" or not o.above_zero:
                continue
            operands = (x,) if o.operands == 1 else tuple(np.meshgrid(x, x))
            if o.above_zero == "operands":
                operands = tuple(np.abs(v) for v in operands)
            spaces = {**vars(arrays), "exp32": np.exp, "abs": np.abs, **dict(zip("abc", operands))}
            found = eval(o.floats.format("a", "b", "c", one="1.0", zero="0.0"), spaces)  # noqa: S307  # our own texts
            assert not (np.asarray(found) < 0).any(), o.name


def test_pairs_are_what_plain_pairs_do() -> None:
    assert {o.name for o in OPERATIONS.values() if o.pairs} == set(plain.PAIR_OPS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exo(x)", "exo is not an operation"),
        ("sum(x)", "sum is not an operation"),
        ("add(x)", "add has 1 operands, not 2"),
        ("bitwise_and(x, x)", "bitwise_and has no meaning for float32"),
    ],
)
def test_the_verifier_reads_the_table(text: str, said: str) -> None:
    k = parse(f"""
kernel k():
  buffer a: float32[1] input "a"
  x: float32 = a[0]
  y: float32 = {text}
""")
    with pytest.raises(EmitError, match=said):
        k.verify()
