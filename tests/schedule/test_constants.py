"""Constants folded before scheduling: few kernels, and the values of torch."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import DType, Tensor
from idgraph.ir.clone import clone_fusion
from idgraph.rewrite.constant_folding import fold_constants
from idgraph.validate.oracle import evaluate
from tests.property.budget import examples

torch: Any = pytest.importorskip("torch")

X = torch.randint(-1000, 1000, (64, 128), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
F = torch.randn(64, 128, generator=torch.Generator().manual_seed(1))
ROWS = torch.randint(-64, 64, (32,), generator=torch.Generator().manual_seed(2))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {  # the function, its arguments, kernels at most
    "shift by a number": (lambda a: (a >> 2) & 3, (X,), 1),
    "shift by a tensor": (lambda a: a << torch.tensor(3), (X,), 1),
    "shifts there and back": (lambda a: (a.long() << 1) >> torch.full((), 2), (X,), 1),
    "nibbles": (lambda a: torch.stack([(a >> (4 * k)) & 15 for k in range(2)], -1).float() * 0.5, (X,), 1),
    "numbers of tensors": (lambda a: a * (torch.tensor(2.0) * torch.tensor(3.0) + torch.tensor(0.5)), (F,), 1),
    "a mask of numbers": (lambda a: torch.where(torch.full((128,), 2.0) > 1.0, a, 0.0) + torch.ones(128), (F,), 1),
    "wrapped rows": (lambda a, i: a[torch.where(i < 0, i + 64, i)], (F, ROWS), 2),
    "wrapped twice": (lambda a, i: a[i.int().long()] * 2, (F, ROWS), 2),
    "wrapped columns": (lambda a, i: torch.gather(a, 1, torch.where(i < 0, i + 128, i)), (F, ROWS.reshape(32, 1)), 1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_programs(name: str) -> None:
    function, arguments, most = PROGRAMS[name]
    imp = ig.from_torch(function, arguments)
    wanted = function(*arguments)
    torch.testing.assert_close(imp.run(*arguments, target="numpy"), wanted)
    for target in ("cpu", "cuda"):
        f = clone_fusion(imp.fusion)
        ig.schedule.auto(f)
        assert len(ig.emit(f, target).kernels) <= most, target
    torch.testing.assert_close(imp.run(*arguments, target="cpu"), wanted)


def test_what_targets_may_have_otherwise_stays() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (4,))
    infinite = ig.div(f.full((), 1.0), f.full((), 0.0))
    f.output(x + infinite, x * ig.neg(f.full((), 0.0)), x + ig.cast(f.full((), 1e30), "int64"))
    fold_constants(f)
    assert {"div", "neg", "cast"} <= {e.op for e in f.exprs}
    found = ig.emit(f, "python").run({"x": np.ones(4, np.float32)})
    signs = np.signbit(next(v for n, v in found.items() if n == f.outputs[1].name))
    assert bool(signs.all())


def test_outputs_and_their_readers_stay() -> None:
    f = ig.Fusion("f")
    two = f.full((3,), 2, "int32")
    four = f.output(two * two)
    total = f.output(ig.sum(four, 0))
    fold_constants(f)
    assert f.outputs == (four, total) and four.definition is not None and four.definition.op == "full"
    assert {k: v.tolist() for k, v in ig.emit(f).run({}).items()} == {four.name: [4, 4, 4], total.name: 12}


TYPES: tuple[DType, ...] = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "eq", "lt", "ge", "floor_divide", "logical_and", "div")


@st.composite
def programs(draw: st.DrawFn) -> ig.Fusion:
    """Operations on constants and on an input, of any types."""
    f = ig.Fusion("f")
    made: list[Tensor] = [f.input("x", (3,), draw(st.sampled_from(TYPES)))]
    for _ in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(TYPES))
        whole = draw(st.integers(0, 5))
        value = bool(whole % 2) if dtype == "bool" else whole + 0.3 if "float" in dtype else whole
        made.append(f.full(draw(st.sampled_from([(), (3,), (1,)])), value, dtype))
    for _ in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from((*BINARY, "where", "cast", "neg", "expand")))
        a, b, c = (draw(st.sampled_from(made)) for _ in range(3))
        try:
            match op:
                case "where":
                    made.append(ig.where(ig.cast(a, "bool"), b, c))
                case "cast":
                    made.append(ig.cast(a, draw(st.sampled_from(TYPES))))
                case "neg":
                    made.append(ig.neg(a))
                case "expand":
                    made.append(ig.expand(a, [3]))
                case _:
                    made.append(getattr(ig, op)(a, b))
        except ig.OperationError:  # types that the operation does not take
            continue
    f.output(made[-1], draw(st.sampled_from(made[1:])))
    return f


@given(programs())
@settings(max_examples=examples(250, needed=125))
def test_the_oracle_finds_the_same(f: ig.Fusion) -> None:
    """By an evaluation that shares no code with the folding."""
    given_ = {t.name: np.array([0, 1, 3]).astype("float32" if "float" in t.dtype else t.dtype) for t in f.inputs}
    wanted = evaluate(f, given_)
    names = [t.name for t in f.outputs]
    fold_constants(f)
    found = evaluate(f, given_)
    for name in names:
        a, b = np.asarray(found[name], np.float64), np.asarray(wanted[name], np.float64)
        narrow = any(t.dtype in ("float16", "bfloat16") for t in f.tensors)
        np.testing.assert_allclose(a, b, rtol=1e-2 if narrow else 1e-6)
