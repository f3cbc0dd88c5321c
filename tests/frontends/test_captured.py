"""Captured graphs: everything maps, and the values are those of torch's own interpretation of the same JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from idgraph.frontends.import_ import Import, from_json
from idgraph.ir import Fusion, parse_fusion
from tools.bench.corpus import compare, memory, with_oracle
from tools.judges.smaller_graph import SMALLER, smaller
from tools.judges.torch_graph import difference, in_float64, interpret, load, moved, noise, random_inputs

GRAPHS = Path(__file__).parent / "graphs"
SORT = GRAPHS / "sort_gather.core.json"
FAMILIES = sorted(p for p in GRAPHS.glob("*.json") if p != SORT)
SMALL = [p for p in FAMILIES if "_real" not in p.name]
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "graphs"


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FAMILIES, ids=name)
def test_nothing_is_opaque(path: Path) -> None:
    imported = from_json(path)
    graph = load(path)
    calls = [n["target"] for n in graph["nodes"] if n["op"] == "call_function"]
    assert imported.coverage.opaque == {}
    assert imported.coverage.mapped == {t: calls.count(t) for t in sorted(set(calls))}
    assert [t.name for t in imported.fusion.inputs] == [n["name"] for n in graph["nodes"] if n["op"] == "placeholder"]
    imported.fusion.verify()


@pytest.mark.parametrize("path", FAMILIES, ids=name)
def test_tensors_keep_names_and_shapes(path: Path) -> None:
    fusion = from_json(path).fusion
    for node in load(path)["nodes"]:
        if node["op"] == "call_function" and node["users"]:
            tensor = fusion[node["name"]]
            assert tensor.shape == tuple(node["out"]["shape"])
            assert tensor.dtype == node["out"]["dtype"]
            assert tensor.source_line is not None
            assert tensor.source_line.file == path.name
            assert tensor.source_line.code.startswith(f"{node['name']} = {node['target']}(")


@pytest.mark.parametrize("path", SMALL, ids=name)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_are_torchs(path: Path, seed: int) -> None:
    assert compare(path, "oracle", 10**8, seed).values == "equal"


@pytest.mark.parametrize("path", SMALL, ids=name)
def test_text_form_reads_back(path: Path) -> None:
    fusion = from_json(path).fusion
    assert str(parse_fusion(str(fusion))) == str(fusion)


def test_a_wrong_value_is_seen() -> None:
    path = GRAPHS / "rope_half.core.json"
    imported = with_oracle(from_json(path))
    graph = load(path)
    inputs = random_inputs(graph, 0)
    found: Any = imported.run(inputs[0].roll(1, -1), *inputs[1:], target="oracle")
    wanted = interpret(graph, inputs)
    assert any(difference(a, b) for a, b in zip(found, wanted, strict=True) if b is not None)


def cut(imported: Import) -> list[tuple[tuple[str, ...], tuple[str, ...], list[str]]]:
    return [(s.inputs, s.outputs, [n.name for n in s.calls]) for s in imported.segments]


def test_an_opaque_operation_cuts_the_fusion() -> None:
    imported = from_json(SORT)
    assert list(imported.coverage.opaque) == ["aten.sort.default"]
    assert "order" in imported.coverage.opaque["aten.sort.default"]
    opaque = {n.name for n in imported.program.nodes if n.target == "aten.sort.default"}
    assert opaque.isdisjoint(t.name for t in imported.fusion.tensors)
    assert {t.name for t in imported.fusion.inputs} > {n.name for n in imported.program.placeholders}
    assert any(calls[:1] == sorted(opaque) for _, _, calls in cut(imported))
    assert compare(SORT, "oracle", 10**8).values == "equal"


def test_strided_and_repeated_inputs_keep_their_strides(tmp_path: Path) -> None:
    text = (GRAPHS / "rope_half.core.json").read_text()
    head = '"target":"cos","args":[],"kwargs":{},"out":{"shape":[2,16,8],"dtype":"float32",'
    old = f'{head}"device":"cpu","stride":[128,8,1]'
    assert old in text
    for strides in ([0, 8, 1], [8, 16, 1], [128, 1, 16], [0, 0, 0]):
        file = tmp_path / "strided.json"
        file.write_text(text.replace(old, old.replace("[128,8,1]", str(strides).replace(" ", ""))))
        imported = from_json(file)
        assert [s for s in imported.fusion["cos"].domain.strides if s is not None] == strides
        assert random_inputs(load(file), 0)[2].stride() == tuple(strides)
        assert compare(file, "oracle", 10**8).values == "equal"


def test_numpy_in_numpy_out() -> None:
    path = GRAPHS / "gather_logsoftmax.core.json"
    imported = with_oracle(from_json(path))
    inputs = random_inputs(load(path), 3)
    found: Any = imported.run(*(t.numpy() for t in inputs), target="oracle")
    assert [type(a).__name__ for a in found] == ["ndarray"]
    (wanted,) = interpret(load(path), inputs)
    assert wanted is not None
    assert difference(torch.as_tensor(found[0]), wanted) == ""


def test_coverage_prints() -> None:
    lines = str(from_json(SORT).coverage).splitlines()
    assert lines[0].endswith("1 operation opaque")
    assert any("aten.sort.default" in line and "opaque:" in line for line in lines)


def test_a_graph_of_real_size_as_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    path = GRAPHS / "rope_partial_neox_real.core.json"
    assert compare(path, "oracle", 10**5).values.startswith("not run")
    monkeypatch.setitem(SMALLER, "rope_partial_neox_real", {4096: 16})
    row = compare(path, "oracle", 10**5, most_bytes=1)
    assert (row.values, row.how) == ("equal", "smaller sizes")
    graph = load(path)
    small = smaller(graph)
    assert small is not None
    assert memory(small) * 10 < memory(graph)


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    graph = load(GRAPHS / "rope_partial_neox_real.core.json")
    with pytest.raises(ValueError, match=r"slice_2 has shape \[2, 3, 16, 125\]"):
        smaller(graph, {4096: 16, 32: 3})


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the folder of all captured graphs is not beside the checkout")
def test_the_whole_corpus() -> None:
    rows = [compare(p, "oracle", 3 * 10**7) for p in sorted(CORPUS.glob("*.json"))]
    assert len(rows) == 211
    assert sum(not r.opaque for r in rows) >= 191
    assert {r.name: r.values for r in rows if r.values != "equal" and not r.values.startswith("not run")} == {}


def test_sums_in_another_order_are_judged_by_float64() -> None:
    exact = torch.tensor([1000.0, 2.0], dtype=torch.float64)
    eager = torch.tensor([1000.0, 2.0 + 0.01])  # 1e-5 of the largest value
    assert noise(torch.tensor([1000.0, 2.0 - 0.015]), eager, exact)
    assert not noise(torch.tensor([1000.0, 2.0 - 0.025]), eager, exact)
    assert not noise(torch.tensor([1000.0, 2.0]), torch.tensor([1000.0, 4.0]), exact)  # eager itself is far off
    assert not noise(torch.tensor([1000.0, float("nan")]), eager, exact)
    assert not noise(torch.tensor([1000, 2]), torch.tensor([1000, 2]), exact)


def test_what_is_only_moved_must_not_differ_at_all() -> None:
    graph = load(GRAPHS / "rope_half_residual.core.json")
    kept = moved(graph)
    assert {n["name"] for n in graph["nodes"] if n["target"].split(".")[-2:-1] == ["slice"]} <= kept
    assert not {n["name"] for n in graph["nodes"] if n["target"].split(".")[-2:-1] in (["mul"], ["add"])} & kept
    a = torch.tensor([1.0, 2.0, float("nan")])
    b = torch.tensor([1.0, 2.0000002, float("nan")])
    assert difference(a, b) == ""
    assert difference(a, b, exactly=True) == "1 of 3 moved elements differ"
    assert difference(a, a.clone(), exactly=True) == ""


def test_a_graph_in_float64_is_the_same_program() -> None:
    path = GRAPHS / "gather_logsoftmax.core.json"
    graph, inputs = load(path), random_inputs(load(path), 3)
    (wide,), (narrow,) = in_float64(graph, inputs) or [], interpret(graph, inputs)
    assert wide is not None
    assert narrow is not None
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), narrow)


def test_fusion_of_the_cyclic_case_is_the_one_written_by_hand() -> None:
    fusion = from_json(GRAPHS / "rope_half_residual.core.json").fusion
    assert isinstance(fusion, Fusion)
    assert [e.op for e in fusion["add_2"].definition.inputs[0].definition.inputs[1].uses] == ["add"]  # type: ignore[union-attr]
