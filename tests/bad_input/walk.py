"""Every public name with every kind of value at every parameter; what a new name needs is a line in `VALID`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

import idgraph as ig


class Case:
    """One fusion and all that can be asked of it, and a stranger whose parts are nobody's here."""

    def __init__(self) -> None:
        self.f = f = ig.Fusion("f")
        self.x = f.input("x", shape=(4, 6))
        self.i = f.input("i", shape=(4, 6), dtype="int64")
        self.i1 = f.input("i1", shape=(3,), dtype="int64")
        self.c = f.input("c", shape=(4, 6), dtype="bool")
        self.t = ig.copy(self.x, name="t")
        self.u = f.output(ig.exp(self.t, name="u"))
        self.e = self.u.definition
        self.m = ig.IdModel(f)
        self.a = self.m.access(self.e, self.t)
        other = ig.Fusion("other")
        self.foreign = other.output(ig.exp(other.input("x", shape=(4, 6))))
        self.program = ig.emit(f, target="numpy")


def bad_values(case: Case) -> dict[str, Any]:
    """One of each kind of wrong thing; what is right somewhere is wrong elsewhere."""
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    return {
        "None": None, "True": True, "-1": -1, "huge": 10**30, "-huge": -(10**30), "2.5": 2.5, "nan": float("nan"),
        "inf": float("inf"), "complex": 1j, "empty text": "", "text": "a\nb", "NUL": "\0", "bytes": b"x", "[]": [],
        "()": (), "{}": {}, "set": {1}, "object": object(), "function": len, "class": int, "deep list": deep,
        "list of None": [None], "list of text": ["x"], "dict": {"a": None}, "dict of axes": {0: 9}, "slice": slice(None),
        "ellipsis": ..., "array": np.arange(3), "numpy float": np.float32(1), "generator": (n for n in range(2)),
        "tensor": case.t, "foreign tensor": case.foreign, "fusion": case.f, "foreign fusion": case.foreign.fusion,
        "operation": case.e, "foreign operation": case.foreign.definition, "axis": case.t.logical[0],
        "foreign axis": case.foreign.logical[0], "expression": case.a.address, "group": case.m.exact.groups[0],
        "model": case.m, "foreign model": ig.IdModel(case.foreign.fusion), "access": case.a, "program": case.program,
    }  # fmt: skip
