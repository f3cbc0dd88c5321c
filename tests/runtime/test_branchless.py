"""Sources that compilers get with calls for choices and joined tests, and the functions that the calls name."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import dis
import importlib
from typing import Any

import numpy as np
import pytest

from idgraph.runtime.cuda import intrinsics_math, intrinsics_memory
from idgraph.runtime.source_function import function_of


def select(wanted: bool, a: Any, b: Any) -> Any:
    return a if wanted else b


NAMES = {"u32": np.uint32, "f32": np.float32, "i64": np.int64, "select": select}


def jumps(source: str) -> int:
    made = function_of(source, "f", dict(NAMES), "cuda")
    return sum("JUMP" in i.opname and "IF" in i.opname for i in dis.get_instructions(made))


@pytest.mark.parametrize(
    ("line", "branches"),
    [
        ("x = a if n < u32(13) else f32(0.0)", 0),
        ("x = a if (u32(1) <= n) and (n < u32(13)) and (m + u32(2) * n < u32(9)) else f32(0.0)", 0),
        ("x = (a if n < m else b) if m < n else b", 0),
        ("x = v[n] if n < u32(4) else f32(0.0)", 1),  # the element is not there otherwise
        ("x = a if (n < u32(4)) and (v[n] > a) else b", 1),
        ("x = a if (m > n) and (n // m > n) else b", 1),
        ("x = a if (n < m) or (m < n) else b", 1),
    ],
)  # fmt: skip
def test_a_choice_of_what_is_there_is_no_branch(line: str, branches: int) -> None:
    source = f"def f(a, b, n, m, v):\n    {line}\n    return x\n"
    assert (jumps(source) > 0) == (branches > 0)
    plain: Any = function_of(source, "f", {k: x for k, x in NAMES.items() if k != "select"}, "python")
    made: Any = function_of(source, "f", dict(NAMES), "cuda")
    v = np.arange(4, dtype=np.float32)
    with np.errstate(all="ignore"):
        for n in range(14):
            for m in range(4):
                given = np.float32(1.5), np.float32(-2), np.uint32(n), np.uint32(m), v
                assert plain(*given) == made(*given)


@pytest.fixture(name="calls")
def _calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The device's functions, compiled for this processor."""
    modules = [importlib.import_module(n) for n in ("numba.extending", "numba.types", "llvmlite.ir")]
    here = modules[0].intrinsic, modules[1], modules[2]
    for module in (intrinsics_math, intrinsics_memory):
        monkeypatch.setattr(module, "numba_modules", lambda: here)
    return intrinsics_math.single_calls()


def compiled(source: str, calls: dict[str, Any]) -> Any:
    return importlib.import_module("numba").njit(error_model="numpy")(function_of(source, "f", dict(calls), "cuda"))


def test_the_functions_of_a_device_give_what_their_texts_say(calls: dict[str, Any]) -> None:
    choose = compiled("def f(c, a, b): return select(c, a, b)", calls)
    for c in (True, False):
        assert choose(c, np.float32(1.5), np.float32(-0.0)) == (1.5 if c else 0.0)
        assert choose(c, np.float32(1.5), 3) == (1.5 if c else 3.0), "of one type"
        assert choose(c, True, False) is c
    divide = compiled("def f(a, b): return div(a, b)", calls)
    single, double = divide(np.float32(1), np.float32(3)), divide(1.0, 3.0)
    assert np.float32(single) == np.float32(1) / np.float32(3) and double == 1 / 3
    assert divide(np.float32(1), np.float32(0)) == np.inf and np.isnan(divide(0.0, 0.0))
    assert divide(7, 2) == 3.5 and divide(np.float32(1), 3) == 1 / 3
    wrap = compiled("def f(a, n): return wrapped(a, n)", calls)
    for n in (1, 7, 2**31):
        for a in (0, n - 1, n, min(2 * n - 1, 2**32 - 1)):
            assert wrap(np.uint32(a), np.uint32(n)) == a % n
    load = compiled("def f(w): return bf16_load(w)", calls)
    words = np.arange(0, 1 << 16, 7, dtype=np.uint16)
    wanted = (words.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(np.array([load(w) for w in words], np.float32), wanted)
    for name, kind in (("u8", np.uint8), ("int8", np.int8), ("int16", np.int16), ("i32", np.int32)):
        convert = compiled(f"def f(x): return {name}(x)", calls)
        for x in (0, 1, -1, 127, 128, 255, 256, -129, 40000, 2**31, -(2**31) - 5, 2**63 - 1):
            assert convert(x) == int(np.int64(x).astype(kind)), (name, x)
    near = compiled("def f(x): return near_int(x)", calls)
    assert [near(np.float32(x)) for x in (2.75, -2.75, 0.0, 1e6)] == [2, -2, 0, 1000000]
