"""Arguments for the walk over every public name: a right value for each parameter, and one of each wrong kind."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sympy

import idgraph as ig
from idgraph import viz
from tools.checks import public_docs


class Case:
    """One fusion and all that can be asked of it, and a second one whose parts do not belong to it."""

    def __init__(self) -> None:
        self.f = f = ig.Fusion("f")
        f.mesh = ig.Mesh(x=2)
        self.x = f.input("x", shape=(4, 6))
        self.i = f.input("i", shape=(4, 6), dtype="int64")
        self.i1 = f.input("i1", shape=(3,), dtype="int64")
        self.c = f.input("c", shape=(4, 6), dtype="bool")
        self.t = ig.copy(self.x, name="t")
        self.u: Any = f.output(ig.exp(self.t, name="u"))
        self.e: Any = self.u.definition
        self.m = ig.IdModel(f)
        self.a = self.m.access(self.e, self.t)
        self.use = (self.u.logical[0], self.e)
        other = ig.Fusion("other")
        self.foreign: Any = other.output(ig.exp(other.input("x", shape=(4, 6))))


def wrong_values(c: Case) -> list[Any]:
    """One of each kind; what is right at one parameter is wrong at the others."""
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    foreign = ig.IdModel(c.foreign.fusion)
    return [
        None, True, -1, 10**30, 2.5, float("nan"), 1j, "", "a\nb", b"x", [], {}, {1}, object(), len, int, deep, [None],
        {"a": None}, slice(None), ..., np.arange(3), np.float32(1), c.t, c.foreign, c.f, c.foreign.fusion, c.e,
        c.foreign.definition, c.t.logical[0], c.foreign.logical[0], c.a.address, foreign.exact.groups[0], foreign,
        foreign.write(c.foreign.definition),
    ]  # fmt: skip


Value = Callable[[Case], Any]
RIGHT: dict[str, Value] = {  # by the parameter's name, or by "callable.parameter" where it means something else
    "offsets": lambda c: c.i1, "ragged.offsets": lambda c: [0, 2, 6], "ragged.t": lambda c: ig.partition(c.t, 1, c.i1),
    "combine.x": lambda c: ig.partition(c.t, 1, c.i1), "pad_ragged.x": lambda c: ig.partition(c.t, 1, c.i1),
    "crop_ragged.dim": lambda c: 0, "crop_ragged.x": lambda c: c.t[:2],
    "by_rule.target": lambda c: "cuda", "row_loops.axes": lambda c: (0,), "row_loops.columns": lambda c: (1,),
    "x": lambda c: c.t, "a": lambda c: c.t, "b": lambda c: c.x, "input": lambda c: c.t, "condition": lambda c: c.c,
    "index": lambda c: c.i, "indices": lambda c: c.i, "dim": lambda c: 1, "dim0": lambda c: 0, "dim1": lambda c: 1,
    "tensors": lambda c: [c.t, c.x], "dtype": lambda c: "float32", "shape": lambda c: (2,), "src": lambda c: c.x,
    "values": lambda c: 1.0, "value": lambda c: 1.0, "fusion": lambda c: c.f, "f": lambda c: c.f, "n": lambda c: 8,
    "loop": lambda c: 0, "e": lambda c: c.e, "t": lambda c: c.t, "axis": lambda c: 0, "factor": lambda c: 2,
    "position": lambda c: 1, "domains": lambda c: list(c.t.logical), "text": lambda c: str(c.f), "expr": lambda c: c.e,
    "reference": lambda c: c.u, "use": lambda c: c.e, "shifts": lambda c: 1, "pad": lambda c: (1, 1),
    "start": lambda c: 0, "step": lambda c: 1, "domain": lambda c: c.t.logical[0], "what": lambda c: c.f,
    "group": lambda c: c.m.exact.groups[0], "memory": lambda c: "shared", "parallel": lambda c: "unroll",
    "order": lambda c: {0: 1}, "left": lambda c: 0, "right": lambda c: 0, "shift": lambda c: 1, "extent": lambda c: 2,
    "is_broadcast": lambda c: [False, True, False], "cond": lambda c: "i < 4", "other": lambda c: 1,
    "path": lambda c: Path("no") / "such.svg", "name": lambda c: "new", "repeats": lambda c: (1, 2),
    "simplify.e": lambda c: "i", "prove_equal.x": lambda c: "i", "prove_equal.y": lambda c: "i",
    "from_sympy.x": lambda c: sympy.Symbol("i", integer=True), "select.index": lambda c: 1,
    "index_select.index": lambda c: c.i1, "index_get.indices": lambda c: [c.i1], "index_put.indices": lambda c: [c.i1],
    "embedding.input": lambda c: c.i1, "embedding.weight": lambda c: c.t, "slice_scatter.src": lambda c: c.x,
    "cross_entropy.target": lambda c: ig.select(c.i, 1, 0), "cross_entropy_backward.grad": lambda c: None,
    "cross_entropy_backward.target": lambda c: ig.select(c.i, 1, 0), "matmul.b": lambda c: c.x.T,
    "Tensor.swizzle.kind": lambda c: "cyclic", "Tensor.swizzle.x": lambda c: 0, "Tensor.swizzle.y": lambda c: 1,
    "IndexGraph.group.domain": lambda c: c.u.logical[0], "IndexGraph.mapped.a": lambda c: c.use,
    "IndexGraph.mapped.b": lambda c: c.use, "IndexGraph.explain.a": lambda c: c.use,
    "IndexGraph.explain.b": lambda c: c.use, "IndexGraph.definitions.group": lambda c: c.m.index.groups[0],
    "IndexGraph.uses.group": lambda c: c.m.index.groups[0], "DomainGraph.mapped.a": lambda c: c.t.logical[0],
    "DomainGraph.mapped.b": lambda c: c.t.logical[0], "DomainGraph.explain.a": lambda c: c.t.logical[0],
    "DomainGraph.explain.b": lambda c: c.t.logical[0], "IdModel.read.operand": lambda c: 0,
    **{
        f"{g}Graph.{name}.{p}": (lambda c: c.t.logical[0])
        for g in ("Aligned", "Extents") for name in ("mapped", "explain") for p in ("a", "b")
    },
    "AlignedGraph.definitions.group": lambda c: c.m.aligned.groups[0],
    "AlignedGraph.uses.group": lambda c: c.m.aligned.groups[0],
    "ExtentsGraph.definitions.group": lambda c: c.m.extents.groups[0],
    "ExtentsGraph.uses.group": lambda c: c.m.extents.groups[0], "cycles.empty": lambda c: True,
    "Access.suggestions.why": lambda c: c.a.explain_vector_width(0), "Expr.evaluate.env": lambda c: {"i0": 1, "i1": 2},
    "Access.bank_suggestions.found": lambda c: c.a.bank_conflicts(),
    "Expr.evaluate_array.env": lambda c: {"i0": 1, "i1": 2},
    "Expr.substitute.values": lambda c: {"i0": 1}, "IndexReport.save.path": lambda c: Path("no") / "such.html",
    **{f"bitwise_{op}.{p}": (lambda c: c.i) for op in ("and", "or", "xor") for p in ("a", "b")},
    "explain.a": lambda c: c.e, "explain.b": lambda c: c.t.definition,
    "buffer": lambda c: c.t, "stored": lambda c: (c.x,),
    "data": lambda c: {"program": str(c.f), "nests": []}, "budget": lambda c: 100,
    "program": lambda c: ig.emit(c.f, "python"), **{f"{x}.program": (lambda c: c.f) for x in ("mlir", "halide", "tvm")},
    "source": lambda c: c.f,
    "bitwise_not.x": lambda c: c.i, "plan": lambda c: (), "IdModel.output_to_input.output": lambda c: c.u,
    "IdModel.output_to_input.source": lambda c: c.x, "kernel.parse.text": lambda c: "kernel k():\n",
    "function": lambda c: c.f, "over": lambda c: "x", "rank": lambda c: 1, "inputs": lambda c: {},
}  # fmt: skip
# Names that a user has no use for, or that other tests call.
INSIDE = {
    **public_docs.INSIDE, "viz": {"drawable"},
    "check": {"dtensor", "inductor"},  # run or compile what they are given: tests/check
    "ig": {"from_torch", "sweep"},  # take programs and files: tests/frontends, tests/sweeps
}  # fmt: skip


def objects(c: Case) -> dict[str, Callable[[], Any]]:
    """One object of each public class that has methods with parameters, made when asked for."""
    return {
        "Fusion": lambda: c.f, "Tensor": lambda: c.t, "IdModel": lambda: c.m, "DomainGraph": lambda: c.m.exact,
        "IndexGraph": lambda: c.m.index, "Access": lambda: c.a, "Expr": lambda: c.a.address,
        "IndexReport": lambda: ig.report(c.f), "AlignedGraph": lambda: c.m.aligned,
        "ExtentsGraph": lambda: c.m.extents,
    }  # fmt: skip


def callables(c: Case, wanted: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function and method by name, those of the case's objects bound; of these only what the name
    ``wanted`` is of."""
    modules = {"ig": (ig, [*ig.__all__, *ig.BUILTIN_NAMES]),
               "schedule": (ig.schedule, ig.schedule.__all__), "viz": (viz, viz.__all__),
               "check": (ig.check, ig.check.__all__), "fuse": (ig.fuse, ig.fuse.__all__)}  # fmt: skip
    for room, (module, names) in modules.items():
        for name in names:
            if inspect.isfunction(getattr(module, name)) and name not in INSIDE.get(room, ()):
                yield name, getattr(module, name)
    for kind, make in objects(c).items():
        if wanted and wanted.partition(".")[0] != kind:
            continue
        held = make()
        for name in dir(held):
            method = inspect.getattr_static(held, name)
            if inspect.isfunction(method) and not name.startswith("_") and name not in INSIDE.get(kind, ()):
                yield f"{kind}.{name}", getattr(held, name)
    for name in ("__getitem__", "__add__", "__radd__", "__lt__", "__matmul__", "__pow__", "__and__", "__rmod__"):
        yield f"Tensor.{name}", getattr(c.t, name)
    yield "Fusion.__getitem__", c.f.__getitem__
    yield "Fusion", ig.Fusion
    yield "kernel.parse", ig.kernel.parse
    for name in ("emit", "explain", "local", "owner", "propagate"):
        yield f"shard.{name}", getattr(ig.shard, name)
    yield "compile", ig.compile
    yield "IdModel", ig.IdModel
