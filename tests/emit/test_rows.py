"""Row kernels: reductions over the threads of a block, sums that follow a running maximum, aligned chunks.

The form is CUDA's; here it is printed as plain Python and run, thread after thread, so that every case is checked
without a device. Exchanges between threads are checked in the simulator (`tests.emit.cases`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.codegen.runtime_lib.vector_ops import plain_vectors
from idgraph.ir.schedule_log import KernelHints
from idgraph.kernel.ir import Compute, Kernel, Load, Loop, VectorLoad, walk
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.passes import pipeline as table
from idgraph.runtime import Program, compile_ptx, emit
from idgraph.runtime import compile_kernels as entries
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import cross_entropy, pointwise_row, rows, safe_logsumexp

Array = npt.NDArray[Any]
TYPES: Mapping[str, Any] = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


AGAIN = KernelHints(persistent=False)  # registers are a thread's own: `tests.emit.cases` runs rows kept in them


ONE_LAUNCH_EACH = tuple(p for p in table.TABLE["cuda"] if p.name != "fuse_launches")


def row_program(f: ig.Fusion) -> Program:
    """The fusion as CUDA's plan, each pass reading its row, printed for Python: threads run one after the other."""
    plan = lower_fusion(f, ig.IdModel(f), threads=False)
    again = replace(plan, kernels=tuple(replace(k, choices=AGAIN) for k in plan.kernels))
    return Program(f, "python", table.run(again, ONE_LAUNCH_EACH))


def aligned_vectors() -> dict[str, Any]:
    """Vector accesses that refuse an element which is not a multiple of their width."""

    def tested(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        width = int(re.sub(r"\D", "", name))

        def access(*given: Any) -> Any:
            at = int(given[3 if name.startswith("vload") else 1])
            assert at % width == 0, f"{name} at element {at}"
            return f(*given)

        return access

    return {name: tested(name, f) for name, f in plain_vectors().items()}


def arrays(f: ig.Fusion, seed: int = 0) -> dict[str, Array]:
    """Values of both signs, indices of classes."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        if t.dtype == "int64":
            made[t.name] = rng.integers(0, 5, shape)
        else:
            made[t.name] = rng.uniform(-4, 4, shape).astype(TYPES.get(t.dtype, t.dtype))
    return made


def check(f: ig.Fusion, monkeypatch: pytest.MonkeyPatch, given: Mapping[str, Array] | None = None) -> Program:
    """Scheduled automatically, the row form gives the definition's values, all vector accesses aligned."""
    monkeypatch.setattr(entries, "plain_vectors", aligned_vectors)
    ig.schedule.auto(f)
    program, inputs = row_program(f), given or arrays(f)
    with np.errstate(all="ignore"):
        found, wanted = program.run(inputs, poison=True), evaluate(f, inputs)
    for t in f.outputs:
        got, want = np.asarray(found[t.name], np.float64), np.asarray(wanted[t.name], np.float64)
        limit = {"bfloat16": 2.0**-7, "float16": 2.0**-9, "float64": 1e-12}.get(t.dtype, 4e-6)
        np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    return program


FORMS: Mapping[str, Callable[[Any], Any]] = {
    "softmax": lambda x: ig.softmax(x, 1),
    "log_softmax": lambda x: ig.log_softmax(x, 1),
    "sum": lambda x: ig.sum(x, 1),
    "mean": lambda x: ig.mean(x, 1),
    "amax": lambda x: ig.amax(x, 1),
    "amin": lambda x: ig.amin(x, 1),
    "prod": lambda x: ig.prod(x * 0.25 + 1.0, 1),
    "any": lambda x: ig.any(x > 3.9, 1),
    "all": lambda x: ig.all(x > -3.9, 1),
    "variance": lambda x: ig.mean(ig.square(x - ig.mean(x, 1, keepdim=True)), 1),
    "normalised": lambda x: (x - ig.mean(x, 1, keepdim=True)) * ig.rsqrt(ig.mean(x * x, 1, keepdim=True) + 1e-5),
    "two sums": lambda x: ig.sum(x, 1) * ig.sum(x * x, 1) + ig.amax(x, 1),
    "scaled exponentials": lambda x: ig.sum(ig.exp(x - ig.amax(x, 1, keepdim=True)) * x * 0.5, 1),
    "exponentials twice": lambda x: ig.sum(ig.exp(x - ig.amax(x, 1, keepdim=True)), 1) * ig.sum(ig.exp(x), 1),
    "maximum otherwise": lambda x: ig.sum(ig.square(x - ig.amax(x, 1, keepdim=True)), 1),
    "another maximum": lambda x: ig.sum(ig.exp(x - ig.amax(x * 0.5, 1, keepdim=True)), 1),
    "safe logsumexp": safe_logsumexp,
}


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [7, 131])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(rows(FORMS[form], (3, columns)), monkeypatch)


