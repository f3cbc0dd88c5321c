"""The one error of a kernel that is not well formed."""

from __future__ import annotations

from idgraph.errors import EmitError
from idgraph.kernel.statements import Stmt
from idgraph.kernel.text import statement_text


def malformed_error(kernel: str, what: str, s: Stmt, *why: str) -> EmitError:
    """The one error of a kernel that is not well formed."""
    return EmitError(
        f"{kernel} is not well formed: {what}",
        because=[f"at: {statement_text(s)}", *why],
        hint="a pass has made it, or the text that it was read from says so: print(kernel) shows it",
    )
