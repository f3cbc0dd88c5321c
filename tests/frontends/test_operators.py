"""PyTorch's own operator database through the backend of ``torch.compile``: results and gradients beside eager's."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("rich")

from tools.bench import operators
from tools.judges import torch_operators as bench

KNOWN: list[dict[str, Any]] = json.loads(operators.RESULTS.with_name("operators_backend.json").read_text())["rows"]
# Those that are captured and take least; a group is one function, so that torch captures it once.
QUICK = sorted((r for r in KNOWN if r["status"] in ("equal", "opaque")), key=lambda r: (r["cpu_s"], r["operator"]))
COUNT, GROUP = 200, 10


@pytest.fixture(scope="module")
def groups() -> list[list[bench.Case]]:
    wanted = {r["operator"] for r in QUICK[: COUNT + 20]}  # a torch may lack some
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {c.name: c for c in bench.cases(names=wanted)}
    chosen = [found[r["operator"]] for r in QUICK if r["operator"] in found][:COUNT]
    return [chosen[n :: COUNT // GROUP] for n in range(COUNT // GROUP)]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.xdist_group("operators")  # one worker makes the groups
@pytest.mark.parametrize(
    "number", [n if n % 2 == 0 else pytest.param(n, marks=pytest.mark.nightly) for n in range(COUNT // GROUP)]
)
def test_results_and_gradients_are_eagers(groups: list[list[bench.Case]], number: int) -> None:
    logs: list[str] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?!idgraph)")  # of torch's own
        warnings.filterwarnings("error", message="idgraph: .* left to eager mode")
        assert len(groups[number]) == GROUP
        assert bench.differences(groups[number], logs.append) == []
    assert any("operations in" in text for text in logs)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(40))
def test_the_whole_table(first: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(bench.cases(first, 40))
    for case in found:
        row = operators.judged_by_backend(case, 600)
        assert row["status"] in ("equal", "opaque", "no graph", "eager"), row
