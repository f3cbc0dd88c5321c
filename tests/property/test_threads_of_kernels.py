"""Kernels for a GPU run on threads, for every fusion: no kernel leaves much work to one thread."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import importlib
from math import prod
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.kernel.ir import Kernel
from idgraph.runtime.call_signature import iteration_count
from idgraph.runtime.fusion_call import is_scheduled, scheduled
from idgraph.testing import fusions
from tests.property.budget import examples

torch: Any = importlib.import_module("torch")
MANY = 1024  # points that a kernel may leave to one thread
SCATTERS = ("unary", "binary", "scatter", "scatter_add", "index_put", "gather", "slice_scatter")


def threads(k: Kernel) -> int:
    """Threads of all blocks."""
    return prod(max(1, *(int(e) for e in found)) for found in k.launch.values())


def check(f: Fusion) -> None:
    assert not is_scheduled(f)
    before = str(f)
    program = scheduled(f, "cuda")
    assert str(f) == before
    for k in program.kernels:
        work = iteration_count(k.body)
        assert work.is_const
        if int(work) > MANY:
            assert any(dim.startswith("threadIdx") for dim in k.launch) and threads(k) >= 32, str(k.ir)


@settings(max_examples=examples(60))
@given(fusions(max_steps=6), st.data())
def test_a_fusion_is_scheduled_when_the_user_has_scheduled_it(f: Fusion, data: st.DataObject) -> None:
    assert not is_scheduled(f)
    made = [t for t in f.tensors if t.definition is not None and t.loop]
    assume(made)
    t = data.draw(st.sampled_from(made))
    t.split(0, 2)
    assert is_scheduled(f)


@settings(max_examples=examples(40))
@given(fusions(max_steps=4, rows=1500))
def test_kernels_of_many_points_have_threads(f: Fusion) -> None:
    note(str(f))
    check(f)


@settings(max_examples=examples(40))
@given(fusions(max_steps=3, rows=2048, steps=SCATTERS))
def test_kernels_of_scatters_have_threads(f: Fusion) -> None:
    note(str(f))
    check(f)


FUNCTIONS: dict[str, Any] = {
    "scatter_add": lambda x, i, v: x.scatter_add(1, i, v),
    "index_add": lambda x, i, v: x.index_add(0, i[:, 0], v),
    "index_put": lambda x, i, v: torch.index_put(x * 2, (i[:, 0],), v, accumulate=True),
    "index_copy": lambda x, i, v: x.index_copy(1, i[0], v.relu()),
    "rows written in another order": lambda x, i, v: x.t().index_copy(0, i[0], v.t()).t() + 1,
    "reduced": lambda x, i, v: x.scatter_reduce(0, i, v, "amax").sum(0),
    "gradient of rows": lambda x, i, v: torch.ops.aten.embedding_dense_backward(v, i[:, 0], 7, -1, False),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(70, 50), (3, 2000)])
def test_kernels_of_torch_functions_have_threads(name: str, shape: tuple[int, int]) -> None:
    i = torch.zeros(shape, dtype=torch.int64)
    imported = ig.from_torch(FUNCTIONS[name], (torch.rand(shape), i, torch.rand(shape)))
    found = [s.fusion for s in imported.segments if s.fusion is not None]
    assert found
    for f in found:
        check(f)
