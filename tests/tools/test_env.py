"""The environment maker: when it works again, when it does nothing, and what it says when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import env
from tools.env import Environment, EnvironmentFailure, PipProgress, ensure
from tools.progress import Step, Steps

PROJECT = '[build-system]\nrequires = []\n[project]\nname = "sample"\nversion = "1"\ndependencies = []\n'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Environment, list[str]]:
    """An environment of a sample project, and what its maker did so far; nothing is really installed."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    did: list[str] = []

    def make_venv(environment: Environment) -> None:
        did.append("venv")
        environment.python.parent.mkdir(parents=True)
        environment.python.write_text("")

    def install(environment: Environment, step: Step) -> None:
        did.append("packages")

    monkeypatch.setattr(env, "make_venv", make_venv)
    monkeypatch.setattr(env, "install", install)
    return Environment("demo", ("cpu",), tmp_path), did


def test_second_run_does_nothing(made: tuple[Environment, list[str]]) -> None:
    environment, did = made
    assert ensure(environment, Steps(2)) == environment.python
    assert ensure(environment, Steps(2)) == environment.python
    assert did == ["venv", "packages"]


def test_half_made_is_made_again(made: tuple[Environment, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    environment, did = made

    def interrupted(environment: Environment, step: Step) -> None:
        (environment.directory / "half").write_text("")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(env, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ensure(environment, Steps(2))
    assert not environment.is_current()
    ensure(environment, Steps(2))
    assert did == ["venv", "venv", "packages"]
    assert not (environment.directory / "half").exists()


def test_the_environment_of_another_checkout_is_left_alone(made: tuple[Environment, list[str]], tmp_path: Path) -> None:
    """Where `.venv` is a link to it, its stamp tells another root: it would be made anew, under those who use it."""
    environment, calls = made
    ensure(environment, Steps(2))
    before = list(calls)
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text((environment.root / "pyproject.toml").read_text())
    (other / ".venv").symlink_to(environment.root / ".venv")
    with pytest.raises(EnvironmentFailure, match="made for another checkout"):
        ensure(Environment(environment.name, environment.extras, other), Steps(2))
    assert calls == before and ensure(environment, Steps(2)) == environment.python and calls == before


@pytest.mark.parametrize("change", ["dependencies", "interpreter", "stamp"])
def test_out_of_date_is_made_again(made: tuple[Environment, list[str]], change: str) -> None:
    environment, did = made
    ensure(environment, Steps(2))
    match change:
        case "dependencies":
            (environment.root / "pyproject.toml").write_text(PROJECT.replace("= []\n", '= ["click"]\n'))
        case "interpreter":
            environment.python.unlink()
        case _:
            environment.stamp.write_text("{")
    ensure(environment, Steps(2))
    assert did == ["venv", "packages"] * 2


def test_lint_settings_do_not_make_it_out_of_date(made: tuple[Environment, list[str]]) -> None:
    environment, did = made
    ensure(environment, Steps(2))
    (environment.root / "pyproject.toml").write_text(PROJECT + "[tool.ruff]\nline-length = 100\n")
    ensure(environment, Steps(2))
    assert did == ["venv", "packages"]


def test_without_ensurepip_it_takes_the_callers_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment("demo", (), tmp_path)
    environment.log.parent.mkdir()
    run_quietly = env.run_quietly
    commands: list[list[str]] = []

    def as_on_debian(environment: Environment, command: list[str]) -> bool:
        commands.append(command)
        if "--without-pip" in command:
            return run_quietly(environment, command)
        return "pip" in command  # python -m venv fails there; the caller's pip is kept off the network here

    monkeypatch.setattr(env, "run_quietly", as_on_debian)
    env.make_venv(environment)
    assert environment.python.exists()
    assert commands[-1][-3:-1] == ["--target", str(next(environment.directory.glob("lib/python*/site-packages")))]


def test_with_neither_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(environment: Environment, command: list[str]) -> bool:
        return False

    monkeypatch.setattr(env, "run_quietly", fails)
    with pytest.raises(EnvironmentFailure, match="apt-get install python3-venv") as failure:
        env.make_venv(Environment("demo", (), tmp_path))
    assert sys.executable in str(failure.value)


def test_foreign_settings_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PIP_RETRIES", "3")
    kept = env.clean_environment()
    assert "PIP_TARGET" not in kept
    assert kept["PIP_RETRIES"] == "3"


def test_pip_progress_says_what_pip_does() -> None:
    progress = PipProgress()
    seen: list[str] = []
    for line in (
        "Collecting numpy<2.5",
        "  Downloading numpy-2.4.6-cp311.whl (16.9 MB)",
        "Collecting click",
        "Installing collected packages: click, numpy",
    ):
        progress.read(line)
        seen.append(progress.text)
    assert seen == [
        "1 found, reading numpy<2.5",
        "1 found, downloading numpy (16.9 MB)",
        "2 found, reading click",
        "unpacking 2 packages",
    ]
