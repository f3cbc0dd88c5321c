"""Untrusted JSON and source: mutated inputs end in a report or in one error of ours, soon, and nothing of them runs."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import copy
import json
import os
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.check.decide import decide
from idgraph.check.program_json import read_program
from idgraph.check.run import of_source
from tests.check.test_triton_source import (
    GATHER,
    INDIRECT,
    LOOPED,
    PARAMS,
    POINTWISE,
    ROTATE,
    ROWS,
    SOFTMAX,
    wrapper,
)  # fmt: skip

SLOW = 5.0  # seconds of processor time that no input may take
WORDS = (
    "0", "-1", "1", "7", "9999999999999999999", "i", "j", "x", "z", "%", "//", "*", "(", ")", "True", "None", "tl.load",
    "tl.store", "xindex", "xmask", "where", "__import__('os').system('touch pwned')", "open('pwned', 'w')", "eval", "@",
    "lambda: 0", "\n", "\0", "é", "[", "]", "{", "}", '"', "'", ":", "1 << 999", "i" * 300, "for", "while True:",
)  # fmt: skip
VALUES: tuple[object, ...] = (
    None, True, 0, -1, 1 << 70, 1.5, float("nan"), "", "i", "i*8 + j", "i // 0", "i % 0", "__import__('os')", [], {},
    [[]], ["i", 4], {"buffer": "x", "index": "i"}, "(" * 500, "x" * 5000,
)  # fmt: skip
NEST: dict[str, Any] = {
    "program": ROTATE["program"],
    "symbols": {"n": {"min": 1, "max": None, "multiple_of": 1}}, "facts": ["n % 2 == 0"],
    "buffers": {"z": {"tensor": "z", "strides": [8, 1], "offset": 0, "after": "k"}},
    "nests": [{
        "name": "k", "loops": [["i", 4], ["j", 8]], "reduce": [], "kernel": "a",
        "loads": {"v": {"buffer": "x", "index": "i"}, "w": {"text": "exp(x)"}},
        "places": {"p": {"value": "v", "size": 4}},
        "writes": [{
            "buffer": "z", "index": "i*8 + j", "when": "True", "mode": "store",
            "reads": [
                {"buffer": "x", "index": "i*8 + j"}, {"buffer": "x", "index": "i*8 + (j + 4)%8", "when": "j < 9"},
            ],
        }],
    }],
    "order": ["k"],
}  # fmt: skip


def mangled(text: str, r: random.Random) -> str:
    """A few characters dropped, doubled, exchanged or replaced by words."""
    for _ in range(r.randint(1, 4)):
        a, b = sorted((r.randrange(len(text) + 1), r.randrange(len(text) + 1)))
        b = min(b, a + r.randint(0, 12))
        new = r.choice((r.choice(WORDS), r.choice(string.printable), text[b : b + 8], ""))
        text = text[:a] + new + text[b:]
    return text


def places(data: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    out = [path] if path else []
    if isinstance(data, dict):
        out += [p for k, v in data.items() for p in places(v, (*path, k))]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(data, list):
        out += [p for k, v in enumerate(data) for p in places(v, (*path, k))]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return out


def exchanged(r: random.Random) -> dict[str, Any]:
    """A value of the program replaced by one of another kind, or taken from another place, or lost."""
    data = copy.deepcopy(NEST)
    for _ in range(r.randint(1, 3)):
        every = places(data)
        path, other = r.choice(every), r.choice(every)
        at: Any = data
        for k in path[:-1]:
            at = at[k]
        source: Any = data
        for k in other:
            source = source[k]
        kind = r.random()
        if kind < 0.15 and isinstance(at, dict):
            del at[path[-1]]
        else:
            at[path[-1]] = r.choice(VALUES) if kind < 0.7 else copy.deepcopy(source)
    return data


def json_case(r: random.Random) -> None:
    kind = r.random()
    if kind < 0.5:
        ig.check.program(exchanged(r), budget=1 << 12)
    elif kind < 0.8:
        ig.check.program("{" + mangled(json.dumps(NEST)[1:], r), budget=1 << 12)
    else:
        ig.check.program(json.dumps(exchanged(r)), budget=1 << 12)


KERNELS = (
    (wrapper(POINTWISE, PARAMS, "x", "x, z, 32"), ROTATE),
    (wrapper(LOOPED, ROWS, "x", "x, z, 8, 33", "triton_red_fused_0"), SOFTMAX),
    (wrapper(INDIRECT, "in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr", "i, x", "i, x, z, 20"), GATHER),
)


def source_case(r: random.Random) -> None:
    text, data = r.choice(KERNELS)
    made, _ = of_source(read_program(data), mangled(text, r))
    decide(made, budget=1 << 12)


def attack(
    case: Callable[[random.Random], None], count: int, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs ``count`` inputs; words among them would call the system or write a file, if anything ran them."""

    def refused(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("something of the input ran")

    monkeypatch.setattr(os, "system", refused)
    monkeypatch.chdir(folder)
    for k in range(count):
        r = random.Random(seed * 1_000_003 + k)
        start = time.process_time()
        try:
            case(r)
        except (ig.IdGraphError, AssertionError) as error:
            if isinstance(error, AssertionError):
                raise
        except Exception as error:
            raise AssertionError(f"{case.__name__}, seed {seed}, input {k}: {error!r}") from error
        spent = time.process_time() - start
        assert spent < SLOW, f"{case.__name__}, seed {seed}, input {k}: {spent:.1f} s"
    assert not list(folder.iterdir())


@pytest.mark.parametrize("case", [json_case, source_case])
def test_mutated_inputs_end_in_one_error(
    case: Callable[[random.Random], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(case, 150, 0, tmp_path, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("case", [json_case, source_case])
def test_ten_thousand_mutated_inputs(
    case: Callable[[random.Random], None], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(case, 500, seed, tmp_path, monkeypatch)
