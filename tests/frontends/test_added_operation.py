"""An operation that is added to the table: its ATen overloads are mapped, where no handler of its own does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from idgraph.frontends.aten import HANDLERS
from idgraph.frontends.importer import handles
from idgraph.ir.op_table import OPERATIONS

# "silu" has a handler in aten/pointwise.py; "frac" has none.
_ADDED = """
from idgraph.ir import op_table, ops_pointwise
for name, text in (("silu", "{0} * {0}"), ("frac", "{0} - trunc({0})")):
    op_table.OPERATIONS[name] = op_table.Operation(name, 1, "what is added", "float", text, aten=("default",))
    setattr(ops_pointwise, name, ops_pointwise.neg)
import torch
import idgraph as ig
from idgraph.frontends.aten import HANDLERS, pointwise
x = torch.tensor([-1.5, 0.25, 3.0])
torch.testing.assert_close(ig.from_torch(torch.nn.SiLU(), (x,)).run(x, target="numpy"), torch.nn.SiLU()(x))
assert HANDLERS["aten.silu.default"] is pointwise.silu and "aten.frac.default" in HANDLERS
print("right")
"""


def test_a_row_of_the_table_beside_a_handler() -> None:
    found = subprocess.run([sys.executable, "-c", _ADDED], capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0 and found.stdout.splitlines()[-1] == "right", found.stderr[-2000:]


def test_every_overload_of_the_table_is_mapped() -> None:
    assert all(f"aten.{o.name}.{x}" in HANDLERS for o in OPERATIONS.values() for x in o.aten)


def test_two_handlers_that_somebody_wrote_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"aten\.silu\.default has two handlers"):
        handles("aten.silu.default")(lambda c: None)
