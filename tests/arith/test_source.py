"""Sources mean what the expression means, in every dialect, shared or not."""

from __future__ import annotations

import ctypes
import itertools
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idgraph.arith import (
    C_PRELUDE,
    ArithError,
    Expr,
    expensive,
    integer_type,
    parse,
    reduce_strength,
    simplify,
    symbol,
    to_source,
)
from tools.judges.random_expressions import Generator, points, values_of

RENAME = {name: f"v_{name}" for name in "ijknm"}


def cases(count: int, seed: int) -> list[tuple[Expr, dict[str, Any], Any]]:
    """Expressions that are defined everywhere on their points, with their values."""
    pick = random.Random(seed)
    out: list[tuple[Expr, dict[str, Any], Any]] = []
    for e in Generator(seed).expressions():
        env = points((e,), pick)
        if not env or len(next(iter(env.values()))) == 0:
            continue
        values, defined = values_of(e, env)
        if defined.all():
            out.append((e, env, values))
        if len(out) == count:
            return out
    return out


def run_python(source: str, env: dict[str, int]) -> Any:
    return eval(source, {"min": min, "max": max, "__builtins__": {}}, env)  # noqa: S307  # source of our own printer


@pytest.mark.parametrize("dialect", ["python", "numba"])
def test_scalar_dialects(dialect: Any) -> None:
    for e, env, values in cases(80, 3):
        source = to_source(e, dialect, RENAME)
        for at in range(0, len(values), max(1, len(values) // 7)):
            point = {RENAME[k]: int(v[at]) for k, v in env.items()}
            assert run_python(source, point) == values[at], (e, point)


def test_numpy_dialect() -> None:
    for e, env, values in cases(80, 4):
        source = to_source(e, "numpy", RENAME)
        found = eval(source, {"np": np}, {RENAME[k]: v for k, v in env.items()})  # noqa: S307  # as above
        assert np.array_equal(np.broadcast_to(found, values.shape), values), e


def test_numba_floors_like_python() -> None:
    numba = pytest.importorskip("numba")
    space: dict[str, Any] = {}
    text = to_source(parse("i//j*1000 + i%j + where(i < 0, i//3, i%-3)"), "numba")
    exec(f"def f(i, j):\n    return {text}", space)
    fast = numba.njit(space["f"])
    for i, j in itertools.product(range(-9, 10), (-4, -1, 1, 3)):
        assert fast(i, j) == space["f"](i, j)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_c_dialect(tmp_path: Path) -> None:
    some = cases(40, 5)
    lines = ["#include <stdint.h>", C_PRELUDE]
    args = ", ".join(f"int64_t {RENAME[k]}" for k in "ijknm")
    for k, (e, _, _) in enumerate(some):
        lines.append(f"int64_t f{k}({args}) {{ return {to_source(e, 'c', RENAME)}; }}")
        lines.append(f"int64_t g{k}({args}) {{ return {to_source(reduce_strength(simplify(e)), 'c', RENAME)}; }}")
    file = tmp_path / "f.c"
    file.write_text("\n".join(lines))
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "f.so", file], check=True)
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    for k, (e, env, values) in enumerate(some):
        for name in (f"f{k}", f"g{k}"):
            call = getattr(library, name)
            call.restype = ctypes.c_int64
            for at in range(0, len(values), max(1, len(values) // 9)):
                point = [ctypes.c_int64(int(env[s][at]) if s in env else 0) for s in "ijknm"]
                assert call(*point) == values[at], (name, e)


def test_names_are_quoted() -> None:
    with pytest.raises(ArithError, match="identifier"):
        to_source(symbol("a; import os"), "python")
    with pytest.raises(ArithError, match="identifier"):
        to_source(symbol("ä"), "python")
    assert to_source(symbol("a; import os"), "python", {"a; import os": "v0"}) == "v0"
    with pytest.raises(ArithError, match="identifier"):
        to_source(symbol("a"), "python", {"a": "1 + 1"})
    with pytest.raises(ArithError, match="dialect"):
        to_source(symbol("a"), "cobol")  # type: ignore[arg-type]


def test_reduced_strength_keeps_values() -> None:
    for e, env, values in cases(120, 6):
        reduced = reduce_strength(e)
        found, defined = values_of(reduced, env)
        assert defined.all(), (e, reduced)
        assert np.array_equal(found, values), (e, reduced)
        assert expensive(reduced) <= expensive(e)


def test_rotation_needs_no_division() -> None:
    n = symbol("n", 2, 1 << 20, multiple_of=2)
    i = symbol("i", 0, n - 1)
    e = reduce_strength(simplify((i + n // 2) % n))
    assert expensive(e) == 0
    assert integer_type([e]) == "uint32"
    assert "%" not in to_source(e, "python")
    flip = symbol("k", -48, 95)
    assert expensive(reduce_strength(simplify(flip % 96))) <= 1
