"""torch programs, as functions, modules, exported programs and graph modules: imported, run, equal to eager."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from idgraph.errors import FrontendError, IdGraphError, IndexingError, ScheduleError
from idgraph.frontends import from_torch
from idgraph.frontends.graph import Ref
from idgraph.frontends.import_ import Import
from idgraph.frontends.partition import last_reads
from idgraph.runtime.fusion_call import is_scheduled, scheduled
from tools.bench.corpus import seeded, with_oracle

Arguments = tuple[torch.Tensor, ...]


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rope_half(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Arguments:
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * c + rotate_half(q) * s, k * c + rotate_half(k) * s


def rope_residual(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Arguments:
    a, b = rope_half(q, k, cos, sin)
    return a + q, b + k


def rope_interleaved(q: torch.Tensor, sin: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    s = torch.repeat_interleave(sin[:, :, None, :], 2, 3)
    c = torch.repeat_interleave(cos[:, :, None, :], 2, 3)
    turned = torch.stack((-q[..., 1::2], q[..., ::2]), dim=-1).flatten(-2)
    return q * c + turned * s


def rope_partial(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    n = cos.shape[-1]
    turn, keep = q[..., :n], q[..., n:]
    return torch.cat((turn * cos.unsqueeze(1) + rotate_half(turn) * sin.unsqueeze(1), keep), dim=-1)


def gather_logsoftmax(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -torch.log_softmax(x, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def numbers(top: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, top, shape, generator=torch.Generator().manual_seed(top))


FAMILIES: dict[str, tuple[Callable[..., Any], Arguments]] = {
    "half": (rope_half, (normal(2, 4, 16, 8), normal(2, 2, 16, 8), normal(2, 16, 8), normal(2, 16, 8, seed=1))),
    "residual": (rope_residual, (normal(2, 4, 16, 8), normal(2, 2, 16, 8), normal(2, 16, 8), normal(2, 16, 8, seed=1))),
    "interleaved": (rope_interleaved, (normal(2, 16, 4, 8), normal(2, 16, 4), normal(2, 16, 4, seed=1))),
    "partial": (rope_partial, (normal(2, 4, 16, 12), normal(2, 16, 4), normal(2, 16, 4, seed=1))),
    "gather": (gather_logsoftmax, (normal(4, 8, 33), numbers(33, 4, 8))),
}


class Wrapped(torch.nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: torch.Tensor) -> object:
        return self.f(*args)


def forms(f: Callable[..., Any], args: Arguments) -> dict[str, Import]:
    module = Wrapped(f)
    exported = torch.export.export(module, args)
    return {
        "function": from_torch(f, args),
        "module": from_torch(module, args),
        "exported": from_torch(exported),
        "export's module": from_torch(exported.module(), args),
        "make_fx": from_torch(make_fx(f)(*args), args),
        "symbolic trace": from_torch(torch.fx.symbolic_trace(f), args),
    }


def flat(value: object) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for t in value if isinstance(t, torch.Tensor)]  # type: ignore[attr-defined, union-attr]


def assert_equal(found: object, wanted: object) -> None:
    torch.testing.assert_close(flat(found), flat(wanted), rtol=2e-5, atol=2e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_families_in_every_form(family: str) -> None:
    f, args = FAMILIES[family]
    wanted = f(*args)
    for form, imported in forms(f, args).items():
        assert imported.coverage.opaque == {}, form
        assert_equal(with_oracle(imported).run(*args, target="oracle"), wanted)


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_families_through_kernels(family: str) -> None:
    f, args = FAMILIES[family]
    imported = from_torch(f, args)
    assert_equal(imported.run(*args, target="numpy"), f(*args))
    assert type(imported.run(*args, target="numpy")) is type(f(*args))


def test_through_compiled_kernels() -> None:
    f, args = FAMILIES["residual"]
    assert_equal(from_torch(f, args).run(*args), f(*args))


def test_tensors_remember_the_torch_line() -> None:
    imported = from_torch(rope_partial, FAMILIES["partial"][1])
    lines = [(e.op, str(e.source_line).partition(": ")[2]) for e in imported.fusion.exprs]
    assert all(str(e.source_line).startswith("test_from_torch.py:") for e in imported.fusion.exprs)
    assert ("slice", "turn, keep = q[..., :n], q[..., n:]") in lines
    assert ("neg", "return torch.cat((-x[..., half:], x[..., :half]), dim=-1)") in lines
    assert next(code for op, code in lines if op == "cat").startswith("return torch.cat((-x[..., half:]")


def shifted(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    return torch.cat((doubled[2:], doubled[:2]))


class Part(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(shifted(x))


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) + x.sin()


def gradient(x: torch.Tensor) -> torch.Tensor:
    y = x.clone().requires_grad_(True)
    total = shifted(y).sum()
    return torch.autograd.grad(total, y)[0]


@pytest.mark.parametrize("program", [Whole(), Whole().forward, gradient], ids=["module", "method", "gradient"])
def test_a_line_is_the_innermost_of_the_users(program: Callable[..., object]) -> None:
    imported = from_torch(program, (normal(6),))
    codes = {t.name: str(t.source_line).partition(": ")[2] for t in imported.fusion.tensors if t.source_line}
    assert codes["mul"] == "doubled = x * 2"
    assert codes["cat"] == "return torch.cat((doubled[2:], doubled[:2]))"
    stack = [line.code for line in imported.source_stack(imported.fusion["mul"])]
    assert stack[-1] == "doubled = x * 2"
    if program is gradient:
        assert stack == ["total = shifted(y).sum()", "doubled = x * 2"]
        return
    assert codes["sigmoid"] == "return torch.nn.functional.silu(shifted(x))"
    assert stack == [
        "return self.part(x) + x.sin()", "return torch.nn.functional.silu(shifted(x))", "doubled = x * 2",
    ]  # fmt: skip
    with pytest.raises(FrontendError, match="'y' is not a node of"):
        imported.source_stack("y")


def test_capturing_leaves_torch_as_it_was() -> None:
    tracer: Any = importlib.import_module("torch.fx.proxy").TracerBase
    before = tracer._filter_traceback_frames
    from_torch(shifted, (normal(6),))
    with pytest.raises(FrontendError):
        from_torch(shifted, (normal(6, 2), normal(2)))
    assert tracer._filter_traceback_frames is before


def test_names_are_those_of_the_graph() -> None:
    imported = from_torch(rope_half, FAMILIES["half"][1])
    assert [t.name for t in imported.fusion.inputs] == ["q", "k", "cos", "sin"]
    assert {"cat", "cat_1", "neg", "add_1"} <= {t.name for t in imported.fusion.tensors}


class Counting(torch.nn.Module):
    """Parameters, buffers that change, constants, keyword arguments, nested results, an opaque operation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(normal(3))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, *, factor: float = 2.0) -> dict[str, Any]:
        self.calls += 1  # type: ignore[operator]
        y = x * self.weight * factor
        order, places = torch.sort(y, dim=-1)
        return {"a": [y + torch.tensor([1.0, 2.0, 3.0])], "same": x, "b": (order.sum(), places * 2), "none": None}


