"""Forty errors as users see them, and the way out that each hint names. ``python -m tests.golden.errors`` remakes them.

A case is what is done wrong, as lines of a program, and the lines that its hint says to write instead. The stored text
is the message; the program's lines stand in it as ``case.py:N``.
"""

from __future__ import annotations

import linecache
import traceback
from dataclasses import dataclass
from pathlib import Path

import idgraph as ig
from idgraph.errors import full_tracebacks

FOLDER = Path(__file__).parent / "errors"
PACKAGE = str(Path(ig.__file__).parent)

HEAD = """\
import numpy as np
import idgraph as ig
f = ig.Fusion("f")
x = f.input("x", shape=(8, 6))
y = f.output(ig.exp(x, name="e") + 1.0)
"""

TEXT = """\
fusion f {{
  symbol n min=1 max=64
  x = input(shape=(8, 6), dtype="float32")
  y = exp(x)
  {}
  output y
}}"""


@dataclass(frozen=True)
class Case:
    """``wrong`` ends in the error; ``told`` stands in its hint; ``right`` is what following the hint writes."""

    name: str
    wrong: str
    told: str
    right: str


def text_case(name: str, wrong: str, told: str, right: str) -> Case:
    """A line of a fusion's text."""
    return Case(name, f"ig.parse({TEXT.format(wrong)!r})", told, f"ig.parse({TEXT.format(right)!r})")


ROTATION = """\
c = ig.cat([x[4:], x[:4]], name="c")
z = f.output(ig.add(x, c, name="z"))
z.split(0, 2)
ig.schedule.like(f, z)
c.inline(2)
"""
BACKWARDS = 'r = f.output(ig.add(f["e"], ig.flip(f["e"], 0), name="r"))\nf["e"].inline(1)\n'
SHARED = """\
t = ig.copy(x, name="t").set_memory("shared")
u = f.output(ig.permute(t, (1, 0)))
m = ig.IdModel(f)
"""

WIDE = 'w = f.output(ig.mul(f.input("v", (70000, 2048)), 2.0, name="w"))\n'
THREADS = 'w.split(1, 256).parallelize(2, "threadIdx.x")\n'
LARGE = """\
s = ig.copy(f.input("v", (4, 70000)), name="s").set_memory("shared")
p = f.output(ig.add(s, 1.0, name="p"))
for t in (s, p):
    t.parallelize(0, "blockIdx.x")
s.inline(1)
"""

