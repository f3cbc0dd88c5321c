"""Kernel text with parts cut, doubled, swapped, nested and filled with huge numbers: read or refused, and soon.

``python -m tests.kernel.test_fuzz_text [COUNT] [SEED]`` reads more of them; the nightly run reads 5 000.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable

import pytest

import idgraph as ig
from tests.emit.cases import CASES
from tests.kernel.test_text import kernels

HOSTILE = ("0", "-1", "9" * 19, "9" * 400, "9" * 5000, "2**62", "1e999", "nan", "(((", "i0//0", "i0%0", "n*n*n")
SIGNS = '()[]{}`",:;<>=+-*/%#@?._\u202e\u00e9\n \t0a'
SECONDS = 5.0
Change = Callable[[random.Random, str], str]


def cut(r: random.Random, text: str) -> str:
    at = r.randrange(len(text) + 1)
    return text[:at] + text[at + r.randrange(1, 30) :]


def copied(r: random.Random, text: str) -> str:
    a, b = r.randrange(len(text) + 1), r.randrange(len(text) + 1)
    return text[:b] + text[a : a + 30] * r.choice((1, 2, 50)) + text[b:]


def signs(r: random.Random, text: str) -> str:
    at = r.randrange(len(text) + 1)
    return text[:at] + r.choice(SIGNS) * r.choice((1, 1, 1, 40, 300)) + text[at + r.randrange(2) :]


def lines(r: random.Random, text: str) -> str:
    """A line moved, doubled, left out or indented anew."""
    rows = text.split("\n")
    at = r.randrange(len(rows))
    row = rows.pop(at)
    changed = r.choice(([row] * 200, [], ["  " * r.randrange(70) + row.strip()], [row]))
    at = at if len(changed) != 1 or changed[0] != row else r.randrange(len(rows) + 1)
    return "\n".join([*rows[:at], *changed, *rows[at:]])


def word(r: random.Random, text: str) -> str:
    """A word or number in place of another, or deep in brackets."""
    found = list(re.finditer(r"\b\w+\b", text))
    if not found:
        return text
    x, deep = r.choice(found), r.choice((1, 30, 2000))
    nested = "(" * deep + x[0] + r.choice(("", "+1", "*n", "//3")) + ")" * deep
    return text[: x.start()] + r.choice((r.choice(found)[0], r.choice(HOSTILE), nested)) + text[x.end() :]


CHANGES: tuple[Change, ...] = (cut, copied, signs, lines, word)


def texts() -> list[str]:
    """Kernels of every eighth case, as lowered and after the last pass, each night after every pass."""
    return [text for name in list(CASES)[::8] for _, text in kernels(CASES[name]())]


def fuzz(count: int, seed: int) -> tuple[int, int, int]:
    """Texts that were read, those that were refused, and characters; anything else is an assertion's failure."""
    r, good = random.Random(seed), texts()
    read = refused = size = 0
    told: list[ig.IdGraphError] = []
    for _ in range(count):
        text = r.choice(good)
        for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
            text = r.choice(CHANGES)(r, text)
        size += len(text)
        began = time.process_time()
        try:
            k = ig.kernel.parse(text)
        except ig.IdGraphError as error:
            refused += 1
            told.append(error)
        else:
            read += 1
            assert ig.kernel.parse(str(k)) == k
        assert time.process_time() - began < SECONDS, text[:200]
    for problem in told:
        assert problem.what.startswith(("line ", "kernel text ")), problem.what[:100]
        assert len(str(problem)) < 1000
    return read, refused, size


def test_changed_kernels_are_read_or_refused() -> None:
    read, refused, _ = fuzz(250, seed=3)
    assert read > 10 and refused > 100


@pytest.mark.nightly
def test_five_thousand_changed_kernels() -> None:
    read, refused, _ = fuzz(5000, seed=random.randrange(10**6))
    assert read > 300 and refused > 3000


if __name__ == "__main__":
    number, start = (int(x) for x in (*sys.argv[1:], "5000", "0")[:2])
    print("{} read, {} refused, {} characters".format(*fuzz(number, start)))
