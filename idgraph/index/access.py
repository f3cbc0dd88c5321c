"""Accesses: where one operation reads or writes one tensor, in the loop variables of that operation.

All accesses of an operation as a table, and those of a whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from idgraph.arith import (
    ArithError,
    Collision,
    Expr,
    IndexMap,
    IntType,
    NotInvertible,
    affine_map,
    affine_set,
    as_expr,
    tvm_index_map,
)
from idgraph.display import Printed, Sheet
from idgraph.errors import IndexingError, arguments
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.index.bank_conflict_advice import BankConflicts, BankSuggestion, bank_suggestions
from idgraph.index.int_width import index_bits, index_type
from idgraph.index.predicate import Predicate, explain_predicate
from idgraph.index.thread_accesses import AccessPicture, access_picture
from idgraph.index.vector_width import Contiguity, Width, explain_contiguous
from idgraph.index.vectorization_advice import Suggestion, VectorWidth, suggestions
from idgraph.ir import Fusion, IterDomain, TensorExpr

Part = Literal["coordinates", "allocation", "address"]  # what of an access an interchange text says


@dataclass(frozen=True, slots=True, repr=False)
class Access(AccessFunction):
    """One tensor as one operation touches it; all expressions are in loop variables, symbols and loaded values.

    ``coordinates`` has one entry for each axis of ``tensor.shape``, ``logical`` one for each logical axis (with reduced
    ones), ``allocation`` one for each allocation axis, ``slots`` one for each loop axis of the tensor (None for reduced
    ones): the offset of the element in a buffer laid out by the tensor's own loops. ``address`` counts elements from
    the start of ``buffer``, the memory that is allocated: of the whole tensor, or where it is inlined the array that a
    block or a thread has of what is made at one point of the loops; it is the number that kernels use.
    ``tensor_address`` is the one in memory of the whole tensor. ``conditions`` are the conjuncts of ``predicate``.
    Coordinates are exact at every loop point, `guarded` has smaller ones for where the predicate holds.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(64,))[32:]
    >>> a = ig.IdModel(f).access(t.definition, f["t"])
    >>> str(a.coordinates[0]), str(a.address), str(a.predicate)
    ('i0 + 32', 'i0 + 32', 'True')
    >>> a.is_write, a.index_bits
    (False, 32)
    """

    def explain_predicate(self) -> Predicate:
        """The predicate conjunct by conjunct: axis, end, cause and line; with what is not tested, and why not.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("t", shape=(60,)) + 1.0).split(0, 8)
        >>> print(ig.IdModel(f).write(t.definition).explain_predicate())
        t1 is written by add when i0*8 + i1 < 60; 1 more bound holds by proof
          i0*8 + i1 < 60: stop of t1 axis 0, split of 60 by 8 (<doctest ...)
        """
        return explain_predicate(self)

    @arguments(IndexingError)
    def contiguous(self, loop: str | int | LoopVariable | IterDomain) -> bool:
        """True when one step of the loop is proved to move the address by one element, wherever the access happens.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> m.access(t1.definition, t1).contiguous("i1"), m.access(t1.definition, t0).contiguous("i1")
        (True, False)
        """
        return explain_contiguous(self, loop).holds

    @arguments(IndexingError)
    def explain_contiguous(self, loop: str | int | LoopVariable | IterDomain) -> Contiguity:
        """`contiguous` with the reason: by what a step moves the address, and a point that shows it.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> print(m.access(t1.definition, t0).explain_contiguous("i1"))
        t0 along i1: not contiguous, a step moves the address by 8
        """
        return explain_contiguous(self, loop)

    @arguments(IndexingError)
    def vector_width(self, loop: str | int | LoopVariable | IterDomain) -> int:
        """Largest proved number of elements (a power of two, at most 16 bytes) that one aligned access may move.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("t", shape=(64,))[32:])
        >>> a = ig.IdModel(f).access(t.definition, f["t"])
        >>> a.vector_width("i0"), a.vector_width(t.loop[-1])
        (4, 4)
        """
        return Width.along(self, loop).width

    @arguments(IndexingError)
    def explain_vector_width(
        self, loop: str | int | LoopVariable | IterDomain, wanted: int | None = None
    ) -> VectorWidth:
        """`vector_width` with what stops more (up to ``wanted`` elements, default 16 bytes) and what would allow it.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("t", shape=(64,))[3:])
        >>> a = ig.IdModel(f).access(t.definition, f["t"])
        >>> why = a.explain_vector_width("i0")
        >>> int(why), why.wanted, why.limit
        (1, 4, 'extent')
        """
        return VectorWidth.along(self, loop, wanted)

    @arguments(IndexingError)
    def suggestions(self, why: VectorWidth) -> tuple[Suggestion, ...]:
        """See `VectorWidth.suggestions`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("t", shape=(8, 30)) + 1.0)
        >>> a = ig.IdModel(f).access(t.definition, f["t"])
        >>> for change in a.suggestions(a.explain_vector_width("i1")):
        ...     print(change)
        4 elements if the extent 30 of t is a multiple of 4: 32
        """
        return suggestions(why)

    @arguments(IndexingError)
    def bank_conflicts(
        self, *, block: Mapping[str, int] | None = None, symbols: Mapping[str, int] | None = None
    ) -> BankConflicts:
        """Conflicts of the warps that access shared memory, counted at every point.

        ``block`` gives thread dimensions of the kernel that are wider than this operation's (``{"threadIdx.x": 64}``),
        ``symbols`` numbers for symbolic extents. Raises `IndexingError` where the tensor is not in shared memory.

        >>> import idgraph as ig
        >>> f = ig.Fusion("tile")
        >>> t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t").set_memory("shared")
        >>> u = f.output(ig.permute(t, (0, 2, 1)))
        >>> for x in (t, u):
        ...     for p, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
        ...         _ = x.parallelize(p, way)
        >>> a = ig.IdModel(f).access(t.inline(1).uses[0], t)
        >>> a.bank_conflicts().ways
        32
        """
        return BankConflicts.counted(self, block, symbols)

    @arguments(IndexingError)
    def bank_suggestions(self, found: BankConflicts) -> tuple[BankSuggestion, ...]:
        """See `BankConflicts.suggestions`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("tile")
        >>> t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t").set_memory("shared")
        >>> u = f.output(ig.permute(t, (0, 2, 1)))
        >>> for x in (t, u):
        ...     for p, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
        ...         _ = x.parallelize(p, way)
        >>> a = ig.IdModel(f).access(t.inline(1).uses[0], t)
        >>> for change in a.bank_suggestions(a.bank_conflicts()):
        ...     print(change)
        no conflict if axis 2 of t is swizzled (xor) by axis 1
        no conflict if axis 2 of t is padded by 1, 32 elements more
        """
        return bank_suggestions(found)

    @arguments(IndexingError, first=True)
    def picture(
        self,
        *,
        at: Mapping[str, int] | str | None = None,
        block: Mapping[str, int] | None = None,
        symbols: Mapping[str, int] | None = None,
        loads: Mapping[str, Sequence[int]] | None = None,
        warps: int = 2,
    ) -> AccessPicture:
        """Which thread touches which address, as a grid: threads, the tile of the tensor, and memory by sectors.

        The picture is of one step of the loops that no thread runs: ``at`` gives their values (default 0, or where a
        bank conflict is worst), "last" the last step of each, where tails are. The steps of vectorised and unrolled
        loops are the values of a thread; where no loop runs on threads, the innermost loops are. ``block`` and
        ``symbols`` are as for `bank_conflicts`, ``loads`` the numbers that an index is loaded from, row by row, by the
        names of `loads`. ``warps`` are drawn, all are counted. A swizzled array is shown without its swizzle too.
        Raises `IndexingError` for what is kept in registers.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("a", shape=(100,)) + 1).split(0, 64).parallelize(1, "threadIdx.x")
        >>> print(ig.IdModel(f).write(t.definition).picture(at="last"))
        add writes t1 at i0*64 + i1 at i0=1: block of 64 threads
          warp 0 asks for 4 sectors of 32 bytes, all needed for its 128 bytes
          warp 1 asks for 1 sector of 32 bytes, all needed for its 16 bytes; 28 of 32 elements are masked
          T0: 64  T1: 65  T2: 66  T3: 67  T4: 68  T5: 69  T6: 70  T7: 71 ...
        """
        return access_picture(self, at=at, block=block, symbols=symbols, loads=loads, warps=warps)

    @property
    def index_bits(self) -> int:
        """32 when loop ends, predicate, address and every value on the way are proved to fit int32, else 64.

        Also where the predicate is false: kernels compute addresses before they test it.
        """
        return index_bits(self)

    @arguments(IndexingError)
    def index_type(self, *, guarded: bool = False) -> IntType:
        """The smallest of "uint32", "int32", "int64" that holds what `index_bits` speaks of.

        ``guarded``: the address is computed only where the predicate is true, so that it may go below 0 elsewhere.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> a = f.input("a", shape=(10,))
        >>> read = ig.IdModel(f).access(f.output(ig.pad(a, (2, 0))).definition, a)
        >>> str(read.address), read.index_type(), read.index_type(guarded=True)
        ('i0 - 2', 'int32', 'uint32')
        """
        return index_type(self, guarded)

    @arguments(IndexingError)
    def as_map(self, of: Part = "coordinates") -> IndexMap:
        """The access as a map from loops to coordinates (or ``allocation``, or the ``address``), where it happens.

        Its domain is the predicate, its codomain the tensor (or the memory that is allocated, in elements). Raises
        `IndexingError` for an access with a loaded index.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("a", shape=(10,)) + 1).split(0, 4)
        >>> m = ig.IdModel(f).write(t.definition).as_map()
        >>> print(m)
        (i0, i1) -> (i0*4 + i1) if i0*4 + i1 < 10
        >>> bool(m.is_injective), bool(m.is_dense), str(m.image)
        (True, True, '{(y0): 0 <= y0 < 10}')
        """
        results = self._part(of)
        self._check_loads(results, "a map of loop variables only")
        if of == "address":
            sizes: tuple[Expr, ...] = (self.buffer.size,)
        else:
            axes = self.tensor.axes if of == "coordinates" else self.tensor.allocation
            sizes = tuple(as_expr(1) if d.is_broadcast else d.extent for d in axes)
        return IndexMap(tuple(loop.symbol for loop in self.loops), results, sizes, self.predicate)

    @arguments(IndexingError)
    def inverse(self, of: Part = "coordinates") -> IndexMap:
        """The loop point at which each element is touched: from coordinates (``allocation``, ``address``) to loops.

        Its domain is the set of elements that are touched; `IndexMap.is_exact` holds the proof that there and back is
        the identity. Raises `NotInvertible`, with two points, where the access touches an element twice (a broadcast, a
        reduced axis), and `IndexingError` where its index is loaded.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x = f.input("x", shape=(8,))
        >>> t = f.output(ig.roll(x, 2, 0)).split(0, 4)
        >>> back = ig.IdModel(f).access(t.definition, x).inverse()
        >>> back(6), bool(back.is_exact), str(back.domain)
        ((0, 0), True, '{(y0): 0 <= y0 < 8}')
        >>> y = f.output(ig.broadcast(x, (3, 8)))
        >>> ig.IdModel(f).access(y.definition, x).inverse()
        Traceback (most recent call last):
        idgraph.arith.index_map.NotInvertible: expand reads x: (i0, i1) -> (i1) has no inverse
          at ...
          because {'i0': 0, 'i1': 0} and {'i0': 1, 'i1': 0} both go to (0,)
          hint: ...
        """
        forward = self.as_map(of)
        try:
            return forward.inverse()
        except NotInvertible as error:
            verb = "writes" if self.is_write else "reads"
            told = f"{self.expr.op} {verb} {self.tensor.name}: {error.what.removeprefix('the index map ')}"
            raise error.at(told, self.expr.source_line, _hint(error)) from None

    @arguments(IndexingError)
    def affine_map(self, of: Part = "coordinates") -> str:
        """MLIR's text of the access: loops, outermost first, to coordinates (or ``allocation``, or the ``address``).

        Symbols follow in alphabetical order. Raises IdGraphError for what is not affine: a swizzle, a loaded value.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(ig.exp(f.input("a", shape=(6, 8)))).merge(0).split(0, 5)
        >>> a = ig.IdModel(f).access(t.definition, t)
        >>> a.affine_map("address")
        'affine_map<(d0, d1) -> (d0 * 5 + d1)>'
        >>> a.affine_set()
        'affine_set<(d0, d1) : ((d0 * 5 + d1) * -1 + 47 >= 0)>'
        >>> a.tvm_index_map()
        'lambda i0, i1: [(((5 * i0) + i1) // 8), (((5 * i0) + i1) % 8)]'
        """
        results = self._part(of)
        self._check_loads(results, "an affine map")
        return affine_map(self._dims(), results, self._symbols())

    def affine_set(self) -> str:
        """MLIR's text of the predicate, over the same dimensions and symbols as `affine_map`.

        Where the index is loaded, the loaded values are its last symbols, within the bounds that they must keep.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(4, 1), dtype="int64")
        >>> ig.IdModel(f).access(ig.gather(x, 1, i).definition, x).affine_set()
        'affine_set<(d0, d1)[s0] : (s0 >= 0, s0 * -1 + 32 >= 0)>'
        """
        symbols = [*self._symbols(), *sorted(self.loads)]
        return affine_set(self._dims(), (*self.conditions, *self.load_bounds), symbols)

    @arguments(IndexingError)
    def tvm_index_map(self, of: Part = "coordinates") -> str:
        """The lambda that ``tvm.tir.IndexMap.from_func`` takes, from loops to coordinates; symbols are free names.

        Raises `IndexingError` for an access with a loaded index: TVM's index maps know loop variables only.
        """
        results = self._part(of)
        self._check_loads(results, "a TVM index map")
        return tvm_index_map(self._dims(), results)

    def _check_loads(self, results: Sequence[Expr], what: str) -> None:
        loaded = sorted({name for x in results for name in x.names} & self.loads.keys())
        if loaded:
            t, at = self.loads[loaded[0]]
            verb = "writes" if self.is_write else "reads"
            raise IndexingError(
                f"{self.expr.op} {verb} {self.tensor.name} where {t.name}[{', '.join(map(str, at))}] says: "
                f"this is not {what}",
                where=self.expr.source_line,
                hint=f"take the access of {t.name} instead, or a.coordinates with .loads",
            )

    def _dims(self) -> list[str]:
        return [loop.name for loop in self.loops]

    def _part(self, of: Part) -> tuple[Expr, ...]:
        if of == "address":
            return (self.address,)
        if of not in ("coordinates", "allocation"):
            raise ArithError(
                f"an access has no {of!r} to write down", hint='of="coordinates", "allocation" or "address"'
            )
        return self.coordinates if of == "coordinates" else self.allocation

    def _symbols(self) -> list[str]:
        every = (*self.coordinates, *self.allocation, self.address, *self.conditions)
        return sorted({name for x in every for name in x.names} - {*self._dims(), *self.loads})


def _hint(error: NotInvertible) -> str:
    """The loops in which two points with one element differ."""
    met = error.witness
    if not isinstance(met, Collision):
        return error.hint
    loops = ", ".join(n for n in met.first if met.first[n] != met.second[n])
    return f"the element is touched again along {loops}; the output's write touches each element once"


_OPERATIONS = 30  # of a model that a notebook shows


@dataclass(frozen=True, slots=True)
class AccessTable(Printed):
    """All accesses of one operation; prints as a table.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(10,))[2:])
    >>> [str(a) for a in ig.IdModel(f).index_map(t.definition).accesses]
    ['slice writes t1[i0] at i0', 'slice reads a[i0 + 2] at i0 + 2']
    """

    expr: TensorExpr
    loops: tuple[LoopVariable, ...]
    accesses: tuple[Access, ...]

    def sheet(self) -> Sheet:
        """A row for each access."""
        loops = "for " + ", ".join(map(str, self.loops)) if self.loops else "once"
        columns = ("", "tensor", "coordinates", "address", "when")
        return Sheet(repr(self.expr), columns, tuple(map(access_cells, self.accesses)), (loops,))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = f"{self.expr!r}"
        loops = "  for " + ", ".join(map(str, self.loops)) if self.loops else "  once"
        rows = [("", "tensor", "coordinates", "address", "when"), *map(access_cells, self.accesses)]
        widths = [max(len(r[c]) for r in rows) for c in range(5)]
        table = ["  " + "  ".join(x.ljust(w) for x, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([head, loops, *table])


def access_cells(a: Access) -> tuple[str, str, str, str, str]:
    """Verb, tensor, coordinates, address and predicate as text."""
    where = "(" + ", ".join(map(str, a.coordinates)) + ")"
    return ("write" if a.is_write else "read", a.tensor.name, where, a.place, str(a.predicate))


def model_sheet(fusion: Fusion, index_map: Callable[[TensorExpr], AccessTable]) -> Sheet:
    """The accesses of the first operations of a fusion."""
    shown = fusion.exprs[:_OPERATIONS]
    rows: list[tuple[str, ...]] = []
    for e in shown:
        found = index_map(e)
        loops = ", ".join(map(str, found.loops)) or "once"
        heads = [(f"{e.output.name} = {e.op}", loops), *[("", "")] * len(e.inputs)]
        rows += [(*head, *access_cells(a)) for head, a in zip(heads, found.accesses, strict=True)]
    more = len(fusion.exprs) - len(shown)
    columns = ("operation", "loops", "", "tensor", "coordinates", "address", "when")
    return Sheet(f"index maps of {fusion.name}", columns, tuple(rows), (f"{more} more operations",) if more else ())
