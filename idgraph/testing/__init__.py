"""Hypothesis strategies for fusions, schedules, shapes and index expressions, for tests of code that uses idgraph.

They build small examples that shrink well, and know no graph, index map or kernel.
"""

from idgraph.errors import suggesting

try:
    from idgraph.testing.fusions import STEPS, fusions, index_expressions, shapes
    from idgraph.testing.schedules import scheduled_fusions, schedules
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ModuleNotFoundError("idgraph.testing needs hypothesis: pip install hypothesis", name=error.name) from None

__all__ = ["STEPS", "fusions", "index_expressions", "scheduled_fusions", "schedules", "shapes"]

__getattr__ = suggesting(__name__)
