"""The cuda target in numba's simulator, case by case: a process of its own, since numba reads the switch on import.

As a program it reads lines of JSON, ["checked" or "plain", name of a case], and answers each with what is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

from idgraph.errors import IdGraphError
from tests.emit.cases import outcome
from tests.emit.turns import ROOT, command, environment

Outcome = Callable[[str, str], str]  # of ("checked" or "plain", name of a case): what is wrong with it, if anything


@contextmanager
def simulator() -> Generator[Outcome]:
    """The process, asked for one case after the other: each test of a worker asks for its own."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as told, subprocess.Popen(
        command("-m", "tests.emit.simulate"), cwd=ROOT, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told,
    ) as process:  # fmt: skip
        asked, answers = process.stdin, process.stdout
        assert asked is not None and answers is not None

        def ask(mode: str, name: str) -> str:
            asked.write(json.dumps([mode, name]) + "\n")
            asked.flush()
            answer = answers.readline()
            told.seek(0)
            assert answer, f"the simulator has ended: {told.read()[-2000:]}"
            return str(json.loads(answer))

        yield ask
        asked.close()  # it ends with its input


def main() -> None:
    """Answer until there are no more lines."""
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        mode, name = json.loads(line)
        try:
            found = outcome(name, "cuda", checked=mode == "checked")
        except (IdGraphError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            found = f"{type(error).__name__}: {error}"
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
