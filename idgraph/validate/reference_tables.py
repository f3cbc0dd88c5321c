"""The tables that the checks of one operation look up and mark.

The accesses that one operation should have, at one concrete size: elements and addresses, by the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.lower.provenance import START
from idgraph.validate.concrete_access import Case, MemoryLayout, layout_of
from idgraph.validate.oracle import ROWED, WRITTEN, element_numbers, optional, reads, shape_of, writes
from idgraph.validate.oracle.views import Array, number


@dataclass(frozen=True, slots=True)
class Tables:
    """``wanted[k]``: the element at which operand k should be read, over the output's logical axes (-1: none).

    ``allowed[k]``: a read that is harmless though unused. ``values``: index tensors by name. ``seen`` marks elements
    written, ``terms`` marks (point of the loops that are not reduced, reduction index);
    """

    wanted: tuple[Array, ...]
    allowed: tuple[Array | None, ...]
    values: Mapping[str, Array]
    seen: Array
    terms: Array | None


def build_tables(case: Case, values: Mapping[str, Array], symbols: Mapping[str, int], marks: bool = True) -> Tables:
    """Oracle tables and empty marks for one operation."""
    e = case.expr
    wanted = tuple(reads(e, k, values, symbols) for k in range(len(e.inputs)))
    allowed = tuple(optional(e, k, symbols) for k in range(len(e.inputs)))
    if e.op in WRITTEN:  # the last site is where it writes
        wanted, allowed = (*wanted, writes(e, values, symbols)), (*allowed, None)
    used = {load.tensor.name: values[load.tensor.name] for s in case.reads for load in s.loads}
    shape = tuple(case.write.shape[p] for p in case.write.kept)
    terms = None
    if case.reduced and marks:
        points = math.prod(n for j, (_, n) in enumerate(case.loops) if j not in case.reduced)
        folded = math.prod(n for p, n in enumerate(case.write.shape) if p not in case.write.kept)
        terms = np.zeros((points, folded), np.uint8)
    return Tables(wanted, allowed, used, np.zeros(shape if marks else (1,) * len(shape), np.uint8), terms)


def table_bytes(case: Case) -> int:
    """Bytes of the tables and marks of one operation."""
    space = math.prod(case.write.shape)
    if case.expr.op == "matmul":  # its tables are views
        return space
    number = 4 if space < 2**31 else 8
    return space * (number * len(case.reads) + 1) + (case.points if case.reduced else 0)


@dataclass(frozen=True, slots=True)
class ExpectedRead:
    """``wanted[point]``: the element of ``tensor`` that an operand is read at, -1 for none; ``allowed`` is harmless
    though unused. ``addresses`` gives each element its address, None where they are the same."""

    tensor: Tensor
    wanted: Array
    allowed: Array | None
    addresses: Array | None


@dataclass(frozen=True, slots=True)
class ExpectedWrite:
    """``shape`` of the points that are written; ``wanted`` the element of each, None where it is the point's number."""

    tensor: Tensor
    shape: tuple[int, ...]
    wanted: Array | None
    addresses: Array | None