@pytest.mark.parametrize("columns", [1, 64, 520])
@pytest.mark.parametrize("form", ["softmax", "two sums"])
def test_other_sizes(form: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(rows(FORMS[form], (3, columns)), monkeypatch)


@pytest.mark.sampled
@pytest.mark.parametrize("op", [ig.sum, ig.prod, ig.amax, ig.amin])
@pytest.mark.parametrize(("shape", "dim"), [((1, 9), 0), ((2, 1, 9), 1), ((9, 1), 1), ((1, 300), 0), ((1, 1), 0)])
def test_a_reduced_axis_of_one_element(
    op: Callable[..., Any], shape: tuple[int, ...], dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = {"x": -1.0 - np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
    f = rows(lambda t: op(t, dim), shape)
    check(f, monkeypatch, x)
    (out,) = f.outputs
    np.testing.assert_array_equal(emit(f, target="cpu").run(x, poison=True)[out.name], x["x"].squeeze(dim))


@pytest.mark.sampled
@pytest.mark.parametrize("names", ["n c", "c n", "q r", "c_step q", "t0 acc1", "n1 n0"])
@pytest.mark.parametrize("dim", [0, 2])
def test_symbols_called_like_variables_of_the_kernel(names: str, dim: int) -> None:
    f = ig.Fusion("rows")
    n, c = (f.symbol(s, min=1) for s in names.split())
    f.output(ig.softmax(f.input("x", shape=(n, 2, c)), dim))
    ig.schedule.auto(f)
    x = {"x": np.random.default_rng(0).normal(size=(7, 2, 19)).astype(np.float32)}
    want = evaluate(f, x)[f.outputs[0].name]
    for program in (row_program(f), emit(f, target="cpu")):
        np.testing.assert_allclose(program.run(x, poison=True)[f.outputs[0].name], want, rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("columns", [5, 2064])
def test_types(dtype: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = "float64" if dtype == "float64" else "float32"
    check(rows(lambda x: ig.cast(ig.softmax(ig.cast(x, wide), 1), dtype), (2, columns), dtype), monkeypatch)


@pytest.mark.sampled
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("columns", [57, 64, 1031])
def test_cross_entropy_and_gradient(columns: int, reduction: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = check(cross_entropy(5, columns, reduction, gradient=True), monkeypatch)
    assert len(reading(program, "x")) == 1  # one kernel reads the logits


def reading(program: Program, name: str) -> list[Kernel]:
    """The kernels that read an input."""
    return [k for k in program.kernels if any(b.title == name for b in k.buffers)]


@pytest.mark.parametrize("form", ["softmax", "log_softmax", "safe logsumexp", "scaled exponentials"])
def test_infinities_and_nan(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = arrays(rows(FORMS[form], (7, 37)))["x"]
    inf, nan = np.inf, np.nan
    x[0, :20] = -inf  # a masked head: the running maximum starts late
    x[1, :] = -inf
    x[2, 11] = inf
    x[3, 30] = nan
    x[4, ::2], x[4, 36] = -inf, nan
    x[5] = np.linspace(-3e4, 3e4, 37)
    x[6] = -200.0
    if form == "scaled exponentials":
        x = np.where(np.isinf(x), np.float32(-80.0), x)
    check(rows(FORMS[form], (7, 37)), monkeypatch, {"x": x})


def test_a_row_is_read_once_for_all_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    program = check(rows(FORMS["two sums"], (4, 256)), monkeypatch)
    (kernel,) = program.kernels
    assert len(loops_over_columns(kernel)) == 1


def loops_over_columns(kernel: Kernel) -> list[Loop]:
    """The loops over the threads in which an input is read chunk by chunk."""
    found = [s for s in walk(kernel.body) if isinstance(s, Loop) and s.parallel == "threadIdx.x"]
    return [s for s in found if any(isinstance(x, (Load, VectorLoad)) for x in walk(s.body))]


@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_maximum_and_sum_in_one_pass(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = check(rows(FORMS[form], (4, 256)), monkeypatch)
    assert len(loops_over_columns(program.kernels[0])) == 2  # statistics, then the output


def test_a_sum_that_needs_the_maximum_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    program = check(rows(FORMS["maximum otherwise"], (4, 256)), monkeypatch)
    assert len(loops_over_columns(program.kernels[0])) == 2


def test_cross_entropy_keeps_one_number_a_row() -> None:
    f = cross_entropy(64, 3001, "mean", gradient=True)
    ig.schedule.auto(f)
    program = emit(f, target="cuda")
    extra = [b for b in program.plan.buffers if b.place == "global"]
    assert extra and all(int(b.size) <= 64 for b in extra)
    assert len(program.kernels) == 3  # the count of rows, the rows, the mean


def test_unaligned_rows_by_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    program = check(cross_entropy(9, 2051, "none", gradient=False), monkeypatch)
    widths = {len(s.locals) for s in walk(program.kernels[0].body) if isinstance(s, VectorLoad)}
    assert widths == {8}


def test_what_follows_a_total_has_blocks_of_its_own() -> None:
    f = rows(lambda x: x / ig.sum(x), (300, 700))
    ig.schedule.auto(f)
    parts, total, whole = emit(f, target="cuda").kernels
    assert int(parts.launch["blockIdx.x"][0]) > 100  # the sum of each row first
    assert "blockIdx.x" not in total.launch
    assert int(whole.launch["blockIdx.x"][0]) > 100


def test_columns_across_neighbouring_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    f = rows(lambda x: ig.softmax(x, 1), (3, 19, 10))
    check(f, monkeypatch)
    assert [d.parallel for d in f.outputs[0].loop][:2] == ["blockIdx.x", "threadIdx.x"]


def test_auto_twice_is_auto_once() -> None:
    f = cross_entropy(6, 70, "mean", gradient=True)
    ig.schedule.auto(f)
    once = [repr(e) for e in f.exprs]
    assert ig.parse(str(f)) == f
    ig.schedule.auto(f)
    assert len(f.exprs) == len(once)


def test_equal_operations_are_done_once() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (4, 8))
    out = f.output(ig.softmax(x, 1) + ig.log_softmax(x, 1))
    ig.schedule.auto(f)
    assert [e.op for e in f.exprs].count("amax") == 1
    assert out in f.outputs


@pytest.mark.parametrize("columns", [32768, 50257])
def test_ptx_of_cross_entropy(columns: int) -> None:
    f = cross_entropy(8192, columns, "none", gradient=False)
    ig.schedule.auto(f)
    (ptx,) = compile_ptx(emit(f, target="cuda"))
    assert ptx.count("ld.global.v4.u32") >= 2
    assert "shfl.sync" in ptx and "bar.sync" in ptx and "max.NaN.f32" in ptx and "ex2.approx.ftz.f32" in ptx
    for slow in ("rem.s64", "div.s64", "rem.u64", "div.u64", ".local"):
        assert slow not in ptx


def test_ptx_of_a_softmax_row() -> None:
    f = pointwise_row("bfloat16", 4096)
    ig.schedule.auto(f)
    (ptx,) = compile_ptx(emit(f, target="cuda"))
    assert "ld.global.v4.u32" in ptx and "st.global.v4.u32" in ptx
    assert "ld.global.u16" not in ptx and "st.global.u16" not in ptx


def test_rows_divide_by_one_value_by_its_reciprocal() -> None:
    """float32: rounded as a division. 16 bits: a product, but not where the quotient is rounded to a whole number."""
    for dtype, whole, op in (("float32", False, "div_by"), ("bfloat16", False, "mul"), ("bfloat16", True, "div_by")):
        f = ig.Fusion("f")
        x = f.input("x", (64, 512), dtype)
        wide = ig.cast(x, "float32")
        y = wide / ig.amax(wide, 1, keepdim=True)
        f.output(ig.cast(ig.round(y), "int8") if whole else ig.cast(y, dtype))
        ig.schedule.auto(f)
        (kernel,) = emit(f, "cuda").plan.kernels
        made = [s.op for s in walk(kernel.body) if isinstance(s, Compute) and s.op in ("div", "div_by", "mul")]
        assert set(made) == {op}, (dtype, whole)
        inverse = "short_reciprocal" if op == "mul" else "reciprocal"  # of a product that is rounded to 16 bits
        assert sum(isinstance(s, Compute) and s.op == inverse for s in walk(kernel.body)) == 1
