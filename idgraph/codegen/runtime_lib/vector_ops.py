"""Accesses of several elements, and pairs of 16-bit floats, on plain elements: for Python and for the simulator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

WIDTHS = (2, 4, 8, 16)
WORDS = (1, 2, 4)
REALIGNED = (4, 8, 16)  # elements that begin anywhere
REALIGNED_WORDS = (2, 4)
ADDS = (2, 4)
PAIR_OPS: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs,
}  # fmt: skip


def realigned(array: Any, at: int, width: int, last: int) -> list[Any]:
    """``width`` elements from ``at`` on, out of the two aligned vectors that hold them; of the second one only what is
    inside of the array where it begins behind ``last``.

    >>> realigned(list(range(11)), 3, 4, 7), realigned(list(range(11)), 7, 4, 7)
    ([3, 4, 5, 6], [7, 8, 9, 10])
    """
    low, high = at // width * width, (at + width - 1) // width * width
    first = [array[low + n] for n in range(width)]
    second = [array[high + n if high <= last else min(high + n, last + width - 1)] for n in range(width)]
    return (first + second)[at % width :][:width]


def plain_vectors(
    decode: Callable[[Any, Any], Any] = lambda _, element: element,
    encode: Callable[[Any, Any], Any] = lambda _, value: value,
) -> dict[str, Any]:
    """Vector accesses as plain element accesses, for the simulator and for plain Python.

    ``decode(array, element)`` is the value of an element as the array holds it, ``encode`` the way back.
    """
    one_by_one = Lock()

    def add(width: int) -> Any:
        def update(array: Any, at: Any, values: Any) -> None:
            with one_by_one:  # the simulator's threads are threads of the system
                for n in range(width):
                    array[int(at) + n] += values[n]

        return update

    def take(array: Any, elements: Sequence[Any]) -> Any:
        return decode(array, elements[0])

    def give(array: Any, value: Any) -> tuple[Any, ...]:
        return (encode(array, value),)

    return _register_accesses("v", "r", 1, (WIDTHS, REALIGNED), take, give) | {f"vadd{w}": add(w) for w in ADDS}


def _register_accesses(
    prefix: str,
    anywhere: str,
    size: int,
    counts: tuple[Sequence[int], Sequence[int]],
    take: Callable[[Any, Sequence[Any]], Any],
    give: Callable[[Any, Any], Sequence[Any]],
) -> dict[str, Any]:
    """Loads and stores of ``counts`` registers: ``take`` makes one of ``size`` elements, ``give`` has its elements."""

    def load(count: int) -> Any:
        def read(registers: Any, first: int, array: Any, at: Any, wanted: Any = True) -> None:
            for n in range(count):
                start = int(at) + size * n
                elements = [array[start + k] if wanted else array.dtype.type(0) for k in range(size)]
                registers[first + n] = take(array, elements)

        return read

    def load_realigned(count: int) -> Any:
        def read(registers: Any, first: int, array: Any, at: Any, last: Any) -> None:
            found = realigned(array, int(at), size * count, int(last))
            for n in range(count):
                registers[first + n] = take(array, found[size * n : size * (n + 1)])

        return read

    def store(count: int) -> Any:
        def write(array: Any, at: Any, registers: Any, first: int) -> None:
            for n in range(count):
                for k, element in enumerate(give(array, registers[first + n])):
                    array[int(at) + size * n + k] = element

        return write

    made = {f"{prefix}load{n}{where}": load(n) for n in counts[0] for where in ("", "_where")}
    made |= {f"{prefix}store{n}": store(n) for n in counts[0]}
    return made | {f"{anywhere}{prefix if size > 1 else ''}load{n}": load_realigned(n) for n in counts[1]}


def plain_pairs(decode: dict[str, Callable[[Any], float]], encode: dict[str, Callable[[float], Any]]) -> dict[str, Any]:
    """Pair operations on tuples of two elements as buffers hold them, for plain Python and for the simulator.

    ``decode`` and ``encode`` take an element to its value and a float32 to the element, by type ("bf16", "f16").
    """

    def compute(op: Any, kind: str) -> Any:
        read, write = decode[kind], encode[kind]

        def pair(*words: Any) -> tuple[Any, ...]:
            return tuple(write(op(*(read(w[half]) for w in words))) for half in (0, 1))

        return pair

    def pick(i: int, k: int) -> Any:
        def chosen(a: Any, b: Any) -> tuple[Any, ...]:
            return (a[i], b[k])

        return chosen

    def where(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b

    def pack(kind: str) -> Any:
        def packed(a: float, b: float) -> tuple[Any, ...]:
            return (encode[kind](a), encode[kind](b))

        return packed

    def half(kind: str, n: int) -> Any:
        def value(word: Any) -> float:
            return decode[kind](word[n])

        return value

    made = _register_accesses(
        "w", "r", 2, (WORDS, REALIGNED_WORDS), lambda _, elements: tuple(elements), lambda _, pair: pair
    )
    made["no_pair"] = (0, 0)
    made["pair_where"] = where
    made |= {f"pair_pick_{'lh'[i]}{'lh'[k]}": pick(i, k) for i in (0, 1) for k in (0, 1)}
    for kind in decode:
        made |= {f"pair_{name}_{kind}": compute(op, kind) for name, op in PAIR_OPS.items()}
        made |= {f"pair_pack_{kind}": pack(kind), f"low_{kind}": half(kind, 0), f"high_{kind}": half(kind, 1)}
    return made
