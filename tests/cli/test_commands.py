"""The command line as a script sees it: commands on every kind of file, exit codes, one line for bad input, pipes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pytest

import idgraph as ig
from idgraph.cli import main
from idgraph.frontends.import_ import from_json

GRAPH = Path(__file__).parents[1] / "frontends" / "graphs" / "rope_half_residual.core.json"
ROTATION = """import idgraph as ig
print("building")
f = ig.Fusion("rotation")
t0 = f.input("t0", shape=(64,))
t3 = ig.cat([t0[32:], t0[:32]], dim=0)
t4 = f.output(t0 + t3)
"""
FILES = ("rotation.py", "rotation.txt", "graph.json")


@dataclass(frozen=True, slots=True)
class Shown:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, cwd: Path) -> Shown:
    """The command in this process, as quick as it can be; `spawn` is the real thing."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["idgraph", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(cwd):
            main()
    except SystemExit as done:
        return Shown(done.code if isinstance(done.code, int) else -1, out.getvalue(), err.getvalue())
    finally:
        sys.argv = before


def spawn(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "idgraph", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    (made / "rotation.py").write_text(ROTATION)
    (made / "graph.json").write_bytes(GRAPH.read_bytes())
    shown = run("show", "rotation.py", "--form", "text", cwd=made)
    (made / "rotation.txt").write_text(shown.stdout)
    return made


def test_the_loop_nest_of_a_file(folder: Path) -> None:
    shown = run("show", "rotation.py", "--form", "loops", cwd=folder)
    assert shown.returncode == 0 and "for i0 < " in shown.stdout and " = cat(" in shown.stdout
    assert run("show", "rotation.py", "--form", "loops", "--graph", "exact", cwd=folder).returncode == 2


def test_help_names_every_command(folder: Path) -> None:
    shown = run("--help", cwd=folder)
    assert shown.returncode == 0
    assert "Exit status: 0 it holds, 1 a check failed, 2 bad input" in " ".join(shown.stdout.split())
    for command in ("demo", "check", "show", "index", "cycles", "explain", "emit", "report", "sweep"):
        assert f"  {command} " in shown.stdout
        assert run(command, "--help", cwd=folder).returncode == 0


@pytest.mark.sampled
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "command", ["check --target numpy", "show", "index", "index --auto", "cycles", "emit", "report", "report --auto"]
)
def test_each_command_on_each_kind_of_file(folder: Path, file: str, command: str) -> None:
    name, *options = command.split()
    plain = run(name, file, *options, cwd=folder)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout and "\x1b" not in plain.stdout
    found = json.loads(run(name, file, *options, "--json", cwd=folder).stdout)
    assert found["file"] == file


def test_what_a_program_prints_is_not_mixed_in(folder: Path) -> None:
    shown = spawn("check", "rotation.py", "--json", "--target", "numpy", cwd=folder)
    assert json.loads(shown.stdout)["ok"] is True
    assert shown.stderr == "building\n"


def test_symbols_are_given_values(folder: Path) -> None:
    (folder / "symbols.py").write_text(
        "import idgraph as ig\nf = ig.Fusion('f')\nn = f.symbol('n', min=1)\nf.output(f.input('x', (n, 8)) + 1.0)\n"
    )
    command = ("check", "symbols.py", "--target", "numpy", "--json")
    assert "symbol n has no value" in run(*command, cwd=folder).stderr
    shown = run(*command, "--symbol", "n=3", cwd=folder)
    assert (shown.returncode, json.loads(shown.stdout)["points"]) == (0, 2 * 3 * 8)
    for wrong, words in (("q=3", "'q' is not a symbol of fusion f; hint: did you mean 'n'?"), ("n=4", "given twice")):
        found = run(*command, "--symbol", "n=3", "--symbol", wrong, cwd=folder)
        assert found.returncode == 2 and words in found.stderr + found.stdout


@pytest.mark.parametrize(
    ("holds", "name", "words"),
    [
        ("rotation.py", "a.txt", "holds a Python program, its name says the text of a fusion; hint: name it 'a.py'"),
        ("rotation.py", "a.json", "holds a Python program, its name says a captured graph (JSON)"),
        ("rotation.txt", "a.py", "holds the text of a fusion, its name says a Python program; hint: name it 'a.txt'"),
        ("rotation.txt", "a.json", "holds the text of a fusion, its name says a captured graph (JSON)"),
        ("graph.json", "a.py", "holds a captured graph (JSON), its name says a Python program"),
        (
            "graph.json",
            "a",
            "holds a captured graph (JSON), its name says the text of a fusion; hint: name it 'a.json'",
        ),
    ],
)
def test_a_name_that_says_another_format_is_refused(folder: Path, holds: str, name: str, words: str) -> None:
    (folder / name).write_bytes((folder / holds).read_bytes())
    found = run("show", name, cwd=folder)
    assert found.returncode == 2 and words in " ".join(found.stderr.split())
    (folder / name).unlink()


