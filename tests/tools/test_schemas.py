"""The JSON Schemas are those of today's documents, refuse others, and hold for documents never seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

import idgraph as ig
from tools.docs.json_schemas import FOLDER, GRAPHS, KINDS, text

READ = {"buffer": "x", "index": "i"}


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", KINDS)
def test_stored_as_they_are(name: str) -> None:
    """Write again with ``python -m tools.docs.json_schemas`` where this fails on purpose."""
    assert (FOLDER / f"{name}.schema.json").read_text(encoding="utf-8") == text(name)
    jsonschema.Draft202012Validator.check_schema(stored(name))


def test_a_real_check_is_what_its_schema_says() -> None:
    nest = {"name": "k", "loops": [["i", 4]], "writes": [{"buffer": "y", "index": "i", "reads": [READ]}]}
    fusion = 'fusion "f" {\n  x = input(shape=(4,), dtype="float32")\n  y = flip(x, dims=(0,))\n  output y\n}'
    found = ig.check.program({"program": fusion, "nests": [nest]})
    assert found.refuted
    report = json.loads(found.to_json())
    jsonschema.validate(report, stored("check-report"), cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report | {"rows": [{"node": "op0"}]}, stored("check-report"))


def test_a_real_dtensor_report_is_what_its_schema_says() -> None:
    def view_and_back(x: torch.Tensor) -> torch.Tensor:
        return x.view(32).view(2, 4, 4)

    mesh = ig.Mesh(x=2, y=2)
    found = ig.check.dtensor(view_and_back, (torch.rand(2, 4, 4),), mesh=mesh, placements={"x": ["S(1)", "S(1)"]})
    report = json.loads(found.to_json())
    assert {r["verdict"] for r in report["rows"]} == {"local", "wrong"}
    jsonschema.validate(report, stored("dtensor-report"), cls=jsonschema.Draft202012Validator)


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
        "tuned": json.dumps(ig.Tuner(timer=lambda work, target: 1.0).tune(f, "cpu").to_data()),
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
