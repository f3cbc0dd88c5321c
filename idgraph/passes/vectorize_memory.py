"""Loads, stores and atomic additions of neighbouring elements as one access of up to 16 bytes.

realign: loads of neighbouring elements that begin anywhere, as one read of the aligned vectors that hold them.

A row that begins at another alignment than the one that is written (a bias under rows of odd width, an input whose rows
are padded) would be read element by element: a thread's 8 elements of 2 bytes are 8 loads of the warp, each over all of
the lines that one vector access takes. Two aligned vectors hold them, and a few shifts pick them out.

It pays where at least 8 loads become two: for elements of 1 and 2 bytes. The 4 loads of a vector of float32 that begins
anywhere ran as fast as a copy on an H200.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby

from idgraph.arith import TRUE, Expr, and_, divisible, not_, simplify, symbol
from idgraph.ir import item_size
from idgraph.ir.device import access_bytes
from idgraph.kernel.def_use import (
    all_sets,
    defs,
    in_lanes,
    map_body,
    map_statement,
    read_only_buffers,
    reads,
    unchanged,
    updates,
)
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    Buffer,
    Comment,
    If,
    Kernel,
    Let,
    Load,
    Local,
    ProvenanceList,
    Select,
    Stmt,
    Store,
    VectorAdd,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.statements import LANE, bodies
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_loop_fusion import guard_provenance, merge_provenance, split_constant
from idgraph.schedule.access_strides import LEAST_REALIGNED
from idgraph.schedule.config import ADDED_TOGETHER

# Types whose bits travel as integer words; truth values are bytes.


def with_vector_loads(kernel: Kernel) -> Kernel:
    """vectorize_loads: equal loads of inputs made once, and loads of neighbouring elements joined.

    They move to the front of the lanes they stand in, which changes no value.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       a: float32 = x[i*2]
    ...       y[i*2] = a
    ...       b: float32 = x[i*2 + 1]
    ...       y[i*2 + 1] = b
    ... ''')
    >>> print(with_vector_loads(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 32:
        lanes:
          (a_v0: float32, b_v1: float32) = x[i*2; 2]
          y[i*2] = a_v0
          y[i*2 + 1] = b_v1
    """
    read_only = read_only_buffers(kernel.buffers, kernel.body)

    def joined(body: Sequence[Stmt]) -> Sequence[Stmt]:
        loads = _Loads(read_only | unchanged(body))
        made = map_body(loads.joined(body, ValueNumbering(), {}), loads.serving)
        return _Tests(loads).under(made)

    return replace(kernel, body=in_lanes(kernel.body, joined))


def with_vector_stores(kernel: Kernel) -> Kernel:
    """vectorize_stores: stores, and atomic additions, to neighbouring elements joined.

    They move to the end of the lanes where nothing else in them touches what they write.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer y: float32[64] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       a: float32 = cast({i})
    ...       y[i*2] = a
    ...       b: float32 = neg(a)
    ...       y[i*2 + 1] = b
    ... ''')
    >>> print(with_vector_stores(k))
    kernel k():
      buffer y: float32[64] output "y"
      for i < 32:
        lanes:
          a: float32 = cast({i})
          b: float32 = neg(a)
          y[i*2; 2] = (a, b)
    """
    return replace(kernel, body=in_lanes(kernel.body, _join_stores))


class Places:
    """Addresses as (base, offset): those a constant apart, by proof, share a base.

    >>> i, x = symbol("i", 0, 9), Buffer("x", "x", "float32", symbol("n"), "input")
    >>> places = Places()
    >>> [(str(base), at) for base, at in (places.of(x, e) for e in (i * 4, i * 4 + 1))]
    [('i*4', 0), ('i*4', 1)]
    """

    def __init__(self) -> None:
        self._bases: dict[str, list[Expr]] = {}

    def of(self, buffer: Buffer, address: Expr) -> tuple[Expr, int]:
        """The base that an address of ``buffer`` shares with earlier ones, or its own."""
        base, constant = split_constant(address)
        known = self._bases.setdefault(buffer.name, [])
        if base in known:
            return base, constant
        for other in known:
            apart = simplify(address - other)
            if apart.is_const:
                return other, int(apart)
        known.append(base)
        return base, constant


def _chunks(offsets: set[int], rest: Expr, buffer: Buffer) -> list[tuple[int, int]]:
    """(first, width): aligned runs among ``offsets``, each as wide as proved; single elements are left out."""
    found: list[tuple[int, int]] = []
    left = set(offsets)
    width = access_bytes() // item_size(buffer.dtype)
    while width > 1:
        if buffer.alignment % (width * item_size(buffer.dtype)) == 0 and divisible(rest, width):
            for first in sorted(left):
                run = range(first, first + width)
                if first % width == 0 and all(n in left for n in run):
                    found.append((first, width))
                    left.difference_update(run)
        width //= 2
    return found


Known = dict[tuple[str, Expr, Expr], dict[int, Local]]
"""Buffer, base and guard -> the elements loaded of it."""
Readers = Sequence[tuple[Stmt, tuple[Expr, ...]]]
Wanted = dict[tuple[str, Expr, Expr], dict[int, Load]]


class _Loads:
    """Joins loads. Code falls into segments, each ended by a loaded index: loads that it addresses come after it."""

    def __init__(self, read_only: frozenset[str]) -> None:
        self.read_only = read_only
        self.places = Places()
        self.numbers = count()
        self.facts: tuple[Expr, ...] = ()  # the conditions around the present statement
        self.depths: dict[str, int] = {}  # how many conditions there were around the load of a variable
        self.more: dict[str, ProvenanceList] = {}  # what the load of a variable serves beside its own

    def joined(self, body: Sequence[Stmt], now: ValueNumbering, known: Known) -> list[Stmt]:
        """``now`` says which load's value a local holds at the present statement: a name is loaded into many times.

        ``known`` are the elements that are loaded already.
        """
        made: list[Stmt] = []
        segment: list[Stmt] = []
        for s in body:
            segment.append(s)
            if isinstance(s, Let):
                made += self.segment(segment, now, known)
                segment = []
                for key in [k for k in known if s.name in k[1].names | k[2].names]:  # another value from here on
                    del known[key]
        return made + self.segment(segment, now, known)

    def segment(self, body: Sequence[Stmt], now: ValueNumbering, known: Known) -> list[Stmt]:
        """Loads in front, but for the only one under its guard: behind a test of the opposite it is the other branch,
        and no choice between them waits for it."""
        wanted: Wanted = {}
        rest: list[Stmt] = []
        under = Counter((s.buffer.name, s.guard) for s in body if isinstance(s, Load) and s.guard != TRUE)
        for s in body:
            if isinstance(s, Load) and self.joins(s):
                alone: Wanted = {}
                front = alone if under[s.buffer.name, s.guard] == 1 else wanted
                now.same(s.local, now.number(self.load(s, front, known)))
                rest += _vector_loads(alone)
            elif isinstance(s, (If, BoundsCheck)):
                inner = {k: dict(v) for k, v in known.items()}
                facts, self.facts = self.facts, (*self.facts, s.condition)
                rest.append(replace(s, body=tuple(self.joined(s.body, now.branch(), inner))))
                self.facts = facts
                now.forget(all_sets(s.body))
            else:
                rest.append(map_statement(s, read=now.operand))
                now.forget(all_sets((s,)))
        return [*_vector_loads(wanted), *rest]

    def joins(self, s: Load) -> bool:
        """True of a load that others of the same element may stand for."""
        return s.buffer.name in self.read_only and s.local.dtype == s.buffer.dtype

    def serving(self, s: Stmt) -> Stmt:
        """A load with the purposes of the loads that it replaces."""
        match s:
            case Load(local) if local.name in self.more:
                return replace(s, serves=(*s.serves, *self.more[local.name]))
            case VectorLoad(made) if any(x.name in self.more for x in made):
                more = [self.more.get(x.name, ()) for x in made]
                return replace(s, serves=(*s.serves, *merge_provenance(more, symbol(LANE, 0, len(made) - 1))))
            case _:
                return s

    def load(self, s: Load, wanted: Wanted, known: Known) -> Local:
        base, constant = self.places.of(s.buffer, s.address)
        have = known.setdefault((s.buffer.name, base, s.guard), {})
        if constant not in have:
            have[constant] = Local(f"{s.local.name}_v{next(self.numbers)}", s.local.dtype)
            wanted.setdefault((s.buffer.name, base, s.guard), {})[constant] = replace(s, local=have[constant])
            self.depths[have[constant].name] = len(self.facts)
        else:
            name = have[constant].name
            also = guard_provenance(s.serves, and_(*self.facts[self.depths[name] :]))
            self.more[name] = (*self.more.get(name, ()), *also)
        return have[constant]


@dataclass(frozen=True, slots=True)
class _Tests:
    """Loads of neighbouring elements under one guard, side by side, as plain loads under one test of that guard.

    A guarded load gives zero where its guard does not hold, a load under a test nothing. So all its readers must be
    choices of the same lanes that take it only where the guard holds, as those between the pieces of a ``cat`` do.
    """

    loads: _Loads

    def under(self, lanes: Sequence[Stmt]) -> Sequence[Stmt]:
        """``lanes`` with those loads under tests."""
        if not any(isinstance(s, Load) and s.guard != TRUE for s in walk(tuple(lanes))):
            return lanes
        return self.body(lanes, tuple(_readers(lanes, ())))

    def body(self, body: Sequence[Stmt], readers: Readers) -> list[Stmt]:
        """One level of them."""
        made: list[Stmt] = []
        for guard, some in groupby(body, lambda s: s.guard if isinstance(s, Load) else TRUE):
            run = list(some)
            if guard == TRUE:
                made += [replace(s, body=tuple(self.body(s.body, readers))) if isinstance(s, (If, BoundsCheck)) else s
                         for s in run]  # fmt: skip
                continue
            loads = [s for s in run if isinstance(s, Load)]
            vectors = self.vectors(loads)
            inside = {x.name for s in vectors for x in defs(s)}
            if vectors and self.serve(inside, guard, readers):
                made.append(If(guard, tuple(vectors)))
                run = [s for s in loads if s.local.name not in inside]
            made += run
        return made

    def vectors(self, run: Sequence[Load]) -> list[VectorLoad]:
        """Those of them that are neighbours, joined."""
        found: Wanted = {}
        for s in run:
            if self.loads.joins(s):
                base, at = self.loads.places.of(s.buffer, s.address)
                found.setdefault((s.buffer.name, base, TRUE), {}).setdefault(at, replace(s, guard=TRUE))
        return [s for s in _vector_loads(found) if isinstance(s, VectorLoad)]

    def serve(self, made: set[str], guard: Expr, readers: Readers) -> bool:
        """True where these variables are read under ``guard`` only."""
        set_here = Counter(s.name for s, _ in readers if isinstance(s, Let))
        if any(set_here[name] > 1 for name in guard.names):
            return False  # another number where some of them are read
        mine = [(s, facts) for s, facts in readers if reads(s) & made]
        proved: dict[tuple[Expr, ...], bool] = {}
        for s, facts in mine:
            if not isinstance(s, Select):
                return False
            known = list(facts)
            for condition, value in (*s.cases, (TRUE, s.default)):
                if isinstance(value, Local) and value.name in made:
                    key = (*known, condition)
                    if key not in proved:
                        proved[key] = simplify(guard, facts=key) == TRUE
                    if not proved[key]:
                        return False
                known.append(simplify(not_(condition)))
        return True


def _readers(body: Sequence[Stmt], facts: tuple[Expr, ...]) -> Iterator[tuple[Stmt, tuple[Expr, ...]]]:
    """Statements with the conditions of the tests around them."""
    for s in body:
        yield s, facts
        yield from _readers(bodies(s), (*facts, s.condition) if isinstance(s, If) else facts)


def _vector_loads(wanted: Wanted) -> list[Stmt]:
    """Neighbours joined; those under one guard, which only `_Tests` may join, side by side."""
    made: list[Stmt] = []
    guards = {guard: n for n, (_, _, guard) in enumerate(reversed(wanted))}
    for (_, base, guard), loads in sorted(wanted.items(), key=lambda w: -guards[w[0][2]]):
        buffer = next(iter(loads.values())).buffer
        joined = _chunks(set(loads), base, buffer) if guard == TRUE else []
        inside = {n for first, width in joined for n in range(first, first + width)}
        for first, width in joined:
            made.append(vector_load([loads[n] for n in range(first, first + width)], simplify(base + first)))
        made += [s for n, s in loads.items() if n not in inside]
    return made


def vector_load(loads: Sequence[Load], address: Expr, realigned: bool = False) -> VectorLoad:
    """Loads of neighbouring elements, from ``address`` on, as one."""
    purpose = merge_provenance([s.serves for s in loads], symbol(LANE, 0, len(loads) - 1))
    made = tuple(s.local for s in loads)
    return VectorLoad(made, loads[0].buffer, address, serves=purpose, realigned=realigned)


def _join_stores(body: Sequence[Stmt]) -> list[Stmt]:
    """Stores and atomic additions joined up to the next condition that writes: none moves past one."""
    body = [replace(s, body=tuple(_join_stores(s.body))) if isinstance(s, (If, BoundsCheck)) else s for s in body]
    flat = list(walk(tuple(body)))
    # A write stays where its address has a variable set here, or its buffer is also touched otherwise here.
    lets = frozenset(s.name for s in body if isinstance(s, Let))
    loaded = {s.buffer.name for s in flat if isinstance(s, (Load, VectorLoad))}
    stored = {s.buffer.name for s in flat if isinstance(s, (Store, VectorStore))}
    added = {s.buffer.name for s in flat if isinstance(s, (Accumulate, VectorAdd)) and s.buffer is not None}
    moving = _Moving(frozenset(loaded | stored & added), lets, frozenset(x.name for s in flat for x in updates(s)))
    made: list[Stmt] = []
    part: list[Stmt] = []
    for s in body:
        part.append(s)
        if isinstance(s, (If, BoundsCheck)) and any(
            isinstance(x, (Store, VectorStore, Accumulate, VectorAdd)) for x in walk(s.body)
        ):
            made += [*moving.joined(part[:-1]), s]
            part = []
    return [*made, *moving.joined(part)]


@dataclass(frozen=True, slots=True)
class _Moving:
    """Which writes may move to the end of their part: none to a buffer in ``kept``, none with a name in ``lets`` in its
    address, none of a value that is set ``often``."""

    kept: frozenset[str]
    lets: frozenset[str]
    often: frozenset[str]

    def target(self, s: Stmt) -> tuple[Buffer, Expr] | None:
        """Where a statement writes that may move."""
        match s:
            case Store(buffer, address, value) if buffer.place != "private":
                pass
            case Accumulate(_, "sum", value, Buffer() as buffer, Expr() as address, True, None):
                if buffer.dtype not in ADDED_TOGETHER or buffer.place not in ("output", "global"):
                    return None
            case _:
                return None
        fixed = not isinstance(value, Local) or value.name not in self.often
        return (buffer, address) if fixed and buffer.name not in self.kept and not address.names & self.lets else None

    def joined(self, body: Sequence[Stmt]) -> list[Stmt]:
        """Statements of one part, its writes to neighbouring elements joined at its end."""
        wanted: dict[tuple[str, Expr], dict[int, Store | Accumulate]] = {}
        places = Places()
        rest: list[Stmt] = []
        for s in body:
            to = self.target(s)
            if to is None or not isinstance(s, (Store, Accumulate)):
                rest.append(s)
                continue
            base, constant = places.of(*to)
            writes = wanted.setdefault((to[0].name, base), {})
            if constant in writes:  # written twice: keep the order as it stands
                return list(body)
            writes[constant] = s
        return [*rest, *(x for (_, base), writes in wanted.items() for x in _vector_writes(base, writes))]


def _vector_writes(base: Expr, writes: Mapping[int, Store | Accumulate]) -> list[Stmt]:
    """Writes at constants from ``base``, all stores or all additions of one buffer."""
    some = next(iter(writes.values()))
    if some.buffer is None:
        raise AssertionError("what is joined is in memory")
    made: list[Stmt] = []
    inside: set[int] = set()
    for first, width in _chunks(set(writes), base, some.buffer):
        inside.update(range(first, first + width))
        values = tuple(writes[n].value for n in range(first, first + width))
        kind = VectorStore if isinstance(some, Store) else VectorAdd
        purpose = merge_provenance([writes[n].serves for n in range(first, first + width)], symbol(LANE, 0, width - 1))
        made.append(kind(some.buffer, simplify(base + first), values, serves=purpose))
    return [*made, *(s for n, s in writes.items() if n not in inside)]


def realigned(kernel: Kernel) -> Kernel:
    """realign: loads of neighbouring elements that begin anywhere as one, of the aligned vectors that hold them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: int16[257] input "x"
    ...   buffer y: int16[256] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       a: int16 = x[i*8 + 1]; b: int16 = x[i*8 + 2]; c: int16 = x[i*8 + 3]; d: int16 = x[i*8 + 4]
    ...       e: int16 = x[i*8 + 5]; g: int16 = x[i*8 + 6]; h: int16 = x[i*8 + 7]; k: int16 = x[i*8 + 8]
    ...       y[i*8; 8] = (a, b, c, d, e, g, h, k)
    ... ''')
    >>> print(str(realigned(k)).split("lanes:")[1])  # doctest: +NORMALIZE_WHITESPACE
          (a: int16, b: int16, c: int16, d: int16, e: int16, g: int16, h: int16, k: int16) = x[i*8 + 1; 8] realigned
          y[i*8; 8] = (a, b, c, d, e, g, h, k)
    """
    return replace(kernel, body=in_lanes(kernel.body, _vectorize_body))


def _vectorize_body(body: Sequence[Stmt]) -> list[Stmt]:
    """Loads side by side, between other statements, may stand in any order."""
    made: list[Stmt] = []
    side: list[Stmt] = []
    for s in body:
        if isinstance(s, (Load, VectorLoad, Comment)):
            side.append(s)
            continue
        made += _merge_neighbour_loads(side)
        side = []
        made.append(replace(s, body=tuple(_vectorize_body(s.body))) if isinstance(s, (If, BoundsCheck)) else s)
    return [*made, *_merge_neighbour_loads(side)]


def _merge_neighbour_loads(side: Sequence[Stmt]) -> list[Stmt]:
    places = Places()
    wanted: dict[tuple[str, Expr], dict[int, Load]] = {}
    for s in side:
        if isinstance(s, Load) and _may_join(s):
            base, at = places.of(s.buffer, s.address)
            wanted.setdefault((s.buffer.name, base), {}).setdefault(at, s)
    by_first: dict[int, VectorLoad] = {}
    inside: set[int] = set()
    for (_, base), loads in wanted.items():
        for first, width in _neighbour_runs(loads):
            chunk = [loads[n] for n in range(first, first + width)]
            inside.update(map(id, chunk))
            at = next(id(s) for s in side if any(s is x for x in chunk))
            by_first[at] = vector_load(chunk, simplify(base + first), realigned=True)
    return [by_first.get(id(s), s) for s in side if id(s) not in inside or id(s) in by_first]


def _may_join(s: Load) -> bool:
    """True of a load from memory that all threads see, whose first element is aligned."""
    b = s.buffer
    plain = s.guard == TRUE and s.local.dtype == b.dtype and b.place not in ("private", "shared")
    whole = b.alignment % access_bytes() == 0
    return plain and whole


def _neighbour_runs(loads: Mapping[int, Load]) -> list[tuple[int, int]]:
    """(first, width) of neighbours, as many as a vector has, or half as many, at least `LEAST_REALIGNED`."""
    size = item_size(next(iter(loads.values())).buffer.dtype)
    found: list[tuple[int, int]] = []
    left = set(loads)
    width = access_bytes() // size
    while width >= LEAST_REALIGNED:
        for first in sorted(left):
            run = range(first, first + width)
            if left.issuperset(run):
                found.append((first, width))
                left.difference_update(run)
        width //= 2
    return found