def test_modules_with_state() -> None:
    module, twin = Counting(), Counting()
    twin.load_state_dict(module.state_dict())
    x = normal(4, 3)
    imported = from_torch(module, (x,), {"factor": 3.0})
    assert list(imported.coverage.opaque) == ["aten.sort.default"]
    assert imported.parameters[0].name == "x"
    with_oracle(imported)
    for count in (1, 2):
        found: Any = imported.run(x, factor=3.0, target="oracle")
        wanted = twin(x, factor=3.0)
        assert list(found) == list(wanted)
        assert isinstance(found["a"], list)
        torch.testing.assert_close(found, wanted)
        assert float(module.calls) == count  # type: ignore[arg-type]
    assert found["same"] is x
    with torch.no_grad():
        module.weight.add_(1.0)
        twin.weight.add_(1.0)
    torch.testing.assert_close(imported.run(x, factor=3.0, target="oracle"), twin(x, factor=3.0))
    with pytest.raises(FrontendError, match=r"not nested|captured for"):
        imported.run(x, factor=4.0, target="oracle")
    with pytest.raises(FrontendError, match="not nested"):
        imported.run([x], factor=3.0, target="oracle")


def test_arguments_changed_in_place() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:3] += y
        return x.sum()

    x, y = normal(5), normal(2)
    imported = with_oracle(from_torch(f, (x.clone(), y)))
    a, b = x.clone(), x.clone()
    torch.testing.assert_close(imported.run(a, y, target="oracle"), f(b, y))
    torch.testing.assert_close(a, b)
    c = x.numpy().copy()
    imported.run(c, y.numpy(), target="oracle")
    assert np.allclose(c, b.numpy())


