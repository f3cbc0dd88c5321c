"""Checking another compiler from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.markup import escape

from idgraph.check import CheckError, CheckReport, inductor, program
from idgraph.cli.show import console, say
from idgraph.frontends.files import names_of


def run_compiler(file: str, through_inductor: bool, as_json: bool) -> bool:
    """Check what TorchInductor makes of a Python file's ``fn(*args)``, or a program in the neutral form; print it."""
    report = _inductor(Path(file)) if through_inductor else program(Path(file))
    if as_json:
        say(report.to_json())
    else:
        console().print(escape(str(report)))
    return report.ok


def _inductor(file: Path) -> CheckReport:
    names = names_of(file)
    fn, args = names.get("fn"), names.get("args", ())
    if not callable(fn) or not isinstance(args, (tuple, list)):
        raise CheckError(
            f"{str(file)!r} leaves no function ``fn`` and no tuple ``args`` in its globals",
            hint="fn = torch.nn.functional.cross_entropy; args = (x, target)",
        )
    dynamic = names.get("dynamic")
    known = dynamic if isinstance(dynamic, bool) else None
    given = cast("Sequence[object]", args)
    return inductor(fn, tuple(given), dynamic=known, name=file.stem)
