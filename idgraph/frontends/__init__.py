"""Programs of other systems as fusions: captured torch graphs (`fx.from_json`) and torch itself (`from_torch`).

read (reading, exporting) -> nodes -> importer + aten handlers -> segments -> run (fx.Import)

Importing this module is light: NumPy and torch are loaded when a program is read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from idgraph.errors import no_attribute, shortened
from idgraph.loading import LOADING, load

if TYPE_CHECKING:
    from idgraph.frontends import import_ as fx

__all__ = ["from_torch", "fx"]


@shortened
def from_torch(
    source: object,
    example_args: Sequence[object] | None = None,
    example_kwargs: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    strict: bool = False,
    dynamic_shapes: object = None,
) -> fx.Import:
    """Import a torch function, ``nn.Module``, ``ExportedProgram`` or ``GraphModule`` as a fusion.

    ``example_args`` fix sizes and types, but for axes that ``dynamic_shapes`` names (torch.export's: one entry for each
    argument, ``{0: torch.export.Dim.DYNAMIC}``): those become symbols of the fusion with torch's ranges and guards, and
    `run` takes every size that satisfies them. An ``ExportedProgram``, or a ``GraphModule`` of ATen operations with its
    metadata, needs none. ``strict`` is torch.export's. Each tensor remembers the line of the user's ``forward`` that
    made it. ``run`` takes arguments and gives results as the program itself does; parameters and buffers are bound.

    Raises `FrontendError` where torch is missing, or cannot capture the program.

    >>> import torch
    >>> import idgraph as ig
    >>> def rotate(x):
    ...     return torch.cat((-x[2:], x[:2]))
    >>> imp = ig.frontends.from_torch(rotate, (torch.arange(4.0),))
    >>> [e.op for e in imp.fusion.exprs], imp.coverage.opaque
    (['slice', 'neg', 'slice', 'cat'], {})
    >>> imp.run(torch.arange(4.0), target="numpy")
    tensor([-2., -3.,  0.,  1.])
    """
    with LOADING:
        from idgraph.frontends.torch_export import capture  # noqa: PLC0415 - loads NumPy, and torch behind it

    return capture(source, example_args, example_kwargs, name, strict, dynamic_shapes)


def __getattr__(name: str) -> object:
    if name == "fx":
        return load("idgraph.frontends.import_")
    raise no_attribute(sys.modules[__name__], name)