def test_gradients_are_traced() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((torch.nn.functional.gelu(leaf) ** 2).sum(), leaf)
        return gradient

    x = normal(4, 3)
    imported = with_oracle(from_torch(f, (x,)))
    assert imported.coverage.opaque == {}
    torch.testing.assert_close(imported.run(x, target="oracle"), f(x), rtol=2e-5, atol=2e-5)


def test_random_numbers_are_torchs_in_their_order() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        a = torch.rand(4)
        torch.rand(3)
        return torch.nn.functional.dropout(x * a, 0.5) + torch.sort(x * torch.rand(4))[0]

    x = normal(4)
    exported: Any = torch.export.export(Wrapped(f), (x,))
    exported = exported.run_decompositions()
    imported = with_oracle(from_torch(exported))
    seeded(5)
    wanted = exported.module()(x)
    seeded(5)
    torch.testing.assert_close(imported.run(x, target="oracle"), wanted)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("target", ["oracle", "numpy"])
def test_other_float_types(dtype: torch.dtype, target: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Arguments:
        y = torch.softmax(x * 2 + w, -1)
        return y, torch.nn.functional.layer_norm(x, (8,), w), x.mean(-1), y @ x.transpose(0, 1)

    args = normal(4, 8).to(dtype), normal(8).to(dtype)
    found: Any = with_oracle(from_torch(f, args)).run(*args, target=target)
    near = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-9}[dtype]
    torch.testing.assert_close(flat(found), flat(f(*args)), rtol=near, atol=near)


def test_strided_arguments() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    for x in (normal(3, 4).T, normal(4, 1).expand(4, 3), normal(4, 6)[:, ::2], normal(6, 3)[2:]):
        y = normal(4, 3)
        imported = with_oracle(from_torch(f, (x, y)))
        for target in ("oracle", "numpy"):
            torch.testing.assert_close(imported.run(x, y, target=target), x + y)
            torch.testing.assert_close(imported.run(x.contiguous(), y, target=target), x + y)
    repeated = from_torch(f, (normal(4, 1).expand(4, 3), normal(4, 3)))
    if repeated.fusion["x"].domain.strides[1] == 0:
        with pytest.raises(IdGraphError, match="several elements"):
            repeated.run(normal(4, 3), normal(4, 3), target="numpy")


