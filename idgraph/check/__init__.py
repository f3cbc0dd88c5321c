"""Other compilers' index math, proved or refuted: does a loop nest read and write the elements that the program means?

capture (Inductor), reading (JSON) -> form;  meaning -> match (algebra), points (enumeration) -> decide

`inductor` captures what TorchInductor would generate, `program` takes what any compiler writes down. Nothing here
needs a GPU or a C++ compiler, and importing it is light.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from idgraph.check.dtensor_form import DTensorDevice, DTensorReport, DTensorRow
from idgraph.check.program import CheckError
from idgraph.check.report import CheckReport, CheckRow, Difference
from idgraph.errors import arguments, suggesting
from idgraph.ir import Fusion

if TYPE_CHECKING:
    from idgraph.check.interpreter import Execution
    from idgraph.check.program import NeutralProgram

__all__ = [
    "CheckError", "CheckReport", "CheckRow", "DTensorReport", "DTensorRow", "Difference", "dtensor", "halide",
    "inductor", "interpret", "mlir", "program", "schema", "tvm",
]  # fmt: skip


@arguments(CheckError, first=True)
def inductor(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    *,
    dynamic: bool | None = None,
    options: Mapping[str, object] | None = None,
    budget: int = 1 << 23,
    name: str | None = None,
    source: bool = False,
) -> CheckReport:
    """Prove or refute the index math of what TorchInductor would generate for ``fn(*args)``, backward too.

    Inductor runs up to its scheduler and stops before code. There are rows before its loops are merged, reordered and
    fused, and after; with ``source`` also of the Triton text that Inductor writes then, read and never executed (no
    GPU and no Triton is needed): its addresses are judged, and an "unknown" row says so where it computes more than
    copies of them. ``dynamic`` is torch.compile's; ``options`` are Inductor's config; ``budget``: loop
    points times reads that an enumeration may look at, for each buffer of a nest. Raises `CheckError` where torch is
    missing, has another Inductor than those known here, or cannot compile ``fn``.

    >>> import torch
    >>> import idgraph as ig
    >>> r = ig.check.inductor(lambda x: torch.cat((-x[:, 2:], x[:, :2]), 1) + x, (torch.ones(3, 4),))
    >>> r.ok, r.decided, r.counts["refuted"]
    (True, True, 0)
    """
    from idgraph.check.run import check_inductor  # noqa: PLC0415 - loads NumPy, and torch behind it

    return check_inductor(fn, args, dynamic, options, budget, name, source)


@arguments(CheckError, first=True)
def program(data: NeutralProgram | Mapping[str, object] | str | PathLike[str], *, budget: int = 1 << 23) -> CheckReport:
    """Prove or refute a compiled program in the neutral form: a dict, JSON text, or the path of a JSON file.

    The form is described in the guide "Check another compiler". Formulas are text in Python's integer syntax; nothing
    is evaluated as code. ``budget`` as in `inductor`. Raises `CheckError` that names what is wrong.

    >>> import idgraph as ig
    >>> nest = {"name": "k", "loops": [["i", 4]], "writes": [{"buffer": "y", "index": "i",
    ...     "reads": [{"buffer": "x", "index": "3 - i"}]}]}
    >>> data = {"program": 'fusion "f" {\\n  x = input(shape=(4,), dtype="float32")\\n  y = flip(x, dims=(0,))\\n'
    ...     '  output y\\n}', "nests": [nest]}
    >>> print(ig.check.program(data))
    f: 2 proved, 0 enumerated, 0 refuted, 0 unknown in 1 nest
    >>> nest["writes"][0]["reads"][0]["index"] = "4 - i"
    >>> print(ig.check.program(data).refuted[0].counterexample)
    at i=0 it writes y[0] = y[0]
      reads x[4] = x[4], outside of it   (4 - i)
      meant x[3] = x[3]
      of y = flip
    """
    from idgraph.check.run import check_program  # noqa: PLC0415 - loads NumPy

    return check_program(data, budget)


@arguments(CheckError, first=True)
def mlir(text: str, program: Fusion | str, *, budget: int = 1 << 23) -> CheckReport:
    """Prove or refute a function of MLIR's text that should compute ``program``, a fusion or its text, whose tensors
    have the names of the function's arguments.

    Loops of `affine` and `scf` over `memref`, index arithmetic of `affine` and `arith`; iterations of `parallel` run in
    any order, memory allocated inside of a loop is each iteration's own. Nothing is evaluated. ``budget`` as in
    `inductor`. Raises `CheckError` with line and column for a form that is not known here, and without ``lark``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = ig.flip(f.input("x", shape=(4,)), (0,))
    >>> y.name = "y"
    >>> _ = f.output(y)
    >>> text = '''func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
    ...   affine.parallel (%i) = (0) to (4) {
    ...     %0 = affine.load %x[3 - %i] : memref<4xf32>
    ...     affine.store %0, %y[%i] : memref<4xf32>
    ...   }
    ...   return
    ... }'''
    >>> ig.check.mlir(text, f).ok, ig.check.mlir(text.replace("3 - %i", "%i"), f).ok
    (True, False)
    """
    from idgraph.check.mlir_text import exported  # noqa: PLC0415 - loads a parser
    from idgraph.check.run import check_program  # noqa: PLC0415 - loads NumPy

    return check_program(exported(text, str(program)), budget)


@arguments(CheckError, first=True)
def halide(
    text: str, program: Fusion | str, *, sizes: Mapping[str, int] | None = None, budget: int = 1 << 23
) -> CheckReport:
    """Prove or refute Halide's lowered statement (``.stmt`` text) that should compute ``program``, a fusion or its
    text, whose tensors have the names of the functions and images.

    ``sizes`` are numbers for names that the text takes from its arguments: ``{"x.stride.1": 64}``, in elements.
    Iterations of ``parallel``, ``vectorized`` and the lanes of a ramp run in any order, an allocation inside of a loop
    is each iteration's own. Nothing is evaluated. ``budget`` as in `inductor`. Raises `CheckError` with line and column
    for a form that is not known here, and without ``lark``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = ig.flip(f.input("x", shape=(4,)), (0,))
    >>> y.name = "y"
    >>> _ = f.output(y)
    >>> text = '''produce y {
    ...   parallel (y.s0.i, 0, 4) {
    ...     y[y.s0.i] = x[x.stride.0*(3 - y.s0.i)]
    ...   }
    ... }'''
    >>> ig.check.halide(text, f, sizes={"x.stride.0": 1}).ok, ig.check.halide(text, f, sizes={"x.stride.0": 2}).ok
    (True, False)
    """
    from idgraph.check.halide_text import exported  # noqa: PLC0415 - loads a parser
    from idgraph.check.run import check_program  # noqa: PLC0415 - loads NumPy

    return check_program(exported(text, str(program), sizes), budget)


@arguments(CheckError, first=True)
def tvm(function: object, program: Fusion | str, *, budget: int = 1 << 23) -> CheckReport:
    """Prove or refute a scheduled function of TVM that should compute ``program``, a fusion or its text, whose tensors
    have the names of the function's buffers.

    ``function``: a PrimFunc (``te.create_prim_func``, then a schedule of ``tvm.s_tir``), or an IRModule of one: a
    schedule's ``mod``. TVM's own passes lower its blocks to loops, which are read as they stand; loops that are
    parallel, vectorized or bound to threads run in any order. ``budget`` as in `inductor`. Raises `CheckError` without
    ``apache-tvm`` (the extra ``tvm``), for what is no such function, and for a statement that is not known here.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> _ = f.output(ig.flip(f.input("x", shape=(4,)), (0,)))
    >>> ig.check.tvm("not a PrimFunc", f)
    Traceback (most recent call last):
    idgraph.check.program.CheckError: ...
    """
    from idgraph.check.run import check_program  # noqa: PLC0415 - loads NumPy
    from idgraph.check.tir import exported  # noqa: PLC0415

    return check_program(exported(function, str(program)), budget)


@arguments(CheckError, first=True)
def interpret(
    data: NeutralProgram | Mapping[str, object] | str | PathLike[str],
    inputs: Mapping[str, object] | None = None,
    seed: int = 0,
    *,
    sizes: Mapping[str, int] | None = None,
) -> Execution:
    """Run a program in the neutral form on numbers, as its nests stand: does each output hold what it should?

    Each operation stands for the sum of its operands, each write for the sum of its reads: other elements give other
    numbers. ``inputs``: arrays of integers by name (those missing are random); ``seed``: of these, of the order of a
    kernel's points and of what unwritten memory holds; ``sizes``: values of dynamic sizes. Programs of library calls,
    scatters, scans and indexing by tensors raise `CheckError`.

    >>> import idgraph as ig
    >>> nest = {"name": "k", "loops": [["i", 4]], "writes": [{"buffer": "y", "index": "i",
    ...     "reads": [{"buffer": "x", "index": "3 - i"}]}]}
    >>> data = {"program": 'fusion "f" {\\n  x = input(shape=(4,), dtype="float32")\\n  y = flip(x, dims=(0,))\\n'
    ...     '  output y\\n}', "nests": [nest]}
    >>> e = ig.check.interpret(data, {"x": [1, 2, 3, 4]})
    >>> e.outputs["y"].tolist(), e.right
    ([4, 3, 2, 1], True)
    """
    from idgraph.check.interpreter import run  # noqa: PLC0415
    from idgraph.check.program import NeutralProgram as Parsed  # noqa: PLC0415 - loads NumPy
    from idgraph.check.program_json import read_any  # noqa: PLC0415

    return run(data if isinstance(data, Parsed) else read_any(data), inputs or {}, sizes or {}, seed)


def schema() -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of the neutral form, version 1: what `program` reads. A new dict at each call.

    >>> import idgraph as ig
    >>> sorted(ig.check.schema()["properties"])
    ['body', 'buffers', 'facts', 'name', 'nests', 'order', 'program', 'symbols', 'version']
    """
    import json  # noqa: PLC0415 - a dict that few ask for
    from importlib.resources import files  # noqa: PLC0415

    found: dict[str, object] = json.loads(files("idgraph.check").joinpath("schema.json").read_text("utf-8"))
    return found


