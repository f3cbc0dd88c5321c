"""Builds the wheel and the sdist, installs each into a clean environment and runs the demo from there.

``python -m tools.package [--keep FOLDER] [--python EXE ...]`` tries them with this interpreter, or with those named.
After ``pip install idgraph_analysis-*.whl`` the environment is a user's: nothing of this checkout is on its path.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.env import clean_environment

ROOT = Path(__file__).resolve().parent.parent
IN_WHEEL = ("idgraph/__init__.py", "idgraph/py.typed", "licenses/LICENSE")
IN_SDIST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "idgraph/py.typed", "tests/README.md")
LIGHT = "import sys, idgraph; sys.exit(bool({'torch', 'numba', 'sympy', 'graphviz'} & set(sys.modules)))"


class PackageFailure(Exception):
    """A file that is not built, lacks something, or does not work where it is installed."""


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """The output of a command. Raises PackageFailure with it where it fails."""
    words = [str(word) for word in command]
    finished = subprocess.run(
        words, cwd=cwd, env=clean_environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if finished.returncode:
        raise PackageFailure(f"{' '.join(words)} ended with {finished.returncode}:\n{finished.stdout[-4000:]}")
    return finished.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """(wheel, sdist) in ``folder``, from the files of this checkout."""
    run((sys.executable, "-m", "build", "--outdir", folder, ROOT), ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def lacking(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The wanted files that are missing: no name ends with them."""
    return [w for w in wanted if not any(name.endswith(w) for name in names)]


def look_inside(wheel: Path, sdist: Path) -> None:
    """Raises PackageFailure where a file is missing, or a wheel carries what does not belong in it."""
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.namelist()
    with tarfile.open(sdist) as archive:
        in_sdist = archive.getnames()
    missing = [*lacking(in_wheel, IN_WHEEL), *lacking(in_sdist, IN_SDIST)]
    strangers = [name for name in in_wheel if not name.startswith(("idgraph/", "idgraph_analysis-"))]
    if missing or strangers:
        raise PackageFailure(f"missing: {missing}; in the wheel but not of the package: {strangers}")


def try_out(wheel: Path, sdist: Path, home: Path, interpreter: str) -> str:
    """Install the wheel into a clean environment and use it from an empty directory; then the sdist in its place.

    Returns what was tried.
    """
    run((interpreter, "-m", "venv", home), ROOT)
    python, empty = home / "bin" / "python", home / "empty"
    empty.mkdir()
    run((python, "-m", "pip", "install", "--quiet", wheel), empty)
    run((python, "-c", LIGHT), empty)
    run((home / "bin" / "idgraph", "demo", "rope", "--small"), empty)
    run((python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", sdist), empty)
    run((python, "-c", LIGHT), empty)
    run((home / "bin" / "idgraph", "--help"), empty)
    version = run((python, "-c", "import platform; print(platform.python_version())"), empty).strip()
    return f"Python {version}: wheel and sdist installed and imported, the wheel ran the demo"


def main(arguments: Sequence[str]) -> int:
    """Build, look inside, install, run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.package", description=__doc__)
    parser.add_argument("--keep", type=Path, help="leave the two files in this folder")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters to try them with")
    options = parser.parse_args(arguments)
    interpreters: list[str] = options.python
    with tempfile.TemporaryDirectory() as private:
        keep: Path | None = options.keep
        try:
            wheel, sdist = build(keep.resolve() if keep else Path(private) / "dist")
            look_inside(wheel, sdist)
            print(f"built {wheel.name} and {sdist.name}")
            for number, interpreter in enumerate(interpreters):
                print(try_out(wheel, sdist, Path(private) / f"try{number}", interpreter), flush=True)
        except PackageFailure as failure:
            print(failure, file=sys.stderr)
            return 1
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
