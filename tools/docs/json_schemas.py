"""``python -m tools.docs.json_schemas``: JSON Schemas of what is read and written, into ``tools/docs/schemas``.

Each is derived from real documents of a kind: keys that all of them have are required, types are those that occur. The
neutral form of `idgraph.check` has a schema of its own in the package, by which it is read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import idgraph as ig
from idgraph import reports
from idgraph.check.dtensor_form import DeviceElement, DTensorReport, DTensorRow
from idgraph.check.report import CheckReport, CheckRow, Difference
from idgraph.cli.commands import cli
from idgraph.errors import SourceLine
from idgraph.runtime.tuning.trial import Measured, Record
from idgraph.schedule.config import KernelConfig
from idgraph.sweeps.worker import ExaminationOptions, examine

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "schemas"
RESULTS = HERE.parent / "bench" / "results"
GRAPHS = HERE.parent.parent / "tests" / "frontends" / "graphs"
# Keys whose values have names of the user's, or of operators, for keys; and those whose values may be anything.
NAMED = {
    "mapped",
    "opaque",
    "cycles",
    "checks",
    "settings",
    "metrics",
    "counts",
    "flops_by_type",
    "symbols",
    "kwargs",
    "totals",
    "seconds",
    "point",
    "loops",
}
FREE = {"args", "kwargs", "out", "meta", "value", "metrics"}
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """A kind of JSON: ``made`` gives real ones."""

    title: str
    about: str
    made: Callable[[], list[Any]]


def schema_of(values: Sequence[Any], key: str = "") -> Schema:
    """What all ``values`` are instances of.

    >>> schema_of([{"a": 1}, {"a": None, "b": ["x"]}])["properties"]["a"]
    {'type': ['integer', 'null']}
    """
    if key in FREE:
        return {}
    kinds: dict[str, list[Any]] = {}
    for v in values:
        kinds.setdefault(_kind(v), []).append(v)
    if "number" in kinds:
        kinds.pop("integer", None)
    found: Schema = {"type": next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)} if kinds else {}
    if items := [x for v in kinds.get("array", ()) for x in v]:
        found["items"] = schema_of(items)
    if objects := kinds.get("object"):
        if key in NAMED:
            found["additionalProperties"] = schema_of([x for v in objects for x in v.values()])
        else:
            names = list(dict.fromkeys(k for v in objects for k in v))
            found["properties"] = {k: schema_of([v[k] for v in objects if k in v], k) for k in names}
            found["required"] = [k for k in names if all(k in v for v in objects)]
    return found


def _kind(v: object) -> str:
    kinds: dict[type[object], str] = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return "null" if v is None else kinds[type(v)]


def fusions() -> list[ig.Fusion]:
    """Small ones whose reports have every part: cycles, predicates, gathers, symbols, several kernels, refusals."""
    out: list[ig.Fusion] = []
    f = ig.Fusion("rotation")
    x = f.input("x", shape=(64,))
    f.output(x + ig.cat([x[32:], x[:32]], dim=0))
    out.append(f)
    f = ig.Fusion("norm")
    x = f.input("x", shape=(20, 50), dtype="float16")
    y = ig.cast(x, "float32")
    f.output(y * ig.rsqrt(ig.sum(y * y, 1, keepdim=True)))
    out.append(f)
    f = ig.Fusion("rows")
    x, i = f.input("x", shape=(20, 50)), f.input("i", shape=(7,), dtype="int64")
    f.output(ig.index_select(x, 0, i))
    out.append(f)
    f = ig.Fusion("open")
    n = f.symbol("n")
    f.output(ig.exp(f.input("x", shape=(n, 8))))
    out.append(f)
    return out


def _scheduled() -> list[ig.Fusion]:
    made = fusions()
    for f in made:
        ig.schedule.auto(f)
    return made


def _sweep_rows() -> list[Any]:
    path = GRAPHS / "rope_half.core.json"
    options = ExaminationOptions("python", False, 0, 0)
    return [json.loads(examine(path, path.name, "0" * 64, options).to_json())]


def _plans() -> list[Any]:
    return [json.loads(ig.fuse.plan(f).to_json()) for f in fusions()[:2]]


def _checks() -> list[Any]:
    """Reports with every verdict, a counterexample, a call of a library, and no rows at all."""
    line = SourceLine("model.py", 3, "y = x.flip(0)")
    found = Difference({"i0": 1}, "y[1]", "x[2]", "x[1]", "i0 + 1", "flip", line)
    rows = (
        CheckRow("op0", "x", "refuted", "read", "", found, "after", "forward", "flip", line, 8, 0.5),
        CheckRow("op0", "y", "proved", "write"),
        CheckRow("op1", "y", "refuted", "write", "", Difference({}, "y[8]", None, None, "")),
    )
    return [json.loads(CheckReport("f", x, calls).to_json()) for x, calls in ((rows, ("mm",)), ((), ()))]


def _dtensors() -> list[Any]:
    """Rows with and without a collective, an operation that DTensor refused, one whose bytes are not known."""
    rows = (
        DTensorRow("view", "local", inputs=("S(0)",), output="S(0)", line="model.py:3"),
        DTensorRow("mm", "communication", because="S(0) becomes R", collective="all_gather", bytes=None),
        DTensorRow("sort", "unknown", refused="no strategy"),
        DTensorRow("view", "wrong", witness=DeviceElement(0, (0, 0, 2), 3.0, 2.0, (0, 0, 1))),
    )
    return [json.loads(DTensorReport("f", "Mesh(x=2)", x).to_json()) for x in (rows, ())]


def _metrics() -> list[Any]:
    made = [json.loads(reports.metrics(f, target="python").to_json()) for f in _scheduled()]
    return [*made, *map(_timed, made)]


def _timed(tables: Any) -> Any:
    """The tables as with ``measure=True``."""
    row = {"measured_us": 1.5}
    return {
        k: v if isinstance(v, str) else [r | (row if "measured_us" in r else {}) for r in v] for k, v in tables.items()
    }


def _gathers() -> list[Any]:
    f = ig.Fusion("picked")
    x, i = f.input("x", shape=(8, 10)), f.input("i", shape=(8, 1), dtype="int64")
    f.output(ig.gather(x * 2.0, 1, i))
    return [json.loads(g.to_json()) for g in ig.fuse.gathers(f)]


def _measured() -> tuple[Measured, ...]:
    """Of a config with every choice, of one with none, and of one that was dropped."""
    choices = {f.name: 32 if str(f.type).startswith("int") else True for f in fields(KernelConfig)}
    every = KernelConfig.from_data(choices | {"vectors": 4})
    return Measured(every, 3.5), Measured(KernelConfig(), 4.0), Measured(every, float("nan"), "other values")


def _records() -> list[Any]:
    tries = _measured()
    return [json.loads(Record(m.config, tries).to_text()) for m in tries]


def _tuned() -> list[Any]:
    program, tries = ig.emit(fusions()[0], "python"), _measured()
    return [ig.Tuned(program, m.config, tries, "measured").to_data() for m in tries]


def _commands(*command: str, automatic: bool = False) -> list[Any]:
    """The JSON that a command prints of each fusion."""
    made: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for f in _scheduled() if automatic else fusions():
            path = Path(folder) / "fusion.txt"
            path.write_text(str(f), encoding="utf-8")
            name, *rest = command
            done = CliRunner().invoke(cli, [name, str(path), *rest, "--json"])
            if done.exit_code == 0:  # not so where a size is open that the command needs
                made.append(json.loads(done.stdout))
    return made


def _validations() -> list[Any]:
    made = _commands("check")
    return [*made, made[0] | {"ok": False, "counterexample": "t1[i0=1] reads x[2], meant x[1]"}]


def _demos() -> list[Any]:
    """Of the small program; a failed one has a counterexample, and a cycle that only reorders has no shift."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["demo", "--small", "--target", "numpy", "--output", folder, "--json"]
        made = json.loads(CliRunner().invoke(cli, words).stdout.splitlines()[-1])
    reorder = {"kind": "reorder", "shift": None}
    return [made, made | {"ok": False, "counterexample": "t1[i0=1] reads x[2], meant x[1]", "cycles": [reorder]}]


