"""Which element of the program lies where: each element of each tensor has a number, equal for one that only moved.

A permuted, sliced or concatenated element is the element it came from, by the oracle's tables of reads (which know
operations by what NumPy does, and nothing of index maps).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.check.program import BufferLayout, NeutralProgram
from idgraph.errors import IdGraphError
from idgraph.ir import Fusion, Tensor
from idgraph.validate.oracle import INDEXED, reads, shape_of

LARGEST = 1 << 22  # elements of a tensor that get numbers one by one
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip

Ints = npt.NDArray[np.int64]


class TooLarge(Exception):
    """A tensor has too many elements to number them."""


def conflict(p: NeutralProgram, a: BufferLayout, b: BufferLayout, sizes: Mapping[str, int]) -> bool:
    """Whether two buffers of one storage declare different elements at one address."""
    if a.tensor == b.tensor and (a.strides, a.offset) == (b.strides, b.offset):
        return False
    elements = Elements(p.fusion, sizes)
    if a.tensor not in elements.tensors or b.tensor not in elements.tensors:
        return False
    (x, of_x), (y, of_y) = elements.placed(a), elements.placed(b)
    _, k, j = np.intersect1d(x, y, return_indices=True)
    return bool((of_x[k] != of_y[j]).any())


class Elements:
    """Numbers of elements, made where they are asked for; 0 is not an element."""

    def __init__(self, fusion: Fusion, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.tensors = {t.name: t for t in fusion.tensors}
        self.made: dict[str, Ints] = {}
        self.starts: list[tuple[int, Tensor]] = []
        self.fills: dict[tuple[str, str], int] = {}
        self.next = 1

    def of(self, t: Tensor) -> Ints:
        """The numbers of a tensor's elements, row-major."""
        found = self.made.get(t.name)
        if found is None:
            found = self.made[t.name] = self._numbered(t)
        return found

    def _numbered(self, t: Tensor) -> Ints:
        count = prod(shape_of(t, self.sizes))
        if count > LARGEST:
            raise TooLarge(f"{t.name} has {count} elements: too many to follow each")
        own = np.arange(self.next, self.next + count, dtype=np.int64)
        self.starts.append((self.next, t))
        self.next += count
        e = t.definition
        if e is None or e.op in INDEXED or e.op not in _MOVES or any(x.dtype != t.dtype for x in e.inputs):
            return own
        if e.op == "pad" and count:  # one number for all that is filled with one value
            key = (t.dtype, str(e.attrs.get("value", 0)))
            own = np.full(count, self.fills.setdefault(key, int(own[0])), dtype=np.int64)
        for k, x in enumerate(e.inputs):
            try:
                table = np.asarray(reads(e, k, symbols=self.sizes)).reshape(-1)
            except (IdGraphError, KeyError):
                return own
            source = self.of(x)
            if len(table) != count:
                return own
            own = np.where(table >= 0, source[np.maximum(table, 0)] if len(source) else own, own)
        return own

    def placed(self, b: BufferLayout) -> tuple[Ints, Ints]:
        """(addresses in the storage, numbers) of all elements of the tensor in a buffer."""
        t = self.tensors[b.tensor]
        labels = self.of(t)
        at = np.array([int(b.offset.evaluate(self.sizes))], dtype=np.int64)
        for n, s in zip(shape_of(t, self.sizes), b.strides, strict=True):
            at = (at[:, None] + np.arange(n)[None, :] * int(s.evaluate(self.sizes))).reshape(-1)
        return at, labels

    def name(self, label: int) -> str:
        """``y[0, 3]``; memory that holds no element has none."""
        if label < 0:
            return "no element of its tensor, or one that the order of points decides"
        found = next(((s, t) for s, t in reversed(self.starts) if s <= label), None)
        if label == 0 or found is None:
            return "memory that nothing has written"
        where = np.unravel_index(label - found[0], shape_of(found[1], self.sizes))
        return f"{found[1].name}[{', '.join(str(int(x)) for x in where)}]"
