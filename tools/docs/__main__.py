"""``python -m tools.docs [FOLDER]``: build the pages into FOLDER (``out/docs``); any warning fails the build."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def build(target: Path) -> int:
    """Build into ``target``; returns Sphinx's exit status, which is not 0 after a warning."""
    command = (sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto")
    return subprocess.run((*command, str(HERE), str(target)), cwd=ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Build into the folder named, or into ``out/docs``."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "out" / "docs")
    target = Path(parser.parse_args(arguments).folder).resolve()
    code = build(target)
    if code == 0:
        print(f"built: {target / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