def _call_sources() -> list[Any]:
    """What a call of a captured graph runs."""
    graph = GRAPHS / "rope_half.core.json"
    return [json.loads(CliRunner().invoke(cli, ["explain", str(graph), "--json"]).stdout)]


def _stored(name: str) -> list[Any]:
    return [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))]


def _differences() -> list[Any]:
    first, second = (ig.report(f) for f in (fusions()[0], _scheduled()[0]))
    return [json.loads(reports.diff(first, second).to_json())]


KINDS = {
    "check-report": Document(
        "Check report", "`to_json()` of what `ig.check.inductor`, `program`, `mlir` and `halide` give.",
        _checks,
    ),
    "dtensor-report": Document("DTensor report", "`ig.check.dtensor(...).to_json()`.", _dtensors),
    "kernels": Document(
        "Kernels", "`program.kernels.to_json()`: a row for each kernel, with its text under `ir`.",
        lambda: [json.loads(ig.emit(f, t).kernels.to_json()) for f in _scheduled() for t in ("python", "cuda")],
    ),
    "gather": Document("Gather strategies", "`ig.fuse.gathers(f)[0].to_json()`.", _gathers),
    "metrics": Document(
        "Metric tables", "`ig.reports.metrics(f).to_json()`: table -> rows.",
        _metrics,
    ),
    "report-diff": Document("Difference of reports", "`ig.reports.diff(a, b).to_json()`.", _differences),
    "tuning-record": Document(
        "Tuning record", "A file in the folder of `ig.Tuner(cache=...)`: the best config, and all that was measured.",
        _records,
    ),
    "tuned": Document(
        "Tuned program", "`ig.Tuner().tune(f).to_data()`: the config chosen and what each one took.", _tuned
    ),
    "models": Document(
        "Model timings", "`python -m tools.bench.models`, stored as `tools/bench/results/models_h100.json`.",
        lambda: _stored("models_h100"),
    ),
    "mutation": Document(
        "Mutation results", "`python -m tools.mutation --json FILE`: each planted fault and the test that found it.",
        lambda: _stored("mutation"),
    ),
    "command-check": Document("`idgraph check FILE --json`", "The validation of a fusion.", _validations),
    "command-cycles": Document("`idgraph cycles FILE --json`", "Cycles of a graph.", lambda: _commands("cycles")),
    "command-index": Document("`idgraph index FILE --json`", "Accesses of each operation.", lambda: _commands("index")),
    "command-show": Document("`idgraph show FILE --json`", "A fusion or graph as text.", lambda: _commands("show")),
    "command-explain": Document(
        "`idgraph explain FILE AXIS AXIS --json`", "Whether two axes are the same, and why.",
        lambda: _commands("explain", "t1:0", "t1:0")[:1],
    ),
    "command-explain-call": Document(
        "`idgraph explain GRAPH --json`", "What a call of a captured graph runs, as Python text.", _call_sources,
    ),
    "command-demo": Document("`idgraph demo --json`", "The steps of the demo and where its pages are.", _demos),
    "command-emit": Document(
        "`idgraph emit FILE --json`", "The source of the kernels.", lambda: _commands("emit", "--target", "python"),
    ),
    "command-emit-passes": Document(
        "`idgraph emit FILE --passes --json`", "Kernels after each pass that changed one.",
        lambda: _commands("emit", "--passes", automatic=True),
    ),
    "report": Document(
        "Report", "`ig.report(f).to_json()`, `idgraph report FILE --json`: `schema` names the version.",
        lambda: [ig.report(f).to_dict() for f in (*fusions(), *_scheduled())],
    ),
    "cost": Document(
        "Cost", "`ig.cost(program).to_json()`: bytes, sectors and estimated times of each kernel.",
        lambda: [json.loads(ig.cost(ig.emit(f, t)).to_json()) for f in _scheduled()[:3] for t in ("cpu", "cuda")],
    ),
    "device": Document(
        "Device", "`Device.to_json()` and `Device.from_json(text)`: the rates of a machine.",
        lambda: [json.loads(ig.cost(ig.emit(fusions()[0], t)).device.to_json()) for t in ("cpu", "cuda")],
    ),
    "captured-graph": Document(
        "Captured graph", "A PyTorch graph that `idgraph.frontends.fx.from_json` reads; it has no values of tensors.",
        lambda: [json.loads(p.read_text(encoding="utf-8")) for p in sorted(GRAPHS.glob("rope_*.json"))],
    ),
    "obstacles": Document(
        "Obstacles", "`ig.fuse.obstacles(f).to_json()`: what keeps operations out of one kernel.",
        lambda: [json.loads(ig.fuse.obstacles(f).to_json()) for f in fusions()],
    ),
    "plan": Document("Plan", "`ig.fuse.plan(f).to_json()`: the kernels that a planner proposes.", _plans),
    "sweep-row": Document("Sweep row", "One line of the file that `idgraph sweep --output` writes.", _sweep_rows),
}  # fmt: skip


def schema(name: str) -> Schema:
    """The schema of one kind, as it is stored."""
    k = KINDS[name]
    return {"$schema": DRAFT, "title": k.title, "description": k.about} | schema_of(k.made())


def text(name: str) -> str:
    """As it is stored."""
    return json.dumps(schema(name), indent=1) + "\n"


def main() -> int:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in KINDS:
        (FOLDER / f"{name}.schema.json").write_text(text(name), encoding="utf-8")
        print(FOLDER / f"{name}.schema.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
