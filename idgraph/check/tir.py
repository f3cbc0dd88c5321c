"""TVM's scheduled functions in the neutral form: a PrimFunc's loops, stores and loads as JSON data.

Nodes are read by the names of their classes; only `exported` needs ``apache-tvm``, to lower blocks to loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from idgraph.check.program import CheckError

_BINARY: Mapping[str, str] = {
    "Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=",
    "EQ": "==", "NE": "!=", "And": "&", "Or": "|",
}  # fmt: skip
_PASSES = (
    "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "LowerOpaqueBlock",
)  # fmt: skip


def exported(function: Any, program: str) -> dict[str, object]:
    """A PrimFunc of ``apache-tvm`` (scheduled, its blocks still there) as data for `idgraph.check.program`.

    ``program`` is what it should mean, a fusion's text whose tensors have the names of the function's buffers. Raises
    `CheckError` where TVM is missing or the function has a form that is not known here.
    """
    try:  # an extra
        tvm: Any = import_module("tvm")
        transform: Any = import_module("tvm.s_tir").transform
    except ImportError:
        raise CheckError("a function of TVM needs apache-tvm", hint="pip install apache-tvm") from None
    made: Any = tvm.IRModule({"main": function})
    for name in _PASSES:
        made = getattr(transform, name)()(made)
    return neutral(made["main"], program)


def neutral(function: Any, program: str) -> dict[str, object]:
    """The same of a function that is loops, conditions and stores already."""
    reader = _TirExporter()
    reader.statement(function.body, (), ())
    return {"program": program, "nests": reader.nests}


class _TirExporter:
    """Statements in order; a nest for each store, its reduced loops those that its address does not use."""

    def __init__(self) -> None:
        self.nests: list[dict[str, object]] = []

    def statement(self, s: Any, loops: tuple[tuple[str, int], ...], when: tuple[str, ...]) -> None:
        kind = type(s).__name__
        if kind == "SeqStmt":
            before = len(self.nests)
            for x in s.seq:
                self.statement(x, loops, when)
            if loops and len(self.nests) > before + 1:
                raise CheckError(
                    f"stores that share the loop {loops[-1][0]}",
                    because=(
                        "nests run one after the other here: a store would be judged as if all of the other had run",
                    ),
                    hint="export the function before compute_at; loops of several stores are not known here yet",
                )
        elif kind == "For":
            if int(s.min) != 0:
                raise CheckError(f"a loop that starts at {s.min}: loops start at 0")
            self.statement(s.body, (*loops, (str(s.loop_var.name), int(s.extent))), when)
        elif kind == "IfThenElse" and s.else_case is None:
            self.statement(s.then_case, loops, (*when, _formula_text(s.condition)))
        elif kind == "BufferStore":
            self._store(s, loops, when)
        elif kind in ("AttrStmt", "DeclBuffer", "AllocBuffer", "Allocate") and hasattr(s, "body"):
            self.statement(s.body, loops, when)
        elif kind not in ("DeclBuffer", "AllocBuffer"):
            raise CheckError(f"a statement of TVM that is not known here: {kind}")

    def _store(self, s: Any, loops: tuple[tuple[str, int], ...], when: tuple[str, ...]) -> None:
        name, index = str(s.buffer.name), self._address(s.buffer, s.indices)
        reads: list[dict[str, object]] = []
        self._reads(s.value, (), reads)
        own: dict[str, object] = {"buffer": name, "index": index, "when": "True"}
        summed = own in reads
        if summed:  # what it adds to; the store that starts the sum is dropped
            reads.remove(own)
            if self.nests and self._starts(self.nests[-1], name):
                self.nests.pop()
        used = set(_index_names(s.indices))
        inner = [pair for pair in loops if summed and pair[0] not in used]
        write: dict[str, object] = {"buffer": name, "index": index, "when": _conjunction(when), "reads": reads}
        self.nests.append({
            "name": f"{name}.{len(self.nests)}", "loops": [list(p) for p in loops if p not in inner],
            "reduce": [list(p) for p in inner], "writes": [write],
        })  # fmt: skip

    def _starts(self, nest: dict[str, object], name: str) -> bool:
        writes: Any = nest["writes"]
        return writes[0]["buffer"] == name and not writes[0]["reads"]

    def _reads(self, e: Any, when: tuple[str, ...], into: list[dict[str, object]]) -> None:
        kind = type(e).__name__
        if kind in ("BufferLoad", "TensorLoad"):
            b = e.buffer if hasattr(e, "buffer") else e.source
            found: dict[str, object] = {
                "buffer": str(b.name),
                "index": self._address(b, e.indices),
                "when": _conjunction(when),
            }
            if found not in into:
                into.append(found)
        elif kind == "Select" or (kind == "Call" and str(e.op.name).endswith("if_then_else")):
            parts = (e.condition, e.true_value, e.false_value) if kind == "Select" else e.args
            c = _formula_text(parts[0])
            self._reads(parts[1], (*when, c), into)
            self._reads(parts[2], (*when, f"(1 - where({c}, 1, 0) == 1)"), into)
        elif kind == "Call":
            for a in e.args:
                self._reads(a, when, into)
        else:
            for part in ("a", "b", "value"):
                x = getattr(e, part, None)
                if x is not None and hasattr(x, "span"):
                    self._reads(x, when, into)

    def _address(self, b: Any, indices: Any) -> str:
        """Row-major."""
        out = "0"
        for n, x in zip(b.shape, indices, strict=True):
            out = f"({out})*{_formula_text(n)} + {_formula_text(x)}"
        return out


def _conjunction(conditions: tuple[str, ...]) -> str:
    return " & ".join(f"({c})" for c in conditions) or "True"


def _formula_text(e: Any) -> str:
    """An index formula in the neutral form's syntax."""
    kind = type(e).__name__
    if kind in ("IntImm", "int"):
        return str(int(e))
    if kind == "Var":
        return str(e.name)
    if kind in _BINARY:
        return f"({_formula_text(e.a)} {_BINARY[kind]} {_formula_text(e.b)})"
    if kind in ("Min", "Max"):
        return f"{kind.lower()}({_formula_text(e.a)}, {_formula_text(e.b)})"
    if kind == "Cast":
        return _formula_text(e.value)
    raise CheckError(f"an index of TVM that is not known here: {kind}")


def _index_names(indices: Any) -> list[str]:
    out: list[str] = []
    work = list(indices)
    while work:
        e = work.pop()
        if type(e).__name__ == "Var":
            out.append(str(e.name))
        work += [x for part in ("a", "b", "value") if (x := getattr(e, part, None)) is not None and hasattr(x, "span")]
    return out