@pytest.mark.parametrize("target", ["oracle", "numpy", "python"])
def test_an_index_out_of_range_is_an_error(target: str) -> None:
    def f(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return x.gather(1, target)

    x, good, bad = normal(3, 4), torch.tensor([[3], [0], [1]]), torch.tensor([[3], [4], [1]])
    imported = with_oracle(from_torch(f, (x, good)))
    torch.testing.assert_close(imported.run(x, good, target=target), f(x, good))
    with pytest.raises(IndexingError):
        imported.run(x, bad, target=target)


# what cannot be imported ----------------------------------------------------------------------------------------------


def test_an_exported_program_with_dynamic_sizes() -> None:
    n = torch.export.Dim("n", min=2, max=64)  # pyright: ignore[reportUnknownMemberType]
    exported = torch.export.export(Wrapped(torch.neg), (normal(8),), dynamic_shapes=(({0: n},),))
    imported = from_torch(exported)
    torch.testing.assert_close(imported.run(normal(5), target="numpy"), -normal(5))


def test_what_is_no_program() -> None:
    with pytest.raises(FrontendError, match="int is not a function"):
        from_torch(3, (normal(2),))
    with pytest.raises(FrontendError, match="needs example arguments"):
        from_torch(rotate_half)

    def wrong_size(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(7)

    def asks_values(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    for f in (wrong_size, asks_values):
        with pytest.raises(FrontendError, match=f"{f.__name__} cannot be captured") as caught:
            from_torch(f, (normal(2),))
        assert "test_from_torch.py:" in caught.value.where
        assert "return x" in caught.value.where


def test_complex_numbers_are_opaque() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        fft: Any = torch.fft
        return torch.view_as_real(fft.fft(x)).sum() + x.sum()

    x = normal(8)
    imported = from_torch(f, (x,))
    assert imported.coverage.opaque
    torch.testing.assert_close(imported.run(x, target="numpy"), f(x))


def test_an_unknown_target() -> None:
    imported = from_torch(rotate_half, (normal(4),))
    with pytest.raises(FrontendError, match="unknown target 'fpga'"):
        imported.run(normal(4), target="fpga")


def test_scheduling_an_import_makes_new_kernels() -> None:
    x = normal(64)
    imported = from_torch(rotate_half, (x,))
    before: Any = imported.run(x, target="numpy")
    imported.fusion.outputs[0].split(0, 8)
    torch.testing.assert_close(imported.run(x, target="numpy"), before)
    assert len(imported.kernels) == 2


def test_importing_is_light() -> None:
    code = "import idgraph.frontends, sys; print([m for m in ('torch', 'numba') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from idgraph.frontends import from_torch\n"
        "from idgraph.errors import FrontendError\n"
        "try:\n    from_torch(abs, (1,))\n"
        "except FrontendError as error:\n    print(error.what, '|', error.hint)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch cannot be imported" in out.stdout
    assert "pip install torch" in out.stdout


def test_an_integer_sum_in_the_type_asked_for() -> None:
    def f(x: torch.Tensor) -> Arguments:
        return x.sum(0, dtype=torch.int32), x.sum(dtype=torch.int8), x.sum(1)

    x = numbers(100, 4, 5)
    assert_equal(from_torch(f, (x,)).run(x, target="numpy"), f(x))


def test_views_by_strides_and_diagonals() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Arguments:
        out = torch.empty_like(x)
        out[:, ::2], out[:, 1::2] = x[:, 1::2], -x[:, ::2]
        strided = x.as_strided((3, 4), (8, 1)), x.as_strided((4, 3), (1, 4), 2), (x * 2).as_strided((2, 2), (1, 1), 5)
        diagonals = x.diagonal(), x.diagonal(1), x.diagonal(-3), y.diagonal(1, 2, 0), y.diagonal(9)
        return out, *strided, *diagonals, x.as_strided((), (), 3)

    args = normal(6, 4), normal(3, 2, 5)
    imported = from_torch(f, args)
    assert imported.coverage.opaque == {}
    assert_equal(imported.run(*args, target="numpy"), f(*args))


def test_strides_of_a_view_reach_into_its_memory() -> None:
    def f(x: torch.Tensor) -> Arguments:
        part = x[1:]
        return part.as_strided((2, 2), (4, 1), 0), part.as_strided((2, 3), (2, 1)), x.t()[1].as_strided((3,), (2,))

    x = normal(3, 4)
    assert_equal(from_torch(f, (x,)).run(x, target="numpy"), f(x))


def test_strides_of_unknown_memory_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 2), (1, 4))

    with pytest.raises(FrontendError, match="memory of its operand is not known"):
        from_torch(f, (normal(3, 8)[:, ::2],))


def test_operations_left_to_torch() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x @ w, -1) @ w.T
        return x + y.relu() @ w @ w.T

    args = normal(3, 4), normal(4, 5, seed=1)
    whole = from_torch(block, args)
    assert len(whole.segments) == 1
    imported = whole.calling("aten.mm.default")
    assert imported.coverage.opaque == {"aten.mm.default": "left to torch by choice"}
    calls = [
        [c for c in s.calls if "mm" in str(c.target)] for s in imported.segments
    ]  # and views, which are torch's too
    assert [len(c) for c in calls] == [1, 1, 1, 1, 0]
    assert all(e.op != "matmul" for s in imported.segments if s.fusion is not None for e in s.fusion.exprs)
    assert_equal(imported.run(*args, target="numpy"), block(*args))
    assert_equal(whole.run(*args, target="numpy"), block(*args))
    with pytest.raises(FrontendError, match=r"does not call 'aten.bmm.default'") as refused:
        whole.calling("aten.bmm.default")
    assert "aten.mm.default" in str(refused.value.hint)


