"""Faults of an access, by code; 0 where nothing is accessed, 1 for a right access."""

from __future__ import annotations

from typing import Final

OUTSIDE_WRITE: Final = 2
ADDRESS: Final = 3
OUTSIDE_READ: Final = 4
ELEMENT: Final = 5
LOOSE: Final = 6
STRICT: Final = 7
UNWRITTEN: Final = 8
SLOT_RANGE: Final = 9
SLOT_ELEMENT: Final = 10
SLOT_EMPTY: Final = 11
LOAD_RANGE: Final = 12
LOAD_BOUNDS: Final = 13
SPREAD: Final = 14
TWICE: Final = 15
NEVER: Final = 16
REDUCED: Final = 17

TEXT: Final = {
    OUTSIDE_WRITE: "writes outside the tensor",
    ADDRESS: "wrong address",
    OUTSIDE_READ: "reads outside the tensor",
    ELEMENT: "reads the wrong element",
    LOOSE: "reads where the operation reads nothing (a missing predicate)",
    STRICT: "does not read what the operation reads (a predicate too strict)",
    UNWRITTEN: "reads where nothing is written",
    SLOT_RANGE: "reads a buffer slot outside the producer's loops",
    SLOT_ELEMENT: "reads a buffer slot that holds another element",
    SLOT_EMPTY: "reads a buffer slot that is never written",
    LOAD_RANGE: "loads an index outside the index tensor",
    LOAD_BOUNDS: "its own load bounds refuse an index that is in range",
    SPREAD: "one accumulator gets terms of several elements",
    TWICE: "writes an element more than once",
    NEVER: "never writes an element",
    REDUCED: "reduces an index more than once, or not at all",
}
