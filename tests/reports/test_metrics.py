"""Metric tables: stable columns, rows that agree with cost and obstacles, files that lose and double nothing."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import idgraph as ig
from idgraph.cli.commands import cli
from idgraph.reports import TABLES, metrics

COLUMNS = {  # a change here changes what others read: new columns go to the end of a table's version
    "models": 16, "graph_stats": 21, "kernel_metadata": 28, "fusion_failures": 16, "slow_fusion": 10,
    "persistent": 8, "autotune": 7,
}  # fmt: skip


def turned(name: str = "turned") -> ig.Fusion:
    """Two results that read one tensor in two orders, in one launch."""
    f = ig.Fusion(name)
    x = f.input("x", (64, 96))
    f.output(ig.sum(x, 1))
    f.output(ig.transpose(ig.exp(x), 0, 1))
    return f


def rows_of(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_columns_are_stable() -> None:
    assert {name: len(columns) for name, columns in TABLES.items()} == COLUMNS
    for columns in TABLES.values():
        assert columns[0] == "model"
        assert len(set(columns)) == len(columns)


def test_rows_say_what_the_cost_and_the_obstacles_say() -> None:
    f = turned()
    found = metrics(f, target="python", device="H200", auto=False)
    told = ig.cost(ig.emit(f, "python"), "H200")
    kernels = found.tables["kernel_metadata"]
    assert [r["bytes_read"] for r in kernels] == [k.bytes_read for k in told.kernels]
    (graph,), (model,) = found.tables["graph_stats"], found.tables["models"]
    assert graph["bytes_moved"] == model["bytes_moved"] == told.total.bytes_moved
    pairs = ig.fuse.obstacles(f)
    assert [(r["a"], r["b"], r["cause"]) for r in found.tables["fusion_failures"]] == [
        (o.a.output.name, o.b.output.name, o.cause) for o in pairs
    ]
    assert all(r["model"] == "turned" for rows in found.tables.values() for r in rows)
    assert all(tuple(r) == TABLES[name] for name, rows in found.tables.items() for r in rows)


def test_no_steps_are_tried_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial emits the whole fusion: the report of 150 operations took more than nine minutes."""

    def tried(_: object) -> None:
        raise AssertionError("an alignment was tried")

    f = turned()
    monkeypatch.setattr("idgraph.fuse.obstacle.answer", tried)
    rows = metrics(f, target="python", auto=False).tables["fusion_failures"]
    assert rows and [r["bytes_saved"] for r in rows] == [o.estimate for o in ig.fuse.obstacles(f)]
    with pytest.raises(AssertionError, match="was tried"):
        metrics(f, target="python", auto=False, align=True)


def test_a_pair_inside_one_kernel_is_no_failure() -> None:
    f = ig.Fusion("softmax")
    f.output(ig.softmax(f.input("x", (64, 128)), 1))
    found = metrics(f, target="cuda")
    assert len(found.tables["kernel_metadata"]) == 1
    assert not found.tables["fusion_failures"]
    assert (found.tables["models"][0]["failures"], found.tables["models"][0]["bytes_saved_by_fusing"]) == (0, 0)


def test_a_graph_that_cannot_be_costed_says_why() -> None:
    f = ig.Fusion("symbolic")
    f.output(ig.exp(f.input("x", (f.symbol("n", min=1, max=100), 8))))
    refused = metrics(f, target="python").tables["graph_stats"][0]["refused"]
    assert isinstance(refused, str)
    assert "symbol n has no number" in refused
    assert metrics(f, target="python", symbols={"n": 8}).tables["graph_stats"][0]["bytes_read"] == 256