def test_memory_of_what_is_read_no_more_is_given_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sort()[0] + 1).sort()[0] * x

    imported = from_torch(f, (normal(8),))
    last = last_reads(imported.plan)
    results = [v.name for v in imported.program.results if isinstance(v, Ref)]
    assert set(results).isdisjoint(last)
    assert last[imported.program.placeholders[0].name] == len(imported.segments) - 1
    assert sorted(set(last.values())) == [0, 1, 2][: len(imported.segments)]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_work_is_scheduled_unless_somebody_has(target: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1) + x

    fusion = from_torch(f, (normal(4, 8),)).fusion
    before = str(fusion)
    made = scheduled(fusion, target)
    assert str(fusion) == before and made.fusion is not fusion
    assert any(e.output.inline_position for e in made.fusion.exprs) and len(made.kernels) == 1
    assert scheduled(fusion, "numpy").fusion is fusion
    fusion.outputs[0].split(0, 2)
    assert scheduled(fusion, target).fusion is fusion


def test_a_scatter_is_no_schedule() -> None:
    def f(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x.index_put((i,), s, accumulate=True)

    args = normal(64, 256), torch.arange(0, 64, 2), normal(32, 256)
    imported = from_torch(f, args)
    assert not is_scheduled(imported.fusion)
    for kernel in scheduled(imported.fusion, "cuda").kernels:
        assert any(d.startswith("threadIdx") for d in kernel.launch)
    assert_equal(imported.run(*args), f(*args))


def test_what_no_schedule_fits_runs_tensor_by_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object, **_options: object) -> None:
        raise ScheduleError("no schedule for this")

    monkeypatch.setattr("idgraph.runtime.fusion_call.auto", refuse)
    x = normal(6)
    imported = from_torch(rotate_half, (x,))
    with pytest.warns(UserWarning, match="each tensor has loops of its own: no schedule for this"):
        assert_equal(imported.run(x, target="cpu"), rotate_half(x))
    with pytest.raises(ScheduleError, match="no schedule for this"):
        imported.run(x, target="cuda")


def test_torch_is_left_as_it_was() -> None:
    """A capture lets torch keep the types of its annotations and list its operations once; both end with it."""
    ops: Any = importlib.import_module("torch._ops")
    utils: Any = importlib.import_module("torch._export.utils")
    core: Any = importlib.import_module("idgraph.frontends.decompositions")
    before = ops.Callable, utils._materialize_cpp_cia_ops
    assert before[0] is Callable
    from_torch(rotate_half, (normal(3, 4),))
    assert (ops.Callable, utils._materialize_cpp_cia_ops) == before

    def fails() -> None:
        with core._cached_type_aliases(torch):
            assert ops.Callable[[int], str] is ops.Callable[[int], str]
            assert isinstance(len, ops.Callable) and not isinstance(3, ops.Callable)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert ops.Callable is Callable