@arguments(CheckError, first=True)
def dtensor(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    *,
    mesh: object,
    placements: Mapping[str, Sequence[object]],
    device: DTensorDevice = "cuda",
    name: str | None = None,
) -> DTensorReport:
    """Judge each operation of ``fn(*args)`` on DTensors: "local", "communication", "wrong" or "unknown".

    ``placements`` gives for arguments (and parameters of a module) by name one placement for each axis of ``mesh``:
    torch's own, "S(1)", "R" or "P(sum)"; tensors that it does not name are replicated. DTensor runs on simulated
    devices, in this process. What each device has is compared with the elements that the placement of the result says,
    of the same operation without devices; floating inputs of equal numbers get others, and a partial one is in random
    parts. A write is "wrong" too where another tensor of the same memory does not see it; a random operation, where two
    elements have one random number, or one has two: ``device`` ("cuda" or "cpu") says whose generators draw, all with
    one seed. An operation that DTensor refuses is "local" where a placement of its result (shards and replicas) needs
    no communication; the function goes on with replicated operands. Raises `CheckError` where torch is missing, the
    process has a process group, or ``fn`` cannot be run at all.

    >>> import torch
    >>> import idgraph as ig
    >>> x, mesh = torch.arange(1.0, 33).view(2, 4, 4), ig.Mesh(x=2, y=2)
    >>> r = ig.check.dtensor(lambda x: x.view(32).view(2, 4, 4), (x,), mesh=mesh, placements={"x": ["S(1)", "S(1)"]})
    >>> r.ok, [(row.operation, row.verdict) for row in r.rows]
    (False, [('view', 'local'), ('view', 'wrong')])
    >>> print(r.wrong[0].witness)
    rank 0 has 2, which is element [0, 0, 1], where element [0, 0, 2] = 3 should be
    """
    from idgraph.check.dtensor_modes import check_dtensor  # noqa: PLC0415 - loads torch behind it

    return check_dtensor(fn, args, mesh, placements, device, name)


__getattr__ = suggesting(__name__)
