"""Accesses of several elements, one by one: for Python and for the simulator."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

WIDTHS = (2, 4, 8, 16)
REALIGNED = (4, 8, 16)  # elements that begin anywhere
ADDS = (2, 4)


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

    def load(count: int) -> Any:
        def read(registers: Any, first: int, array: Any, at: Any, wanted: Any = True) -> None:
            for n in range(count):
                registers[first + n] = decode(array, array[int(at) + n] if wanted else array.dtype.type(0))

        return read

    def load_realigned(count: int) -> Any:
        def read(registers: Any, first: int, array: Any, at: Any, last: Any) -> None:
            for n, element in enumerate(realigned(array, int(at), count, int(last))):
                registers[first + n] = decode(array, element)

        return read

    def store(count: int) -> Any:
        def write(array: Any, at: Any, registers: Any, first: int) -> None:
            for n in range(count):
                array[int(at) + n] = encode(array, registers[first + n])

        return write

    made = {f"vload{n}{where}": load(n) for n in WIDTHS for where in ("", "_where")}
    made |= {f"vstore{n}": store(n) for n in WIDTHS} | {f"rload{n}": load_realigned(n) for n in REALIGNED}
    return made | {f"vadd{w}": add(w) for w in ADDS}
