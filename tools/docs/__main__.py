"""``python -m tools.docs [FOLDER]``: build the pages into FOLDER (``out/docs``); any warning fails the build.

Where this Python has no Sphinx, an environment of its own (``.venv/docs``) is made first.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.env import Environment, EnvironmentFailure, clean_environment, ensure
from tools.progress import Steps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDED = ("sphinx", "myst_parser", "furo", "numba", "hypothesis")


def python(steps: Steps) -> str:
    """An interpreter that can build: this one where it has all that is needed, else one made here."""
    if all(importlib.util.find_spec(name) for name in NEEDED):
        return sys.executable
    return str(ensure(Environment("docs", ("docs", "viz")), steps))


def build(target: Path) -> int:
    """Build into ``target``; returns Sphinx's exit status, which is not 0 after a warning."""
    interpreter = python(Steps(total=2))
    own = None if interpreter == sys.executable else clean_environment()
    # Read from scratch: what parallel readers keep of an earlier build comes back as objects described twice.
    command = (interpreter, "-m", "sphinx", "-b", "html", "-E", "-W", "--keep-going", "-q", "-j", "auto")
    return subprocess.run((*command, str(HERE), str(target)), cwd=ROOT, env=own, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Build into the folder named, or into ``out/docs``."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "out" / "docs")
    target = Path(parser.parse_args(arguments).folder).resolve()
    try:
        code = build(target)
    except EnvironmentFailure as failure:
        print(f"tools.docs: {failure}", file=sys.stderr)
        return 1
    if code == 0:
        print(f"built: {target / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