CASES = (
    # arrays of other libraries
    Case("method", "x.exp()", "ig.exp(x)", "ig.exp(x)"),
    Case("method_of_several", "x.softmax(1)", "ig.softmax(x, dim)", "ig.softmax(x, 1)"),
    Case("view", "x.view(6, 8)", "ig.reshape(x, shape)", "ig.reshape(x, 6, 8)"),
    Case("method_like_a_builtin", "x.sum(1)", "ig.sum(x)", "ig.sum(x)"),
    Case("method_of_extents", "x.reshape(6, 8)", "ig.reshape(x, extents)", "ig.reshape(x, 6, 8)"),
    Case("clamp", "x.clamp(0, 1)", "ig.minimum(ig.maximum(x, low), high)", "ig.minimum(ig.maximum(x, 0.0), 1.0)"),
    Case("backward", "x.backward()", "ig.from_torch(function, args)",
         "import torch\nig.from_torch(torch.exp, (torch.ones(4),))"),
    Case("length", "len(x)", "x.shape[0]", "range(x.shape[0])"),
    Case("size", "x.size()", "x.shape", "x.shape"),
    Case("to", "x.to('float16')", "ig.cast(x, dtype)", "ig.cast(x, 'float16')"),
    Case("misspelt_attribute", "x.shpae", "x.shape", "x.shape"),
    Case("misspelt_method", "x.sigmiod()", "ig.sigmoid(x)", "ig.sigmoid(x)"),
    Case("numpy_function", "np.exp(x)", "ig.exp(x)", "ig.exp(x)"),
    Case("numpy_concatenate", "np.concatenate([x, x])", "ig.cat([x, ...], dim=0)", "ig.cat([x, x], dim=0)"),
    Case("numpy_array", "np.asarray(x)", 'ig.emit(f).run({"x": array})',
         'ig.emit(f).run({"x": np.zeros((8, 6), np.float32)})'),
    Case("write_element", "x[0] = 1.0", "ig.slice_scatter(x, source, ...)",
         "ig.slice_scatter(x, ig.full((1, 6), 1.0), 0, 0, 1)\nig.where(x > 0, 1.0, x)\n"
         'ig.index_put(x, (f.input("k", (1,), "int64"),), f.input("v", (1, 6)))'),
    Case("truth", "x > 0 and x", "ig.where(condition, a, b)", "ig.where(x > 0, x, 0.0)"),
    Case("iterate", "list(x)", "ig.select(x, 0, k)", "[ig.select(x, 0, k) for k in range(8)]"),
    Case("array_operand", "x * np.ones(6)", "f.input(name, shape, dtype)", 'x * f.input("w", (6,), "float64")'),
    # text
    text_case("text_operation", "z = slcie(y, dims=(0,), starts=(1,), stops=(8,), steps=(1,))", "'slice'",
              "z = slice(y, dims=(0,), starts=(1,), stops=(8,), steps=(1,))"),
    text_case("text_step", "schedule y spilt(0, 2)", "'split'", "schedule y split(0, 2)"),
    text_case("text_input", "w = input(shpae=(4,))", "'shape'", "w = input(shape=(4,))"),
    text_case("text_dtype", 'w = input(shape=(4,), dtype="flaot32")', "'float32'",
              'w = input(shape=(4,), dtype="float32")'),
    text_case("text_tensor", "output yy", "'y'", "output y"),
    text_case("text_keyword", "ouptut y", "'output'", "output y"),
    text_case("text_symbol", "symbol k mni=1", "'min'", "symbol k min=1"),
    text_case("text_parallel", 'schedule y parallelize(0, "threadIdx.X")', "'threadIdx.x'",
              'schedule y parallelize(0, "threadIdx.x")'),
    Case("text_head", "ig.parse('fuison f {\\n}')", "'fusion'", "ig.parse('fusion f {\\n}')"),
    Case("expression_function", 'ig.simplify("mni(i, 4)", {"i": 4})', "'min'", 'ig.simplify("min(i, 4)", {"i": 4})'),
    # operations
    Case("reshape", "ig.reshape(x, 5, 5)", "-1 infers one extent", "ig.reshape(x, 4, -1)"),
    Case("shapes", "x + f.input('w', (5,))", "slice one of them", "x[:, :5] + f.input('w', (5,))"),
    Case("dtype", 'ig.cast(x, "flot32")', "'float32'", 'ig.cast(x, "float32")'),
    Case("foreign_tensor", 'x + ig.Fusion("g").input("w", (8, 6))', "tensors of one fusion",
         'x + f.input("w", (8, 6))'),
    Case("flag", "ig.sum(x, 1, keepdim=1)", "keepdim: True or False", "ig.sum(x, 1, keepdim=True)"),
    Case("contiguity_and_strides", 'f.input("w", (4,), strides=(1,), contiguity=True)', "only strides",
         'f.input("w", (4,), strides=(1,))'),
    Case("strides", 'f.input("w", (4, 2), strides=(1,))', "one non-negative number of elements for each axis",
         'f.input("w", (4, 2), strides=(2, 1))'),
    Case("unknown_symbol", 'f.input("w", (ig.Fusion("g").symbol("k", min=1),))', 'k = f.symbol("k", min=1)',
         'f.input("w", (f.symbol("k", min=1),))'),
    Case("cat_of_one", "ig.cat(x, 0)", "put them into a list", "ig.cat([x, x], 0)"),
    Case("too_many_indices", "x[0, 0, 0]", "at most 2", "x[0, 0]"),
    Case("slice_step", "x[::0]", "-1 backwards", "x[::-1]"),
    Case("select_outside", "x[9]", "0 to 7, or -1", "x[7] + x[-1]"),
    Case("permutation", "ig.permute(x, (0, 0))", "each of 0 to 1 once", "ig.permute(x, (1, 0))"),
    Case("name_taken", 'f.input("x", (5,))', "another name", 'f.input("x2", (5,))'),
    Case("symbol_as_text", 'f.input("w", ("n",))', 'n = f.symbol("n")', 'n = f.symbol("n")\nf.input("w", (n,))'),
    # calls
    Case("array_type", 'ig.compile(f, "numpy")(np.zeros((8, 6)))', "convert the array",
         'ig.compile(f, "numpy")(np.zeros((8, 6), np.float32))'),
    Case("array_shape", 'ig.compile(f, "numpy")(np.zeros((8, 5), np.float32))', "pass an array of shape (8, 6)",
         'ig.compile(f, "numpy")(np.zeros((8, 6), np.float32))'),
    Case("too_many_arrays", 'a = np.zeros((8, 6), np.float32)\nig.compile(f, "numpy")(a, a)', "inputs: x",
         'a = np.zeros((8, 6), np.float32)\nig.compile(f, "numpy")(a)'),
    Case("no_example", "ig.from_torch(lambda x: x)", "from_torch(f, (x,))",
         "import torch\nig.from_torch(lambda x: x + 1, (torch.ones(2),))"),
    # schedules
    Case("split_by_a_float", "y.split(0, 8 / 2)", "n // 2, not n / 2", "y.split(0, 8 // 2)"),
    Case("split_by_zero", "y.split(0, 0)", "1 or more", "y.split(0, 1)"),
    Case("misspelt_step", "y.splitt(0, 4)", "t2.split", "y.split(0, 4)"),
    Case("axis", "y.split(7, 2)", "numbered 0 to 1", "y.split(1, 2)"),
    Case("inline_input", "x.inline(1)", "c = ig.copy(x)", "c = ig.copy(x)\nf.output(c + 1.0)\nc.inline(1)"),
    Case("split_input", 'x.split(0, 4)\nig.emit(f)', "e.split(...)", 'f["e"].split(0, 4)\nig.emit(f)'),
    Case("vectorize_outer", 'y.parallelize(0, "vectorize")\nig.emit(f, "cuda")', "t2.reorder({0: 1})",
         'y.parallelize(0, "vectorize")\ny.reorder({0: 1})\nig.emit(f, "cuda")'),
    Case("threads_of_an_axis", f'{WIDE}w.parallelize(1, "threadIdx.x")\nig.emit(f, "cuda")',
         'w.split(1, 1024).parallelize(2, "threadIdx.x")',
         f'{WIDE}w.split(1, 1024).parallelize(2, "threadIdx.x")\nig.emit(f, "cuda")'),
    Case("threads_of_two_axes", f'{WIDE}{THREADS}w.parallelize(0, "threadIdx.y")\nig.emit(f, "cuda")',
         'w.split(0, 4).parallelize(1, "threadIdx.y")',
         f'{WIDE}{THREADS}w.split(0, 4).parallelize(1, "threadIdx.y")\nig.emit(f, "cuda")'),
    Case("threads_of_a_block", f'{WIDE}{THREADS}w.split(0, 8).parallelize(1, "threadIdx.y")\nig.emit(f, "cuda")',
         'w.split(3, 128).parallelize(4, "threadIdx.x")',
         f'{WIDE}w.split(1, 256)\nw.split(0, 8).parallelize(1, "threadIdx.y")\n'
         'w.split(3, 128).parallelize(4, "threadIdx.x")\nig.emit(f, "cuda")'),
    Case("blocks", f'{WIDE}w.parallelize(0, "blockIdx.y")\nig.emit(f, "cuda")', 'w.parallelize(0, "blockIdx.x")',
         f'{WIDE}w.parallelize(0, "blockIdx.x")\nig.emit(f, "cuda")'),
    Case("shared_bytes", f'{LARGE}ig.emit(f, "cuda")', "inline s deeper",
         f'{LARGE}p.split(1, 256)\ns.split(1, 256)\ns.inline(2)\nig.emit(f, "cuda")'),
    Case("check_symbol", "ig.validate(f, symbols={'n': 3})", "it has none", "ig.validate(f)"),
    Case("inline_past", "y.inline(3)", "0 to 2", "y.inline(2)"),
    Case("memory", 'f["e"].set_memory("shraed")', "'shared'", 'f["e"].set_memory("shared")'),
    Case("inline_shift", f"{ROTATION}z.split(1, 3).merge(0).split(0, 3)\nig.IdModel(f).index", "ig.schedule.like(f, z)",
         f"{ROTATION}z.split(1, 3).merge(0).split(0, 3)\nig.schedule.like(f, z)\nig.IdModel(f).index"),
    Case("inline_flip", f"{BACKWARDS}ig.IdModel(f).index", "ig.schedule.recompute(e, t3.definition)",
         f'{BACKWARDS}ig.schedule.recompute(f["e"], f["t3"].definition)\nig.IdModel(f).index'),
    Case("two_loops_on_one_dimension", 'y.parallelize(0, "threadIdx.x").parallelize(1, "threadIdx.x")',
         "use another dimension", 'y.parallelize(0, "threadIdx.y").parallelize(1, "threadIdx.x")'),
    # questions and kernels
    Case("no_access", "ig.IdModel(f).access(y.definition, x)", "it touches",
         'ig.IdModel(f).access(y.definition, f["e"])'),
    Case("no_loop", "ig.IdModel(f).write(y.definition).contiguous('i7')", "its loops are i0, i1",
         "ig.IdModel(f).write(y.definition).contiguous('i1')"),
    Case("banks", f"{SHARED}m.access(u.definition, t).bank_conflicts()", "threadIdx.x",
         f'{SHARED}t.parallelize(1, "threadIdx.x")\nu.parallelize(1, "threadIdx.x")\n'
         "ig.IdModel(f).access(u.definition, t).bank_conflicts()"),
    Case("target", 'ig.emit(f, target="cdua")', "'cuda'", 'ig.emit(f, target="cuda")'),
    Case("target_of_others", 'ig.emit(f, target="gpu")', "'cuda'", 'ig.emit(f, target="cuda")'),
    Case("dtype_of_others", 'ig.cast(x, "f16")', "'float16'", 'ig.cast(x, "float16")'),
    Case("keyword_of_others", "ig.sum(x, axis=1)", "dim=", "ig.sum(x, dim=1)"),
    Case("keyword_misspelt", 'ig.emit(f, targt="cpu")', "target=", 'ig.emit(f, target="cpu")'),
    Case("argument_missing", "ig.fuse.explain(f, x)", "explain(fusion, a, b",
         "ig.fuse.explain(f, f.exprs[0], f.exprs[1])"),
    Case("stack", "ig.stack([x, f.input('w', (6,))])", "expand",
         "ig.stack([x, ig.expand(f.input('w', (6,)), (8, 6))])"),
    Case("device", 'ig.cost(ig.emit(f, "cuda"), device="H20")', "'H200'", 'ig.cost(ig.emit(f, "cuda"), device="H200")'),
    Case("input_misspelt", 'ig.emit(f, "numpy").run({"X": np.ones((8, 6), "float32")})', "inputs: x",
         'ig.emit(f, "numpy").run({"x": np.ones((8, 6), "float32")})'),
    Case("no_fusion", "ig.emit(x)", "fusion: a Fusion", "ig.emit(f)"),
    Case("no_output", 'g = ig.Fusion("g")\nw = g.input("w", (4,)) + 1.0\ng.verify()', "f.output(tensor)",
         'g = ig.Fusion("g")\nw = g.output(g.input("w", (4,)) + 1.0)\ng.verify()'),
    Case("picture_step", "ig.IdModel(f).write(y.definition).picture(at='first')", 'at="last"',
         "ig.IdModel(f).write(y.definition).picture(at='last')"),
)  # fmt: skip


