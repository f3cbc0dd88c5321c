"""Operations on elements that wait for their readers: computed in the segment that reads them, not stored for it.

A program runs in segments between its opaque calls. An operation could run in the first segment that has its operands;
where only a later one reads the result, storing it there and reading it here moves more bytes than reading its operands
here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from idgraph.arith import Expr
from idgraph.frontends.captured import Meta, Node, TensorMeta
from idgraph.ir import DTYPES, Fusion, Tensor, item_size
from idgraph.ir.optable import POINTWISE

MOVES = frozenset({"copy", "unsqueeze", "squeeze", "expand", "permute", "reshape", "slice", "select", "flip", "cat"})
MADE = frozenset({"full", "iota"})
UNKNOWN = 1024  # elements along an axis whose size a call tells


@dataclass(slots=True)
class PartitionSinking:
    """Where nodes are computed.

    ``nodes`` are all that run, in order, ``mapped`` those that fusions compute; ``first``: the first segment that has
    the operands of each. Nodes of ``fixed`` are made or read outside of fusions, ``stored`` are results, which
    have a kernel anyway and do not wait. ``at`` is the segment of each node now, ``late`` are those that wait.
    """

    nodes: Sequence[Node]
    mapped: Collection[str]
    first: Mapping[str, int]
    fixed: Collection[str]
    stored: Collection[str]
    metas: Mapping[str, Meta]
    readers: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    at: dict[str, int] = field(default_factory=dict[str, int])
    late: set[str] = field(default_factory=set[str])

    def found(self, fusion: Fusion) -> dict[str, int]:
        """Name of a node -> the later segment that computes it: as late as its readers allow, where that pays."""
        self.at = dict(self.first)
        for n in self.nodes:
            for r in dict.fromkeys(n.refs()):
                self.readers.setdefault(r, []).append(n.name)
        tensors = {t.name: t for t in fusion.tensors}
        for n in reversed(self.nodes):
            used = self.readers.get(n.name, ())
            if (
                n.name not in self.mapped
                or n.name in self.stored
                or not used
                or any(x in self.fixed or x not in self.mapped for x in (n.name, *used))
            ):
                continue
            reader = min(self.at[r] for r in used)
            parted = any(isinstance(self.metas[r], tuple) for r in (n.name, *n.refs()))  # parts stay with the whole
            if reader > self.at[n.name] and not parted and _is_on_elements(tensors.get(n.name), set(n.refs())):
                self.at[n.name] = reader
                self.late.add(n.name)
        going = True
        while going:  # what does not pay goes back, then what it reads
            back = [n.name for n in reversed(self.nodes) if n.name in self.late and self.returns(n)]
            going = bool(back)
        return {name: self.at[name] for name in self.late}

    def returns(self, n: Node) -> bool:
        """Take ``n`` back where it is read elsewhere too, for which it is stored, or where waiting saves nothing."""
        if {self.at[r] for r in self.readers[n.name]} == {self.at[n.name]} and self.gain(n) > 0:
            return False
        self.late.discard(n.name)
        self.at[n.name] = self.first[n.name]
        return True

    def gain(self, n: Node) -> int:
        """Bytes that waiting saves: of storing and reading ``n``, less those of its operands."""
        here, before = self.at[n.name], self.first[n.name]
        saved = 2 * _bytes(self.metas[n.name])
        for x in dict.fromkeys(n.refs()):
            size, at = _bytes(self.metas[x]), self.at[x]
            given = x not in self.mapped or x in self.fixed
            users = {self.at[r] for r in self.readers[x] if r != n.name}
            if x in self.late and at == here:
                continue  # computed there too
            if not given and x not in self.stored and at >= before and all(u <= at for u in users):
                saved -= size  # stored for this alone
            if here not in users:
                saved -= size
            if (given or at < before) and before not in users:
                saved += size
        return saved


def _is_on_elements(t: Tensor | None, refs: Collection[str]) -> bool:
    """Whether each of its elements is computed of one element of each operand, or moved."""
    if t is None:
        return False
    work, seen = [t], set[Tensor]()
    while work:
        u = work.pop()
        e = u.definition
        if u in seen or (u is not t and u.name in refs):
            continue
        seen.add(u)
        if e is None:
            continue
        if e.op not in POINTWISE and e.op not in MOVES and e.op not in MADE:
            return False
        work += e.inputs
    return True


def _bytes(meta: Meta) -> int:
    if not isinstance(meta, TensorMeta) or meta.dtype not in DTYPES:
        return 0
    sizes = [int(n) if not isinstance(n, Expr) or n.is_const else UNKNOWN for n in meta.shape]
    return prod(sizes) * item_size(meta.dtype)
