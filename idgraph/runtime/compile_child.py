"""The process that schedules fusions and compiles kernels for another one: see `idgraph.runtime.compile_workers`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import import_module
from typing import Any

from idgraph.runtime.source_function import function_of


def cpu_text(request: Mapping[str, Any]) -> str:
    """Machine code, as text: the function's name, then the object file."""
    from idgraph.runtime.cpu import compiler  # noqa: PLC0415  # the target that is asked for, and no other
    from idgraph.runtime.cpu.namespace import namespace  # noqa: PLC0415

    if request["machine"] != compiler.processor():
        raise ValueError("another machine, or other settings")
    function = function_of(request["source"], request["name"], dict(namespace()), "cpu")
    forms = {k: bool(request[k]) for k in ("rows", "streams", "short", "checked")}
    types, integers = tuple(request["types"]), int(request["integers"])
    body = compiler.CompileKey((), types, integers, **forms, function=function)
    # One process loads machine code of several others: each function has a unique name.
    title = f"kernel_{sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()}"
    return compiler.object_text(*compiler.compile_library(body, title))


def cuda_text(request: Mapping[str, Any]) -> str:
    """PTX."""
    from idgraph.runtime.cuda import compiler  # noqa: PLC0415
    from idgraph.runtime.cuda.namespace import namespace  # noqa: PLC0415

    major, minor = request["cc"]
    function = function_of(request["source"], request["name"], dict(namespace((major, minor))), "cuda")
    given = compiler.arguments_like(request["types"], int(request["scalars"]), bool(request["checked"]))
    return compiler.ptx_of(function, given, (major, minor))


def program_text(request: Mapping[str, Any]) -> str | None:
    """The program of a fusion."""
    from idgraph.runtime.fusion_call import text_of_request  # noqa: PLC0415

    return text_of_request(request)


FORMS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "cpu": cpu_text, "cuda": cuda_text, "program": program_text,
}  # fmt: skip


def main() -> None:
    """Say that all is loaded which jobs for the target need; then answer each line of standard input with one."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    for name in (f"{sys.argv[1]}.compiler", f"{sys.argv[1]}.namespace", "fusion_call"):
        import_module(f"idgraph.runtime.{name}")
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = {"text": FORMS[request["target"]](request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