def test_the_report_of_a_file_and_its_page(folder: Path) -> None:
    found = json.loads(run("report", "graph.json", "--json", cwd=folder).stdout)
    assert found == {"file": "graph.json", **from_json(GRAPH).report().to_dict()} | {"name": "graph"} | {
        "segments": found["segments"]
    }
    shown = run("report", "rotation.py", "--html", "page.html", cwd=folder)
    assert (shown.returncode, shown.stdout) == (0, "wrote page.html\n")
    assert (folder / "page.html").read_text().startswith("<!DOCTYPE html>")
    plain = run("report", "graph.json", "--rows", "3", cwd=folder).stdout
    assert "shift by 4" in plain and "more rows" in plain


def test_the_demo_as_json(tmp_path: Path) -> None:
    shown = run("demo", "rope", "--small", "--target", "numpy", "--json", cwd=tmp_path)
    found = json.loads(shown.stdout)
    assert (shown.returncode, found["ok"], found["index_cycles"]) == (0, True, 0)
    assert {c["kind"] for c in found["cycles"]} == {"shift"}
    assert all((tmp_path / p).is_file() for p in found["pictures"])


def test_the_demo_in_full(tmp_path: Path) -> None:
    brief, full = (
        run("demo", "rope", "--small", "--target", "numpy", *more, cwd=tmp_path).stdout for more in ((), ("--verbose",))
    )
    assert len(brief.splitlines()) <= 40 < 100 < len(full.splitlines())
    assert "visited at least once" in full and "add_2" in brief


def test_cycles_and_index_maps(folder: Path) -> None:
    found = json.loads(run("cycles", "rotation.py", "--json", cwd=folder).stdout)["cycles"]
    assert {(c["kind"], abs(int(c["shift"]))) for c in found} == {("shift", 32)}
    shown = json.loads(run("index", "rotation.py", "--tensor", "t4", "--json", cwd=folder).stdout)
    assert [a["coordinates"] for a in shown["operations"][0]["accesses"]] == ["(i0)"] * 3


def test_explain_says_yes_or_no(folder: Path) -> None:
    assert run("explain", "rotation.py", "t0:0", "t4:0", cwd=folder).returncode == 0
    apart = run("explain", "rotation.py", "t1:0", "t4:0", cwd=folder)
    assert apart.returncode == 1 and "are not the same" in apart.stdout


def test_explain_prints_the_call_of_a_captured_graph(folder: Path) -> None:
    graph = files("idgraph.cli") / "data" / "rope_half_residual.core.json"
    shown = run("explain", str(graph), cwd=folder)
    assert shown.returncode == 0 and shown.stdout.startswith("def call(args, tell, wait):")
    assert shown.stdout.count("launch0(") == 1 and "empty_strided((2, 4, 16, 8)" in shown.stdout
    one = run("explain", "rotation.py", "t0:0", cwd=folder)
    assert one.returncode == 2 and "explain FILE FIRST SECOND" in one.stderr


def test_a_failed_check_is_1(folder: Path) -> None:
    wrong = ROTATION + (
        "from idgraph.cli import commands\n"
        "class Failed:\n"
        "    ok, points, counterexample = False, 1, 'here'\n"
        "commands.validate = lambda *a, **k: Failed()\n"
    )
    (folder / "wrong.py").write_text(wrong)
    shown = spawn("check", "wrong.py", "--json", cwd=folder)
    assert shown.returncode == 1
    assert json.loads(shown.stdout)["counterexample"] == "here"


