"""Modules that import each other in a circle: none in most rooms, imports for types only counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import idgraph

ROOT = Path(idgraph.__file__).parent
# Rooms in which objects know each other both ways (a tensor its fusion): imports for types only.
BOTH_WAYS = ("ir",)
ROOMS = sorted(p.name for p in ROOT.iterdir() if (p / "__init__.py").exists() and p.name not in BOTH_WAYS)


def modules(root: Path) -> dict[str, Path]:
    """The modules of the package by name."""
    found = {".".join(("idgraph", *p.relative_to(root).with_suffix("").parts)): p for p in root.rglob("*.py")}
    return {n.removesuffix(".__init__"): p for n, p in found.items()}


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the package that one imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for a in node.names:
                name = f"{node.module}.{a.name}"
                yield from (n for n in (name if name in known else node.module,) if n in known)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle; none: an empty list.

    >>> circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    ['b', 'c']
    """
    left = {n: {m for m in to if m in graph} for n, to in graph.items()}
    while leaves := [n for n, to in left.items() if not to & left.keys()]:
        for n in leaves:
            del left[n]
    if not left:
        return []
    path = [next(iter(sorted(left)))]
    while path.count(path[-1]) < 2:
        path.append(min(left[path[-1]] & left.keys()))
    return sorted(set(path[path.index(path[-1]) :]))


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_modules_of_a_room_import_each_other(room: str) -> None:
    known = modules(ROOT)
    mine = {n: p for n, p in known.items() if n.split(".")[1:2] == [room]}
    graph = {n: set(imported(p, known)) - {n} for n, p in mine.items()}
    assert circle(graph) == []
