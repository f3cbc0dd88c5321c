"""The assembler of CUDA 13.0 forgets the sign of ``b`` in ``max(max(a, -b), c)`` of signed integers: PTX spells ``-b``
so that it has nothing to fold. The source is right, so neither the simulator nor an interpreter of it sees this."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime import compile_ptx
from idgraph.runtime.cuda.compiler import explicit_negations

pytest.importorskip("numba_cuda")

Build = Callable[[ig.Tensor, ig.Tensor, ig.Tensor], ig.Tensor]
TYPES: tuple[Any, ...] = ("int32", "int16", "int8")

# Each with the same in NumPy: the largest of three or more values, some of them negated.
BUILDS: dict[str, tuple[Build, Callable[[Any, Any, Any], Any]]] = {
    "row": (lambda x, y, z: ig.amax(-x, 1), lambda x, y, z: (-x).max(1)),
    "least": (lambda x, y, z: ig.amin(0 - x, 1), lambda x, y, z: (-x).min(1)),
    "three": (lambda x, y, z: ig.maximum(ig.maximum(x, -y), z), lambda x, y, z: np.maximum(np.maximum(x, -y), z)),
    "least of three": (
        lambda x, y, z: ig.minimum(z, ig.minimum(x, y * -1)), lambda x, y, z: np.minimum(np.minimum(x, -y), z)
    ),
    "chosen": (
        lambda x, y, z: ig.maximum(ig.where(ig.gt(x, -y), x, -y), z), lambda x, y, z: np.maximum(np.maximum(x, -y), z)
    ),
    "scan": (lambda x, y, z: ig.cummax(-x, 1), lambda x, y, z: np.maximum.accumulate(-x, 1)),
}  # fmt: skip


def fusion_of(name: str, dtype: Any) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    made = f.output(BUILDS[name][0](*(f.input(n, shape=(2, 4), dtype=dtype) for n in "xyz")))
    ig.schedule.inline_most(f)
    return f, made


@pytest.mark.parametrize("dtype", TYPES[:2])
@pytest.mark.parametrize("name", ["row", "least", "three"])
def test_the_assembler_gets_no_negation_to_fold(name: str, dtype: Any) -> None:
    (ptx,) = compile_ptx(ig.emit(fusion_of(name, dtype)[0], "cuda"))
    assert re.search(r"\b(max|min)\.s(16|32)", ptx) and re.search(r"\bnot\.b(16|32)", ptx)
    assert not re.search(r"\bneg\.s(16|32)", ptx)


def test_a_negation_is_the_complement_and_one() -> None:
    ptx = "\tneg.s16 \t%rs2, %rs1;\n\tneg.s64 \t%rd2, %rd1;\n\tmin.s16 \t%rs3, %rs2, %rs1;\n"
    spelled = " ".join(explicit_negations(ptx, (9, 0)).split())
    assert spelled == "not.b16 %rs2, %rs1; add.s16 %rs2, %rs2, 1; neg.s64 %rd2, %rd1; min.s16 %rs3, %rs2, %rs1;"
    for value in (0, 1, -1, 7, -32768, 32767):
        assert np.int16(~np.int16(value)) + np.int64(1) in (-value, -value - 65536)


def test_others_stay_as_they_are() -> None:
    alone = "neg.s32 %r2, %r1;\nmax.u32 %r3, %r2, %r1;\n"
    assert explicit_negations(alone, (9, 0)) == alone
    signed = alone.replace("u32", "s32")
    assert explicit_negations(signed, (8, 9)) == signed and explicit_negations(signed, (10, 0)) != signed


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", BUILDS)
def test_values_on_the_device(name: str, dtype: Any) -> None:
    f, made = fusion_of(name, dtype)
    numbers = np.random.default_rng(0).integers(-9, 9, (3, 2, 4)).astype(dtype)
    numbers[0] = [[7, 2, 1, -8], [-1, -8, -5, 6]]
    got = ig.emit(f, "cuda").run(dict(zip("xyz", numbers, strict=True)))[made.name]
    assert (np.asarray(got) == BUILDS[name][1](*numbers)).all()