BAD: dict[str, tuple[str | bytes | None, str]] = {
    "missing.txt": (None, "No such file"),
    "missing.json": (None, "No such file"),
    "missing.py": (None, "No such file"),
    "half.json": (GRAPH.read_text()[:3000], "not JSON"),
    "list.json": ("[1, 2]", "an object with nodes"),
    "deep.json": ("[" * 100_000, "nested too deep"),
    "binary.json": (bytes(range(256)), "not UTF-8"),
    "binary.txt": (bytes(range(128, 256)), "not UTF-8"),
    "binary.py": (bytes(range(256)), "binary.py' failed"),
    "empty.txt": ("", "expected 'fusion'"),
    "empty.json": ("", "not JSON"),
    "empty.py": ("", "leaves 0 fusions"),
    "two.py": ("import idgraph as ig\na, b = ig.Fusion('a'), ig.Fusion('b')\n", "leaves 2 fusions"),
    "raises.py": ("x = 1\nraise ValueError('a\\nb')\n", "failed at line 2: ValueError: a b"),
    "exits.py": ("import sys\nsys.exit(0)\n", "exit status 0"),
    "syntax.py": ("x = (\n", "SyntaxError"),
    "endless.py": ("def f(): f()\nf()\n", "RecursionError"),
    "operation.py": (
        "import idgraph as ig\nx = ig.Fusion('f').input('x', shape=(4,))\nig.cat([x, x], dim=3)\n",
        "has no axis 3; at operation.py:3",
    ),
    "base.py": ("class E(BaseException): pass\nraise E('x')\n", "failed at line 2: E: x"),
    "closes.py": ("import sys\nsys.stdout.close()\nsys.exit('bye')\n", "exit status bye"),
    "hog.py": ("bytearray(1 << 60)\n", "more memory"),
    "nul.txt": ("fusion\0f", "unexpected character"),
    "huge.txt": ("fusion f {\n  x = input(shape=(9999999999999999,))\n}", "no machine holds"),
    "nan.json": ('{"nodes": NaN}', "not JSON"),
    "schedule.py": (
        "import idgraph as ig\nf = ig.Fusion('f')\nx = ig.exp(f.input('x', (4, 4)))\nf.output(x.T)\nx.inline(1)\n",
        "is not loop 0",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_2(tmp_path: Path, name: str) -> None:
    content, said = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    shown = run("check", name, cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert len(shown.stderr.splitlines()) == 1 and shown.stderr.startswith("error: ")
    assert said in shown.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shwo", "a.txt"), "Did you mean 'show'?"), (("show", "a.txt", "--jsonn"), "Did you mean '--json'?"),
        (("show", "a.txt", "--xyz"), "hint: idgraph --help, idgraph COMMAND --help"),
        (("check", "a.txt", "--means", "b.txt"), "--means is of .mlir and .stmt files"),
    ],
)  # fmt: skip
def test_a_word_that_is_not_known_leads_to_one_that_is(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    shown = run(*words, cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert len(shown.stderr.splitlines()) == 1 and said in shown.stderr


@pytest.mark.parametrize("name", ["folder", "folder.py", "folder.json", "folder.txt"])
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    shown = run("show", name, cwd=tmp_path)
    assert shown.returncode == 2 and "Is a directory" in shown.stderr


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no endless device")
def test_an_endless_file(tmp_path: Path) -> None:
    shown = run("show", "/dev/zero", cwd=tmp_path)
    assert shown.returncode == 2 and "longer than" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    ["bogus", "check", "check rotation.py --seed x", "check rotation.py --symbol n", "check rotation.py --symbol n=x",
     "check rotation.py --symbol =3", "check rotation.py --seed -1", "check rotation.py --target fpga",
     "report nothing.json", "report rotation.py --html no/such/page.html", "report rotation.py --html page.pdf",
     "report rotation.py --rows 0", "emit rotation.py --target x", "cycles rotation.py --graph loop",
     "explain rotation.py t0:-1 t4:0", "explain rotation.py t0:٣ t4:0", "show rotation.py --output .", "demo nothing",
     "sweep nothing", "sweep graph.json", "sweep . --timeout 0", "sweep . --timeout nan", "sweep . --memory inf",
     "sweep . --memory nan", "sweep . --memory 1e300", "sweep . --workers 0", "sweep . --points 1e9",
     "sweep . --cluster ftp://x", "sweep . --output no/such/rows.jsonl",
     "sweep . --output .", "sweep . --output rotation.py", "explore rotation.py --output no/such/page.html",
     "explore rotation.py --output page.pdf",
     "show rotation.py --form gif", "index rotation.py --tensor nothing", "explain rotation.py t0 t4",
     "explain rotation.py t0:9 t4:0", "explain rotation.py no:0 t4:0", "show rotation.py --output no/such/folder.txt"],
)  # fmt: skip
def test_bad_arguments_are_2(folder: Path, arguments: str) -> None:
    shown = run(*arguments.split(), cwd=folder)
    assert shown.returncode == 2
    assert len(shown.stderr.replace("building\n", "").splitlines()) == 1


@pytest.mark.sampled
@pytest.mark.parametrize(
    "command", ["show graph.json", "show graph.json --form svg", "index graph.json", "emit graph.json"]
)
def test_a_pipe_closed_early_is_no_error(folder: Path, command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        shown = subprocess.run(
            [sys.executable, "-m", "idgraph", *command.split()],
            cwd=folder, stdout=closed, stderr=subprocess.PIPE, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.thorough
@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    shown = spawn("demo", "--small", "--output", "pictures here", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "every address and every value is right" in " ".join(shown.stdout.replace("│", " ").split())
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    head = lines.index("6/6 the kernel, for cpu: its first lines, and one address")
    kernel = lines[head + 1 : head + 9]
    assert kernel[0].strip().startswith("for i0 < ") and not [x for x in kernel if "@" in x or "#" in x]
    assert "slice reads q[" in " ".join(lines[-6:])
    assert lines[-1] == "open pictures here/explorer.html"
    assert "<title>rope_half_residual.core</title>" in (tmp_path / "pictures here" / "explorer.html").read_text()
    assert all(f"{n}/6" in shown.stdout for n in range(1, 7))
    assert {p.name for p in (tmp_path / "pictures here").iterdir()} >= {"fusion.svg", "exact.svg", "index.svg"}


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["report rotation.py", "sweep list.txt --output rows.jsonl"])
def test_a_bar_on_a_terminal_only(folder: Path, command: str) -> None:
    (folder / "list.txt").write_text("rotation.txt\n")
    read, write = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "idgraph", *command.split()],
        cwd=folder, stdout=subprocess.PIPE, stderr=write, text=True, check=False, timeout=600,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(write)
    drawn = os.read(read, 1 << 16).decode()
    os.close(read)
    assert done.returncode == 0
    assert "━" in drawn and ("operations" in drawn or "graphs" in drawn)
    assert "\x1b" not in done.stdout
    (folder / "rows.jsonl").unlink(missing_ok=True)
    plain = spawn(*command.split(), cwd=folder)
    assert plain.stderr.replace("building\n", "") == ""


def test_the_version_is_the_package_s_also_where_nothing_is_installed(folder: Path) -> None:
    said = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    assert run("--version", cwd=folder).stdout.split()[-1] == said == ig.__version__
    assert run("show", "-h", cwd=folder).returncode == 0


def test_no_axis_is_named(folder: Path) -> None:
    shown = run("explain", "rotation.txt", "t0", "t4:0", cwd=folder)
    assert (shown.returncode, shown.stderr) == (2, "error: 't0' names no axis; hint: TENSOR:AXIS, such as t1:0\n")
    shown = run("explain", "rotation.txt", "nothing:0", "t4:0", cwd=folder)
    assert shown.returncode == 2 and "no tensor 'nothing'" in shown.stderr and "callback" not in shown.stderr


def test_a_standard_output_that_is_closed(folder: Path) -> None:
    command = f"{sys.executable} -m idgraph show rotation.txt >&-"
    shown = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")


def test_emit_prints_the_kernels_after_each_pass(tmp_path: Path) -> None:
    file = tmp_path / "sums.py"
    file.write_text(
        "import idgraph as ig\nf = ig.Fusion('sums')\nx = f.input('x', (8, 512))\nf.output(x - ig.amax(x, 1, True))\n"
    )
    command = ("emit", str(file), "--auto", "--target", "cuda", "--passes")
    found = run(*command, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    heads = [line for line in found.stdout.splitlines() if line.startswith("# after ")]
    assert heads[0].startswith("# after lower: kernel0, ") and heads[0].endswith(" statements")
    assert any(h.startswith("# after rows: ") for h in heads)
    data = json.loads(run(*command, "--json", cwd=tmp_path).stdout)
    assert [f"# after {p['pass']}: {p['kernel']}, {p['statements']} statements" for p in data["passes"]] == heads


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_completion_is_that_of_the_shell(shell: str, tmp_path: Path) -> None:
    env = os.environ | {"_IDGRAPH_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'idgraph'; from idgraph.cli import main; main()"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "_idgraph_completion" in done.stdout
    words = {"COMP_WORDS": "idgraph ex", "COMP_CWORD": "ex" if shell == "fish" else "1"}
    env = os.environ | words | {"_IDGRAPH_COMPLETE": f"{shell}_complete"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "explain" in done.stdout and "explore" in done.stdout
