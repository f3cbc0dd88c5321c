"""The import contracts of pyproject.toml hold on a clean package and break on every kind of wrong import."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.env import ROOT

MODULES = ("__main__", "cli", "display", "errors", "loading", "testing", "validate/oracle", "ir/tensor", "graphs/exact")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CONTRACTS = {contract["id"]: contract["name"] for contract in SETTINGS}
LAYERS = next(c["layers"] for c in SETTINGS if c["id"] == "layers")
ROOMS = tuple({name for line in LAYERS for name in line.split(" | ")} - set(MODULES))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with the rooms of the plan and nothing in them, under the real contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    root = tmp_path / "idgraph"
    for room in ("", *ROOMS):
        (root / room).mkdir()
        (root / room / "__init__.py").write_text("")
    for module in MODULES:
        (root / f"{module}.py").write_text("")
    return root


def broken(package: Path) -> set[str]:
    """The contracts that do not hold."""
    lint = Path(sys.executable).with_name("lint-imports")
    shown = subprocess.run([lint, "--no-cache"], cwd=package.parent, capture_output=True, text=True, check=False).stdout
    words = " ".join(shown.split())  # names are wrapped over lines
    assert f"{len(CONTRACTS)} kept" in words or "broken" in words, shown
    return {name for name, title in CONTRACTS.items() if f"{title} BROKEN" in words}


def test_contracts_hold_on_a_clean_package(package: Path) -> None:
    assert broken(package) == set()


def test_every_contract_can_break(package: Path) -> None:
    (package / "validate" / "oracle.py").write_text("import idgraph.index\n")
    (package / "ir" / "tensor.py").write_text("import idgraph\nimport sympy\n")
    (package / "graphs" / "exact.py").write_text("import idgraph.index\n")
    (package / "testing.py").write_text("import idgraph.runtime\n")
    assert broken(package) == CONTRACTS.keys()


def test_an_unlisted_room_breaks_the_layers(package: Path) -> None:
    (package / "utils.py").write_text("")
    assert broken(package) == {"layers"}
