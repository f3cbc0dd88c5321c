"""``python -m tools.docs.json_schemas``: JSON Schemas of what is read and written, into ``tools/docs/schemas``.

Each is derived from real documents of a kind: keys that all of them have are required, types are those that occur. The
neutral form of `idgraph.check` has a schema of its own in the package, by which it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import idgraph as ig
from idgraph.sweeps.worker import ExaminationOptions, examine

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "schemas"
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


KINDS = {
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
