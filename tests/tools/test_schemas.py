"""The JSON Schemas are those of today's documents, refuse others, and hold for documents never seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import idgraph as ig
from tools.docs.json_schemas import FOLDER, GRAPHS, KINDS, text


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", KINDS)
def test_stored_as_they_are(name: str) -> None:
    """Write again with ``python -m tools.docs.json_schemas`` where this fails on purpose."""
    assert (FOLDER / f"{name}.schema.json").read_text(encoding="utf-8") == text(name)
    jsonschema.Draft202012Validator.check_schema(stored(name))


def unseen() -> ig.Fusion:
    f = ig.Fusion("softmax")
    x = f.input("x", shape=(6, 40), dtype="bfloat16")
    f.output(ig.cast(ig.softmax(ig.cast(x, "float32"), 1), "bfloat16"))
    ig.schedule.auto(f)
    return f


def test_they_hold_for_documents_that_they_were_not_made_from() -> None:
    f = unseen()
    documents = {
        "report": ig.report(f).to_json(), "cost": ig.cost(ig.emit(f, "cuda")).to_json(),
        "device": ig.cost(ig.emit(f, "cuda")).device.to_json(),
    }  # fmt: skip
    for name, document in documents.items():
        jsonschema.validate(json.loads(document), stored(name), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.json")), ids=lambda p: p.name)
def test_every_captured_graph_is_one(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, stored("captured-graph"), cls=jsonschema.Draft202012Validator)


def test_a_report_without_a_key_is_refused() -> None:
    whole = json.loads(ig.report(unseen()).to_json())
    for broken in (
        {k: v for k, v in whole.items() if k != "segments"},
        whole | {"segments": 3},
        whole | {"name": None},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, stored("report"), cls=jsonschema.Draft202012Validator)
