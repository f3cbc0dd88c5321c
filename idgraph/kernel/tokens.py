"""Pieces of a kernel's text: splits outside of brackets and quotes, names, numbers, types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, get_args

from idgraph.ir import DTYPES, DType, Scalar
from idgraph.kernel.statements import AccumulateOp, Place

MAX_LANES: Final = 1024
WAYS: Final = frozenset(
    {"serial", "rolled", "vectorize", "unroll", *(f"{k}Idx.{a}" for k in ("block", "thread") for a in "xyz")}
)
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*'?\Z", re.ASCII)
NUMBER: Final = re.compile(r"-?(\d{1,400}|inf|nan|(?=\d*\.?\d)\d{0,40}(\.\d{0,40})?(e[+-]?\d{1,4})?)\Z", re.ASCII)
_OPEN, _CLOSE = "([{", ")]}"


class WrongError(Exception):
    """The reason why a line cannot be read."""


def _marks(text: str) -> Iterator[tuple[int, int]]:
    """Each place of ``text`` that is in no quotes, with the number of brackets open there."""
    depth, at = 0, 0
    while at < len(text):
        c = text[at]
        if c in '"`':
            end = at + 1
            while end < len(text) and text[end] != c:
                end += 2 if c == '"' and text[end] == "\\" else 1
            if end >= len(text):
                raise WrongError(f"a {c} without its end")
            at = end + 1
            continue
        depth += (c in _OPEN) - (c in _CLOSE)
        if depth < 0:
            raise WrongError(f"a {c!r} too many")
        yield at, depth
        at += 1


def split_top_level(text: str, mark: str) -> list[str]:
    """``text`` split at each ``mark`` outside of brackets and quotes.

    >>> parted('min(a, b), "x, y"', ",")
    ['min(a, b)', '"x, y"']
    """
    made: list[str] = []
    start = 0
    for at, depth in _marks(text):
        if depth == 0 and text[at] == mark:
            made.append(text[start:at].strip(" "))
            start = at + 1
    return [*made, text[start:].strip(" ")]


def parted_once(text: str, mark: str) -> tuple[str, str, str]:
    """``text`` before and behind the first ``mark`` outside of brackets and quotes."""
    for at, depth in _marks(text):
        if depth == 0 and text.startswith(mark, at):
            return text[:at], mark, text[at + len(mark) :]
    return text, "", ""


def split_once(text: str, mark: str) -> tuple[str, str]:
    """The same; a missing mark is an error."""
    left, found, right = parted_once(text, mark)
    if not found:
        raise WrongError(f"{mark.strip()!r} is missing in {text[:40]!r}")
    return left, right


def closing(text: str) -> int:
    """The position at which the first bracket of ``text``, its first character, closes."""
    for at, depth in _marks(text):
        if depth == 0 and at:
            return at
    raise WrongError("a bracket without its end")


def name_of(text: str) -> str:
    """A name."""
    text = text.strip("`")
    if NAME.match(text) is None:
        raise WrongError(f"{text[:40]!r} is not a name")
    return text


def way_of(text: str) -> str:
    """A way to run a loop."""
    if text not in WAYS:
        raise WrongError(f"{text[:40]!r} is not a way to run a loop")
    return text


def dtype_of(text: str) -> DType:
    """A type."""
    for dtype in DTYPES:
        if dtype == text:
            return dtype
    raise WrongError(f"{text[:40]!r} is not a type")


def place_of(text: str) -> Place:
    """A place in memory."""
    places: tuple[Place, ...] = get_args(Place)
    for place in places:
        if place == text:
            return place
    raise WrongError(f"{text[:40]!r} is not a place in memory: {', '.join(places)}")


def reduction_of(text: str) -> AccumulateOp:
    """How values are combined."""
    ops: tuple[AccumulateOp, ...] = get_args(AccumulateOp)
    for op in ops:
        if op == text:
            return op
    raise WrongError(f"{text[:40]!r} is not a reduction: {', '.join(ops)}")


def scalar_of(text: str) -> Scalar:
    """A number or a truth value."""
    if text in ("True", "False"):
        return text == "True"
    if NUMBER.match(text) is None:
        raise WrongError(f"{text[:40]!r} is not a number")
    return int(text) if text.lstrip("-").isdigit() else float(text)


def integer_of(text: str) -> int:
    """A count."""
    if not re.match(r"\d{1,9}\Z", text, re.ASCII):
        raise WrongError(f"{text[:40]!r} is not a number")
    return int(text)


def lane_count(text: str) -> int:
    """Elements of one access."""
    count = integer_of(text)
    if not 1 <= count <= MAX_LANES:
        raise WrongError(f"{count} elements in one access")
    return count


def string_of(text: str) -> str:
    """A quoted text."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, str):
        raise WrongError(f"{text[:40]!r} is not a quoted text")
    return found