def test_a_model_is_replaced_and_others_stay(tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        metrics(turned(), model=name, target="python").to_csv(tmp_path)
    assert Counter(r["model"] for r in rows_of(tmp_path, "graph_stats")) == {"a": 1, "b": 1}
    (tmp_path / "models.csv").write_text("model,other\n", "utf-8")
    with pytest.raises(ig.IdGraphError, match="other columns"):
        metrics(turned(), target="python").to_csv(tmp_path)


ADD = """
import sys
import idgraph as ig
from idgraph.reports import metrics
for n in range(int(sys.argv[2]), int(sys.argv[3])):
    f = ig.Fusion(f"m{n}")
    f.output(ig.exp(f.input("x", (8, n + 1))))
    metrics(f, target="python").to_csv(sys.argv[1])
"""


def test_processes_that_write_at_once_and_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    def start(first: int, last: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ADD, str(tmp_path / "t"), str(first), str(last)])

    victim, other = start(0, 400), start(400, 412)
    deadline = time.monotonic() + 60
    while not (tmp_path / "t" / "autotune.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    victim.send_signal(signal.SIGKILL)
    assert other.wait() == 0
    victim.wait()
    names = Counter(r["model"] for r in rows_of(tmp_path / "t", "graph_stats"))
    assert max(names.values()) == 1
    assert {f"m{n}" for n in range(400, 412)} <= set(names)
    assert start(0, 12).wait() == 0
    names = Counter(r["model"] for r in rows_of(tmp_path / "t", "models"))
    assert max(names.values()) == 1
    assert {f"m{n}" for n in (*range(12), *range(400, 412))} <= set(names)


@pytest.mark.thorough
def test_a_sweep_that_is_run_again_has_each_row_once(tmp_path: Path) -> None:
    graphs, tables = tmp_path / "graphs", tmp_path / "tables"
    graphs.mkdir()
    for name in ("a", "b", "c"):
        (graphs / f"{name}.txt").write_text(str(turned(name)), "utf-8")
    out = tmp_path / "rows.jsonl"
    first = ig.sweep(graphs, out, metrics=True, workers=2)
    first.to_csv(tables)
    whole = out.read_bytes()
    out.write_bytes(whole[: whole.index(b"\n") + 20])  # killed while the second row was written
    again = ig.sweep(graphs, out, metrics=True, workers=2)
    again.to_csv(tables)
    assert again.fresh == 2
    for table in ("models", "graph_stats"):
        assert Counter(r["model"] for r in rows_of(tables, table)) == {"a.txt": 1, "b.txt": 1, "c.txt": 1}
    kernels = rows_of(tables, "kernel_metadata")
    assert len(kernels) == len({(r["model"], r["graph"], r["kernel"]) for r in kernels}) >= 3
    with pytest.raises(ig.IdGraphError, match="no metric tables"):
        ig.sweep(graphs, workers=2).to_csv(tables)


def test_the_command_line_writes_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "turned.txt"
    file.write_text(str(turned()), "utf-8")
    done = CliRunner().invoke(cli, ["report", str(file), "--csv", str(tmp_path / "t")])
    assert done.exit_code == 0, done.output
    assert [r["model"] for r in rows_of(tmp_path / "t", "models")] == ["turned"]
    done = CliRunner().invoke(
        cli, ["sweep", str(tmp_path), "--output", str(tmp_path / "o"), "--csv", str(tmp_path / "t")]
    )
    assert done.exit_code == 0, done.output
    assert {r["model"] for r in rows_of(tmp_path / "t", "models")} == {"turned", "turned.txt"}


@pytest.mark.slow
def test_measured_tables_have_times() -> None:
    f = ig.Fusion("norm")
    x = f.input("x", (256, 512))
    f.output(ig.exp(x), ig.transpose(x, 0, 1) + 1.0)
    found = metrics(f, target="cpu", measure=True)
    assert all(isinstance(r["measured_us"], float) for r in found.tables["kernel_metadata"])
    assert found.tables["graph_stats"][0]["measured_us"]
    assert sum(bool(r["chosen"]) for r in found.tables["autotune"]) == 1
    for r in found.tables["slow_fusion"]:
        apart, together = r["apart_us"], r["together_us"]
        assert isinstance(apart, float)
        assert isinstance(together, float)
        assert r["slower"] == (together > apart)


def written(folder: Path) -> Path:
    """Tables of two models."""
    for name in ("a", "b"):
        metrics(turned(name)).to_csv(folder)
    return folder


def test_pandas_reads_them(tmp_path: Path) -> None:
    pandas: Any = pytest.importorskip("pandas")
    folder = written(tmp_path)
    for name, columns in TABLES.items():
        frame = pandas.read_csv(folder / f"{name}.csv")
        assert tuple(frame.columns) == columns
    kernels = pandas.read_csv(folder / "kernel_metadata.csv")
    assert kernels["bytes_moved"].dtype == "int64"
    assert kernels["bandwidth_share"].dtype == "float64"
    assert (
        dict(kernels.groupby("model")["bytes_read"].sum())["a"] == 64 * 96 * 4
    )  # both results in one kernel, which reads once


def test_duckdb_reads_them(tmp_path: Path) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    folder = written(tmp_path)
    ask = f"select model, sum(bytes_read), count(*) from '{folder}/kernel_metadata.csv' group by model order by model"
    rows = duckdb.sql(ask).fetchall()
    assert [r[0] for r in rows] == ["a", "b"]
    assert rows[0][1] == 64 * 96 * 4  # both results in one kernel, which reads once
    f = ig.Fusion("shares")
    x = f.input("x", (64, 96))
    f.output(x / ig.sum(x))
    metrics(f).to_csv(folder)
    causes = duckdb.sql(f"select distinct cause from '{folder}/fusion_failures.csv'").fetchall()
    assert causes


def test_json_has_the_same_rows() -> None:
    found = metrics(turned(), target="python")
    told = json.loads(found.to_json())
    assert told["model"] == "turned"
    assert told["kernel_metadata"] == [dict(r) for r in found.tables["kernel_metadata"]]
