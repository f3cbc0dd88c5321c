"""Where the threads of a block wait for each other: between the writes and the reads of what they exchange.

A barrier stands between two parts of a loop body, never inside a condition: a thread that has nothing to do waits too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from idgraph.index.storage import is_thread
from idgraph.ir import TensorExpr
from idgraph.kernel.ir import quote
from idgraph.lower.nest import Nest, Node
from idgraph.lower.races import Crossing


def barriers(nodes: Sequence[Node], crossings: Iterable[Crossing], around: Sequence[Nest]) -> Mapping[int, list[str]]:
    """Reasons for a barrier before node n (after the last one: n = len(nodes)).

    Read after write: one between the node that writes and the node that reads. Write after read: where a serial loop
    stands around them, its next step overwrites what slower threads of this step may still read, so one between the
    last read and the end, or between the begin and the write.
    """
    owner: dict[TensorExpr, int] = {}
    for n, node in enumerate(nodes):
        owner.update(dict.fromkeys(node.exprs if isinstance(node, Nest) else (node.expr,), n))
    made: dict[int, list[str]] = {}
    here = [
        (owner[c.tensor.definition], owner[c.use], c)
        for c in crossings
        if c.tensor.definition in owner and c.use in owner and owner[c.tensor.definition] != owner[c.use]
    ]
    for write, read, c in sorted(here, key=lambda x: x[1]):
        if not any(write < n <= read for n in made):
            made[read] = [f"{quote(c.tensor.name)} is complete"]
    if any(not is_thread(loop.parallel) and loop.extent != 1 for loop in around):
        for write, read, c in sorted(here, key=lambda x: -x[1]):
            if not any(n > read or n <= write for n in made):
                made[len(nodes)] = [f"{quote(c.tensor.name)} has been read"]
    return made
