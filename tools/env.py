"""Makes the environment a tool runs in: standard library only, since nothing is installed yet.

Each tool has a directory of its own, `.venv/<name>`. A stamp written last says what it holds, so that a second run is
quick, a run cut off half-way starts again, and a change of the dependencies is noticed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.progress import Step, Steps, run_logged

ROOT = Path(__file__).resolve().parent.parent
CUDA_DRIVER = 13000  # what the `cuda` extra is built for, as cuDriverGetVersion counts
# Settings of the caller that would put packages, or find modules, somewhere else than in the environment.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV")


class EnvironmentFailure(Exception):
    """The environment cannot be made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with the package (editable) and some of its extras."""

    name: str
    extras: tuple[str, ...]
    root: Path = ROOT

    @property
    def directory(self) -> Path:
        """Where it stands."""
        return self.root / ".venv" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    @property
    def log(self) -> Path:
        """The output of pip while it was made."""
        return self.root / ".venv" / f"{self.name}.log"

    @property
    def stamp(self) -> Path:
        """Written when the environment is whole, removed before it is touched."""
        return self.directory / "idgraph-stamp.json"

    def wanted(self) -> str:
        """The text of a current environment's stamp."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        content = {key: project[key] for key in ("build-system", "project")}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return json.dumps({"root": str(self.root), "extras": sorted(self.extras), "project": digest}, indent=1)

    def is_current(self) -> bool:
        """Whether it is whole, made from the present dependencies, and its interpreter still exists."""
        try:
            return self.stamp.read_text(encoding="utf-8") == self.wanted() and self.python.exists()
        except OSError:
            return False


def ensure(environment: Environment, steps: Steps) -> Path:
    """The interpreter of `environment`, made first if it is missing, half made or out of date. Takes two steps."""
    (environment.root / ".venv").mkdir(exist_ok=True)
    with _locked(environment):
        if environment.is_current():
            steps.number += 2
            return environment.python
        own = environment.root.resolve() / ".venv" / environment.name
        if environment.directory.resolve() != own:
            raise EnvironmentFailure(
                f".venv/{environment.name} is a link to {environment.directory.resolve()}, made for another checkout, "
                "and is not made anew from here.\n"
                "  remove the link for an environment of this checkout's own, or run what is in it: "
                f".venv/{environment.name}/bin/python -m tools.steps"
            )
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(environment.directory)
        environment.log.write_text("", encoding="utf-8")
        with steps.step(f"environment .venv/{environment.name} (Python {sys.version.split()[0]})"):
            make_venv(environment)
        with steps.step(f"packages [{', '.join(environment.extras)}]") as step:
            install(environment, step)
        partial = environment.stamp.with_suffix(".partial")
        partial.write_text(environment.wanted(), encoding="utf-8")
        partial.replace(environment.stamp)
    return environment.python


def launch(tool: str, main: Callable[[list[str]], None]) -> None:
    """Run a tool's `main` on the command line's arguments; a failure ends in one message."""
    try:
        main(sys.argv[1:])
    except EnvironmentFailure as failure:
        sys.exit(f"{tool}: {failure}")
    except KeyboardInterrupt:
        print(f"{tool}: interrupted; the next run makes the environment anew", file=sys.stderr)
        sys.exit(130)  # as a shell reports an interrupt


def clean_environment() -> dict[str, str]:
    """The caller's variables without those that point Python or pip elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def cuda_driver() -> int | None:
    """The CUDA version the NVIDIA driver supports (13000 is 13.0), or None where there is no driver or no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return None
    return version.value if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 else None


@contextlib.contextmanager
def _locked(environment: Environment) -> Generator[None]:
    """One maker at a time; the lock goes with its process, however that ends."""
    with environment.directory.with_suffix(".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run is making .venv/{environment.name}: waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_venv(environment: Environment) -> None:
    """Make the virtual environment, with pip in it. Raises EnvironmentFailure where there is no pip to put in."""
    directory = str(environment.directory)
    if run_quietly(environment, [sys.executable, "-m", "venv", directory]):
        return
    # Debian's python3 comes without ensurepip; a bare environment and the caller's pip do as well.
    bare = run_quietly(environment, [sys.executable, "-m", "venv", "--clear", "--without-pip", directory])
    target = (
        environment.directory / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--target",
        str(target),
        "pip",
    ]
    if not (bare and run_quietly(environment, pip)):
        raise EnvironmentFailure(
            f"cannot make a Python environment with {sys.executable}: it has neither ensurepip nor pip.\n"
            f"  on Debian or Ubuntu: apt-get install python3-venv (or python3-pip), then run this again\n"
            f"  details: {environment.log}"
        )


def run_quietly(environment: Environment, command: Sequence[str]) -> bool:
    """Run a command with its output into the log; whether it succeeded."""
    with environment.log.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(), check=False
        )
    return finished.returncode == 0


def install(environment: Environment, step: Step) -> None:
    """Install the package (editable) with its extras. Raises EnvironmentFailure with pip's last lines."""
    requirement = f"{environment.root}[{','.join(environment.extras)}]"
    command = [
        str(environment.python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
        "--progress-bar", "off", "--editable", requirement,
    ]  # fmt: skip
    progress = PipProgress()
    code = run_logged(
        command,
        log=environment.log,
        env=clean_environment(),
        cwd=environment.root,
        on_line=progress.read,
        on_tick=lambda: step.update(progress.text),
    )
    if code:
        tail = "\n".join(f"  {line}" for line in environment.log.read_text(encoding="utf-8").splitlines()[-15:])
        raise EnvironmentFailure(
            f"pip could not install the packages (exit {code}); its last lines:\n{tail}\n"
            f"  all of it: {environment.log}\n"
            f"  is the package index reachable from here? then run this again"
        )


class PipProgress:
    """The step that pip is at, from the lines it prints."""

    def __init__(self) -> None:
        self.found = 0
        self.text = "starting pip"

    def read(self, line: str) -> None:
        """Take one line of pip's output."""
        line = line.strip()
        if line.startswith("Collecting "):
            self.found += 1
            self.text = f"{self.found} found, reading {line.split()[1]}"
        elif line.startswith("Downloading "):
            file, _, size = line.removeprefix("Downloading ").partition(" ")
            self.text = f"{self.found} found, downloading {file.rsplit('/', 1)[-1].split('-')[0]} {size}".rstrip()
        elif line.startswith("Installing collected packages: "):
            self.text = f"unpacking {line.count(',') + 1} packages"