def run(lines: str) -> ig.IdGraphError | None:
    """The error of a program that begins with `HEAD`; its lines can be quoted as those of a file."""
    source = HEAD + lines
    linecache.cache["case.py"] = (len(source), None, source.splitlines(keepends=True), "case.py")
    try:
        exec(compile(source, "case.py", "exec"), {})
    except ig.IdGraphError as error:
        return error
    return None


def frames_of_ours(error: BaseException) -> int:
    """Frames of the package that a traceback of ``error`` shows, those of its causes too."""
    count, at = 0, error
    while True:
        count += sum(f.filename.startswith(PACKAGE) for f in traceback.extract_tb(at.__traceback__))
        follow = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
        if follow is None:
            return count
        at = follow


def message(case: Case) -> str:
    """The error as text; raises where there is none."""
    error = run(case.wrong)
    if error is None:
        raise AssertionError(f"{case.name}: no error")
    return f"{type(error).__name__}: {error}\n"


def main() -> None:
    """Store all messages as they are now."""
    full_tracebacks(False)
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for case in CASES:
        (FOLDER / f"{case.name}.txt").write_text(message(case), encoding="utf-8")


if __name__ == "__main__":
    main()


__all__ = ["CASES", "FOLDER", "Case", "frames_of_ours", "message", "run"]