@dataclass(slots=True)
class Expected:
    """Tables of the operations of a fusion, by the names that kernels know them by; made when asked for."""

    fusion: Fusion
    symbols: Mapping[str, int]
    values: Mapping[str, Array]  # index tensors by name
    _reads: dict[tuple[str, int], ExpectedRead] = field(default_factory=dict[tuple[str, int], ExpectedRead])
    _writes: dict[str, ExpectedWrite] = field(default_factory=dict[str, ExpectedWrite])
    _needed: dict[Tensor, Array] = field(default_factory=dict[Tensor, Array])
    _addresses: dict[Tensor, Array | None] = field(default_factory=dict["Tensor", "Array | None"])

    def expr(self, name: str) -> TensorExpr | None:
        """The operation that an access serves under ``name``; None for a row that a pass keeps."""
        bare = name.removesuffix(START)
        number = int(bare[1:]) if bare[:1] == "t" and bare[1:].isdigit() else -1
        tensors = self.fusion.tensors
        return tensors[number].definition if 0 <= number < len(tensors) else None

    def read(self, name: str, k: int) -> ExpectedRead:
        """Operand ``k`` of an operation."""
        if (name, k) not in self._reads:
            e = self.expr(name)
            if e is None:
                raise AssertionError(f"{name} is not an operation")
            t = e.inputs[k]
            if name.endswith(START):
                wanted, allowed = element_numbers(t, self.symbols).reshape(-1), None
            else:
                wanted, allowed = reads(e, k, self.values, self.symbols), optional(e, k, self.symbols)
            self._reads[name, k] = ExpectedRead(t, wanted, allowed, self.addresses(t))
        return self._reads[name, k]

    def write(self, name: str) -> ExpectedWrite:
        """The result of an operation."""
        if name not in self._writes:
            e = self.expr(name)
            if e is None:
                raise AssertionError(f"{name} is not an operation")
            t = e.output
            shape = shape_of(t, self.symbols)
            wanted = None
            if name.endswith(START):
                shape = (math.prod(shape),)
            elif e.op in WRITTEN:
                wanted = writes(e, self.values, self.symbols)
                shape = wanted.shape
            self._writes[name] = ExpectedWrite(t, shape, wanted, self.addresses(t))
        return self._writes[name]

    def addresses(self, t: Tensor) -> Array | None:
        """The address of each element of ``t`` in row-major order; None where it is the element's number."""
        if t not in self._addresses:
            self._addresses[t] = _addresses(layout_of(t, self.symbols), shape_of(t, self.symbols))
        return self._addresses[t]

    def needed_points(self, name: str, write: bool) -> Array:
        """Which points of an operation the outputs need: of its shape for a ``write``, else with reduced axes."""
        e = self.expr(name)
        if e is None:
            raise AssertionError(f"{name} is not an operation")
        if not self._needed:
            self._need()
        mask = self._needed[e.output]
        if e.op in ROWED and e.op in WRITTEN:  # by the elements of the rows, some of which are not there
            made = writes(e, self.values, self.symbols)
            return (made >= 0) & mask.reshape(-1)[np.maximum(made, 0)]
        return mask if write or e.op in WRITTEN else self._wide(e, mask)

    def _wide(self, e: TensorExpr, mask: Array) -> Array:
        """A mask over the shape of the output as one over its logical axes."""
        at = [p for p, d in enumerate(e.output.logical) if d.kind == "reduction"]
        shape = [number(d.extent, self.symbols) for d in e.output.logical]
        return np.broadcast_to(np.expand_dims(mask, at), shape)

    def _need(self) -> None:
        """From the outputs back: what each operation reads where it is needed."""
        f = self.fusion
        self._needed = {t: np.zeros(shape_of(t, self.symbols), np.bool_) for t in f.tensors}
        for t in f.outputs:
            self._needed[t][...] = True
        for e in reversed(f.exprs):
            mask = self._needed[e.output]
            if e.op in WRITTEN:
                for t in e.inputs if mask.any() else ():
                    self._needed[t][...] = True
                continue
            wide = self._wide(e, mask)
            for k, t in enumerate(e.inputs):
                wanted = reads(e, k, self.values, self.symbols)
                self._needed[t].reshape(-1)[wanted[wide & (wanted >= 0)]] = True

    def forget(self, name: str) -> None:
        """Drop the tables of an operation."""
        self._reads = {key: r for key, r in self._reads.items() if key[0] != name}
        self._writes.pop(name, None)


def _addresses(layout: MemoryLayout, shape: tuple[int, ...]) -> Array | None:
    if layout.strides is None:
        return layout.table
    row_major = tuple(math.prod(shape[p + 1 :]) for p in range(len(shape)))
    if not layout.offset and all(a == b or n == 1 for a, b, n in zip(layout.strides, row_major, shape, strict=True)):
        return None
    made = np.full(shape, layout.offset, np.int64)
    for p, (n, s) in enumerate(zip(shape, layout.strides, strict=True)):
        made += (np.arange(n, dtype=np.int64) * s).reshape([-1 if q == p else 1 for q in range(len(shape))])
    return made.reshape(-1)
