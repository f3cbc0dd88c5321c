"""Every public function and method, every parameter, a value of every kind: one clear error, or what the hint says."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.errors import full_tracebacks
from idgraph.viz.explorer import HasFusion
from tests.bad_input.walk import RIGHT, Case, callables, wrong_values
from tests.golden.errors import frames_of_ours

NAMES = [name for name, _ in callables(Case())]
WORDS: list[tuple[Any, Sequence[str]]] = [  # what a value is, and the words of an annotation that allow it
    (type(None), ("None", "Dims", "Force", "object")), (bool, ("bool", "Checks", "Scalar", "Operand", "object")),
    (int, ("int", "Int", "Scalar", "Operand", "Dims", "Extents", "object")),
    (float, ("Scalar", "Operand", "float", "object")),
    (str, ("str", "object", "Force")), (list, ("Sequence", "Facts", "Iterable", "Dims", "Extents", "object")),
    (dict, ("Mapping", "Force", "object")), (slice, ("object",)), (type(...), ("object",)),
    (ig.Tensor, ("Tensor", "Operand", "object")), (ig.Fusion, ("Fusion", "object")), (ig.TensorExpr, ("TensorExpr",)),
    (ig.IterDomain, ("IterDomain",)), (ig.Expr, ("Expr", "Operand", "IntLike", "object")),
    (ig.IdModel, ("IdModel", "Maps")),
]  # fmt: skip


def allowed(value: object, annotation: str) -> bool:
    """Whether the annotation speaks of this kind of value at all."""
    if "HasFusion" in annotation and isinstance(value, HasFusion):
        return True
    kind = next((words for kind, words in WORDS if isinstance(value, kind)), ())
    return annotation == "object" or any(word in annotation for word in kind)


def arguments(c: Case, name: str, parameters: Sequence[inspect.Parameter], at: inspect.Parameter, value: Any):
    """Right values for all parameters that have no default, ``value`` at one."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    in_a_row = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    for p in parameters:
        if p is not at and (p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)):
            continue
        short = name.rpartition(".")[2]
        right = RIGHT.get(f"{name}.{p.name}") or RIGHT.get(f"{short}.{p.name}") or RIGHT.get(p.name)
        given = value if p is at else right(c) if right is not None else pytest.fail(f"RIGHT needs {name}.{p.name}")
        if p.kind == p.VAR_KEYWORD:
            named["title"] = given
        elif p.kind == p.VAR_POSITIONAL or (in_a_row and p.kind == p.POSITIONAL_OR_KEYWORD):
            args.append(given)
        else:
            named[p.name] = given
    return args, named


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_one_clear_error(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # "" and "a\nb" name folders
    full_tracebacks(False)
    request.addfinalizer(full_tracebacks)
    c = Case()
    found, values = dict(callables(c, name)), wrong_values(c)
    parameters = list(inspect.signature(found[name]).parameters.values())
    for at in parameters:
        for k in range(len(values)):
            value = values[k]
            args, named = arguments(c, name, parameters, at, value)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    found[name](*args, **named)
            except ig.IdGraphError as error:
                told, frames = str(error), frames_of_ours(error)
                assert len(told) > 10 and frames <= 1, f"{name}({at.name}=...): {frames} frames of ours: {told}"
                continue
            except FileNotFoundError:
                continue  # a path is whatever names a file
            except Exception as error:
                pytest.fail(f"{name}({at.name}={type(value).__name__}): {type(error).__name__}: {error}"[:300])
            assert allowed(value, str(at.annotation)), f"{name} takes {value!r:.60} for {at.name}: {at.annotation}"
            c = Case()  # a step that was taken changed it
            found, values = dict(callables(c, name)), wrong_values(c)


def test_the_walk_finds_a_silent_function() -> None:
    def silent(x: ig.Tensor) -> ig.Tensor:
        return x

    assert not allowed("text", str(inspect.signature(silent).parameters["x"].annotation))
    assert allowed(1j, "object") and not allowed(1j, "Facts")
    assert allowed(None, "int | None") and not allowed(2.5, "int | None") and not allowed(None, "int")
