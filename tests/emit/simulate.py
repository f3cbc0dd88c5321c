"""Run cases on the cuda target and print what is wrong with each as JSON; with NUMBA_ENABLE_CUDASIM=1 on no GPU."""

from __future__ import annotations

import json
import sys
import warnings

from idgraph.errors import IdGraphError
from tests.emit.cases import CASES, outcome


def main() -> None:
    """Arguments: "checked" or "plain", then names of cases (none: all)."""
    warnings.simplefilter("ignore")
    mode, *wanted = sys.argv[1:]
    found: dict[str, str] = {}
    for name in wanted or CASES:
        try:
            found[name] = outcome(name, "cuda", checked=mode == "checked")
        except (IdGraphError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
