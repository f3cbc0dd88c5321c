"""Every house rule passes what is right and can fail."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from tools.checks import circles, foreign_names, layout, length, light_import, names, prose, public_docs


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An empty repository."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "see /wo" + "rk/main/x.py",
        "cd '/fa" + "rm/a'",
        "pip install -i https://py" + "pi.org/simple x",
        "https://files.python" + "hosted.org/packages",
        'File "/ro' + 'ot/.pyenv/lib/x.py", line 3',
        "/ho" + "me/ann/idgraph/x.py",
    ],
)
def test_foreign_names_are_found(checkout: Path, text: str) -> None:
    (checkout / "a.md").write_text(f"fine\n{text}\n")
    (found,) = foreign_names.rule(checkout)
    assert (found.path, found.line) == ("a.md", 2)


def test_ordinary_paths_are_not_foreign(checkout: Path) -> None:
    (checkout / "a.md").write_text(
        "idgraph/work/main.py, a/home/b, ../shared/corpus, #!/usr/bin/env python3, the root/a of it\n"
    )
    (checkout / "b.bin").write_bytes(b"\xff\xfe\x00")
    assert foreign_names.rule(checkout) == []


def test_ignored_files_are_not_read(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("/local/\n")
    (checkout / "local").mkdir()
    (checkout / "local" / "a.txt").write_text("/wo" + "rk/main")
    assert foreign_names.rule(checkout) == []


def test_layout_names_unknown_and_missing(checkout: Path) -> None:
    for name in layout.REQUIRED:
        path = checkout / name if "." in name[1:] or name == "LICENSE" else checkout / name / "x.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert layout.rule(checkout) == []
    (checkout / "utils").mkdir()
    (checkout / "utils" / "x.py").write_text("")
    (checkout / "LICENSE").unlink()
    assert [(found.path, "missing" in found.what) for found in layout.rule(checkout)] == [
        ("utils", False),
        ("LICENSE", True),
    ]


def test_a_circle_of_modules_is_found(checkout: Path) -> None:
    (checkout / "idgraph" / "a").mkdir(parents=True)
    (checkout / "idgraph" / "__init__.py").write_text("from idgraph.a import x\n")
    (checkout / "idgraph" / "a" / "__init__.py").write_text("")
    (checkout / "idgraph" / "a" / "x.py").write_text("from idgraph.a import y\n")
    (checkout / "idgraph" / "a" / "y.py").write_text("import os\n")
    assert circles.rule(checkout) == []
    for back in ("if TYPE_CHECKING:\n    from idgraph.a.x import X\n", "def f():\n    from .x import X\n"):
        (checkout / "idgraph" / "a" / "y.py").write_text(f"from typing import TYPE_CHECKING\n{back}")
        (found,) = circles.rule(checkout)
        assert "idgraph.a.x" in found.what and "idgraph.a.y" in found.what


def _sources(checkout: Path, sources: dict[str, str]) -> None:
    for name, text in sources.items():
        (checkout / "idgraph" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "idgraph" / name).write_text(text)


def test_a_class_name_stands_once_and_a_private_function_in_two_modules(checkout: Path) -> None:
    two = {"a/x.py": "class Step: ...\ndef _parts(): ...\n", "b/y.py": "def _parts(): ...\n"}
    _sources(checkout, {**two, "b/__init__.py": ""})
    assert names.rule(checkout) == []
    _sources(checkout, {"c/z.py": "def _parts(): ...\ndef f():\n    class Step: ...\n    def _parts(): ...\n"})
    assert sorted((f.path, f.line) for f in names.rule(checkout)) == [("idgraph/c/z.py", 1), ("idgraph/c/z.py", 3)]


@pytest.mark.parametrize(
    "text", ["def digits_kept(): ...", "class _Held: ...", "class WhollyMade: ...", "def told(): ..."]
)
def test_a_participle_is_no_name(checkout: Path, text: str) -> None:
    _sources(checkout, {"a/x.py": text})
    (found,) = names.rule(checkout)
    assert (found.path, found.line) == ("idgraph/a/x.py", 1)
    _sources(checkout, {"a/x.py": "def keptness(): ...\n"})
    assert names.rule(checkout) == []
    _sources(checkout, {"a/beside.py": ""})
    assert [f.path for f in names.rule(checkout)] == ["idgraph/a/beside.py"]


def test_a_reason_that_nothing_needs_goes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sources(checkout, {"a/x.py": "def told(): ...\n", "c/cut.py": "cut = 1\n"})
    monkeypatch.setattr(names, "REASONS", {("idgraph/a/x.py", "told"): "", ("idgraph/c/cut.py", "made"): ""})
    (found,) = names.rule(checkout)
    assert "nothing in idgraph/c/cut.py is called made" in found.what


HIDDEN = """
import importlib, pkgutil, sys, types
import idgraph
for module in pkgutil.walk_packages(idgraph.__path__, "idgraph."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for name, package in list(sys.modules.items()):
    # What frontends.aten exports are its modules.
    if name.partition(".")[0] == "idgraph" and hasattr(package, "__path__") and name != "idgraph.frontends.aten":
        for word in getattr(package, "__all__", ()):
            value = getattr(package, word)
            if type(value) is types.ModuleType and hasattr(value, word):
                print(f"{name}.{word} is hidden by the module of its name")
"""


def test_no_module_hides_a_public_name_of_its_package() -> None:
    seen = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=True)
    assert seen.stdout == ""


def test_long_places_need_a_reason() -> None:
    body = "    x = 1\n" * length.FUNCTION_LINES
    (function,) = length.long_places("a.py", f"def f() -> None:\n{body}")
    assert function.line == 1
    assert length.long_places("a.py", f'def f() -> None:\n    """F.\n\n    Long: one table.\n    """\n{body}') == []
    (module,) = length.long_places("a.py", "x = 1\n" * (length.MODULE_LINES + 1))
    assert module.line == 0
    assert length.long_places("a.py", '"""A.\n\nLong: one table.\n"""\n' + "x = 1\n" * length.MODULE_LINES) == []


def test_public_docs_names_each_gap() -> None:
    package = types.ModuleType("sample")

    def documented() -> None:
        """Do it.

        >>> documented()
        """

    def without_example() -> None:
        """Do it."""

    class Bare:
        pass

    Bare.__doc__ = None
    vars(package).update(a=documented, b=without_example, c=Bare, d=3, __all__=["a", "b", "c", "d", "e"])
    findings = {found.path: found.what for found in public_docs.undocumented(package)}
    assert findings.keys() == {"sample.b", "sample.c", "sample.e"}
    assert "no example" in findings["sample.b"]
    assert "no docstring" in findings["sample.c"]
    assert "does not exist" in findings["sample.e"]


def test_public_docs_finds_methods_that_no_example_uses() -> None:
    class Thing:
        """A thing.

        >>> Thing().shown
        1
        """

        @property
        def shown(self) -> int:
            """In the example of the class."""
            return 1

        def has_its_own(self) -> int:
            """Two.

            >>> Thing().has_its_own()
            2
            """
            return 2

        def bare(self) -> None:
            """Nothing."""

        def silent(self) -> None:
            pass

    found = {f.path.rpartition(".")[2]: f.what for f in public_docs.bare_methods(Thing)}
    assert found.keys() == {"bare", "silent"}
    assert "no example" in found["bare"]
    assert "no docstring" in found["silent"]


def test_length_counts_no_examples() -> None:
    source = 'def f():\n    """Do.\n\n' + "    >>> f()\n" * 300 + '    """\n' + "x = 1\n" * 400
    assert not length.long_places("m.py", source)
    assert length.long_places("m.py", source + "x = 1\n" * 101)


def test_prose_finds_what_readers_stumbled_over() -> None:
    source = '''"""What it does."""
def f(x):
    """A float is no integer."""
    raise ValueError(f"{x} is 2.0, no integer")
def g(x):
    """There is no axis; it is no longer one."""
    raise ValueError(f"{x} has no axis; there is no tensor")
'''
    assert sorted(found.line for found in prose.stumbles("m.py", source)) == [1, 3, 4]


def test_prose_finds_words_that_the_field_does_not_use() -> None:
    source = '"""Is told where it stands."""\n\n\ndef room(told: str) -> str:\n    return f"{told} is handed over"\n'
    assert [(f.line, f.what) for f in prose.terms_of_module("m.py", source)] == [
        (1, "`told`: say reported"),
        (5, "`handed over`: say pass, return or export"),
    ]
    page = "`f.told` is code.\n\n```\ntold\n```\nThe zoo, and two things in one place.\n"
    assert [f.line for f in prose.terms("p.md", 1, page)] == [6, 6]


def test_public_docs_wants_an_export_list() -> None:
    (found,) = public_docs.undocumented(types.ModuleType("sample"))
    assert "__all__" in found.what


@pytest.mark.thorough
def test_light_import_finds_a_heavy_one(tmp_path: Path) -> None:
    (tmp_path / "heavy_sample.py").write_text("import sympy\n")
    (tmp_path / "light_sample.py").write_text("import json\n")
    assert any("loads sympy" in found.what for found in light_import.heavy_import("heavy_sample", tmp_path))
    assert light_import.heavy_import("light_sample", tmp_path) == []


@pytest.mark.thorough
def test_light_import_finds_a_slow_one(tmp_path: Path) -> None:
    (tmp_path / "slow_sample.py").write_text(
        "import time\n"
        f"enough = time.process_time() + {light_import.SECONDS}\n"
        "while time.process_time() < enough:\n    pass\n"
    )
    (found,) = light_import.heavy_import("slow_sample", tmp_path)
    assert "limit" in found.what


def test_light_import_reports_a_broken_one(tmp_path: Path) -> None:
    (tmp_path / "broken_sample.py").write_text("import no_such_module_anywhere\n")
    (found,) = light_import.heavy_import("broken_sample", tmp_path)
    assert "cannot be imported" in found.what
