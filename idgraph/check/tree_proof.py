"""A program's tree proved without counting, at any size: each read is replaced by what its writer reads for it.

A read of memory that one nest writes sees the element that this nest stored in the same iterations of the loops that
both are in: where the address has one point of the writer's other loops, which is run (proved from the ranges of the
loops and the guards), before the reader, and no other iteration of a loop in any order writes there. What is left are
nests that read arguments only, which are decided one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.check.buffer_contents import touches_inside
from idgraph.check.decide import decide
from idgraph.check.program import (
    Axis,
    BufferLayout,
    IndirectIndex,
    LoadedValue,
    Nest,
    NeutralProgram,
    Read,
    TreeGuard,
    TreeLoop,
    TreeNode,
    Write,
    tree_of,
)
from idgraph.check.report import CheckRow
from idgraph.check.semantics import NoIndexMeaning
from idgraph.check.store_coverage import injective, inverse

DEEPEST = 20  # readers of readers
MOST = 2000  # reads of one nest


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A nest and the way to it: loops by name, guards, and which child of which node it is in."""

    nest: Nest  # with names of its own
    loops: tuple[tuple[Axis, TreeLoop | None], ...]  # None: the nest's own
    when: Expr
    path: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(slots=True)
class _Proof:
    program: NeutralProgram
    budget: int
    buffers: dict[str, BufferLayout] = field(default_factory=dict[str, BufferLayout])
    leaves: list[_Leaf] = field(default_factory=list[_Leaf])
    writers: dict[str, _Leaf] = field(default_factory=dict[str, _Leaf])
    fresh: int = 0

    def home(self, name: str) -> str:
        b = self.buffers.get(name)
        return b.home if b is not None else self.program.memory.get(name, (name, as_expr(0)))[0]

    def rows(self) -> tuple[CheckRow, ...]:
        p = self.program
        self.buffers = {b.name: b for b in p.buffers}
        self.flattened(tree_of(p), (), {}, TRUE, (), ())
        self.supported()
        ends = {t.name for t in p.fusion.outputs}
        given = {t.name for t in p.fusion.inputs}
        for name in ends - given - {self.tensor(n) for n in self.writers}:
            raise NoIndexMeaning(f"nothing writes {name}, a result")
        final = [x for x in self.leaves if any(self.tensor(w.buffer) in ends for w in x.nest.writes)]
        for leaf in self.leaves:
            self.inside(leaf)
        made = tuple(self.composed(x) for x in final)
        names = {w.buffer for n in made for w in n.writes}
        kept = tuple(
            replace(b, after=next((n.name for n in made for w in n.writes if w.buffer == b.name), ""), over="")
            for b in p.buffers if b.name in names or b.tensor in given
        )  # fmt: skip
        order = tuple(n.name for n in made)
        found = decide(replace(p, nests=made, body=(), buffers=kept, order=order), budget=self.budget).rows
        bad = next((r for r in found if r.verdict not in ("proved", "enumerated")), None)
        if bad is not None:
            raise NoIndexMeaning(bad.because or "its formulas are not decided")
        wrote = {r.node for r in found}
        because = "each read of it is of the element that it writes in the same iteration, before"
        return (*found, *(
            CheckRow(x.nest.name, w.buffer, "proved", "write", because, graph=p.name)
            for x in self.leaves if x.nest.name not in wrote for w in x.nest.writes
        ))  # fmt: skip

    def tensor(self, buffer: str) -> str:
        return self.buffers[buffer].tensor if buffer in self.buffers else ""

    # the tree ---------------------------------------------------------------------------------------------------------

    def flattened(
        self, body: Sequence[TreeNode], loops: tuple[tuple[Axis, TreeLoop | None], ...], names: Mapping[str, Expr],
        when: Expr, path: tuple[int, ...], nodes: tuple[int, ...],
    ) -> None:  # fmt: skip
        for k, node in enumerate(body):
            here = (*path, k)
            if isinstance(node, TreeGuard):
                held = and_(when, node.when.substitute(dict(names)))
                self.flattened(node.body, loops, names, held, here, (*nodes, id(node)))
            elif isinstance(node, TreeLoop):
                axis = self.renamed(node.axis)
                own = {**names, node.axis.name: axis.symbol}
                self.flattened(node.body, (*loops, (axis, node)), own, when, here, (*nodes, id(node)))
            else:
                axes = [(a, self.renamed(a)) for a in node.loops]
                reduce = [(a, self.renamed(a)) for a in node.reduce]
                given = {**names, **{a.name: b.symbol for a, b in (*axes, *reduce)}}
                nest = self.substituted(replace(node, loops=(), reduce=tuple(b for _, b in reduce), kernel=""), given)
                own = tuple((b, None) for _, b in axes)
                self.leaves.append(_Leaf(nest, (*loops, *own), when, here, nodes))

    def renamed(self, a: Axis) -> Axis:
        self.fresh += 1
        return Axis(f"{a.name}.{self.fresh}", a.extent)

    def substituted(self, n: Nest, given: Mapping[str, Expr]) -> Nest:
        """The nest with other loops, and loaded values under names of their own."""
        names = dict(given)
        loads, places = dict[str, LoadedValue](), dict[str, IndirectIndex]()
        left: dict[str, LoadedValue | IndirectIndex] = {**n.loads, **n.places}
        while left:
            ready = [k for k, x in left.items() if not (_used_names(x) & left.keys())]
            if not ready:
                raise NoIndexMeaning("its loaded values use each other")
            for k in ready:
                x = left.pop(k)
                own = self.renamed(Axis(k, x.size if isinstance(x, IndirectIndex) else as_expr(1)))
                if isinstance(x, IndirectIndex):
                    places[own.name], names[k] = x, own.symbol
                else:
                    loads[own.name], names[k] = x, symbol(own.name)
        return replace(n, loads=loads, places=places).substitute(names)

    def supported(self) -> None:
        """One name for each memory, one nest that writes it, and no argument that is written."""
        used = {n for x in self.leaves for w in x.nest.writes for n in (w.buffer, *(r.buffer for r in w.reads))}
        if any(k > 1 for k in Counter(self.home(n) for n in used).values()):
            raise NoIndexMeaning("two buffers share a memory")
        given = {t.name for t in self.program.fusion.inputs}
        ends = given | {t.name for t in self.program.fusion.outputs}
        own = {n for x in self.leaves for _, loop in x.loops if loop is not None for n in loop.private}
        for n in own:
            if self.tensor(n) in ends:
                raise NoIndexMeaning(f"each iteration has a {n} of its own, which is an argument or a result")
        for x in self.leaves:
            if x.nest.unread or x.nest.loose or x.nest.masked:
                raise NoIndexMeaning(x.nest.unread or f"{x.nest.name} is limited by loaded values")
            for w in x.nest.writes:
                if w.mode == "add" or w.buffer in self.writers or self.tensor(w.buffer) in given:
                    raise NoIndexMeaning(f"{w.buffer} is written more than once")
                self.writers[w.buffer] = x
            if any(self.tensor(v.buffer) not in given for v in x.nest.loads.values()):
                raise NoIndexMeaning(f"{x.nest.name} loads what the program computes")

    # reads ------------------------------------------------------------------------------------------------------------

    def inside(self, x: _Leaf) -> None:
        """All that a nest touches in memory whose size is known lies in it, at every size."""
        for w in x.nest.writes:
            if not touches_inside(self.program, w, and_(x.when, w.when)):
                raise NoIndexMeaning(
                    f"whether all that {x.nest.name} touches is in its memory at every size is not proved"
                )

    def composed(self, x: _Leaf) -> Nest:
        """The nest, with its loops, whose reads are of arguments only."""
        n = replace(x.nest, loops=tuple(a for a, _ in x.loops))
        writes = tuple(replace(w, when=simplify(and_(x.when, w.when))) for w in n.writes)
        n = replace(n, writes=())
        out: list[Write] = []
        for w in writes:
            found = list[Read]()
            for r in w.reads:
                n = self.into(x, n, r, w.when, found, 0)
            out.append(replace(w, reads=tuple(dict.fromkeys(found))))
        return replace(n, writes=tuple(out))

    def into(self, x: _Leaf, n: Nest, r: Read, when: Expr, out: list[Read], depth: int) -> Nest:
        """Adds what is read for a read, by a nest at the place of ``x``; the nest with the loops of sums in it."""
        made = self.writers.get(r.buffer)
        if made is None:
            if self.tensor(r.buffer) not in {t.name for t in self.program.fusion.inputs}:
                raise NoIndexMeaning(f"nothing writes {r.buffer}")
            out.append(r)
            return n
        if depth > DEEPEST or len(out) > MOST:
            raise NoIndexMeaning("its reads are of too many nests")
        w = next(w for w in made.nest.writes if w.buffer == r.buffer)
        given = self.point(x, made, w, r, when)
        combined = made.nest.reduce and (n.reduce or n.position is not None)
        if combined or made.nest.position is not None:
            raise NoIndexMeaning(f"{x.nest.name} combines what {made.nest.name} has combined")
        reduce = [(a, self.renamed(a)) for a in made.nest.reduce]
        given |= {a.name: b.symbol for a, b in reduce}
        inner = self.substituted(replace(made.nest, writes=(w,)), given)
        n = replace(
            n, reduce=(*n.reduce, *(b for _, b in reduce)), loads={**n.loads, **inner.loads},
            places={**n.places, **inner.places},
        )  # fmt: skip
        for s in inner.writes[0].reads:
            held = simplify(and_(r.when, s.when))
            n = self.into(x, n, replace(s, when=held), when, out, depth + 1)
        return n

    def point(self, x: _Leaf, made: _Leaf, w: Write, r: Read, when: Expr) -> dict[str, Expr]:
        """The loops of the writer at which it writes what is read, proved to run before; `NoIndexMeaning` else."""
        shared = 0
        while shared < min(len(x.nodes), len(made.nodes)) and x.nodes[shared] == made.nodes[shared]:
            shared += 1
        if made.path[shared] >= x.path[shared]:
            raise NoIndexMeaning(f"{x.nest.name} does not stand behind {made.nest.name}")
        depth = sum(k is not None and id(k) in x.nodes[:shared] for _, k in made.loops)
        own = [a for a, _ in made.loops[depth:]]
        back = inverse(w.index, own)
        if back is None:
            raise NoIndexMeaning(f"{w.index} is not inverted here")
        for k, (a, loop) in enumerate(made.loops):
            if loop is None:
                continue
            if r.buffer in loop.private and k >= depth:
                raise NoIndexMeaning(f"{r.buffer} is another one for {x.nest.name}")
            alone = any(y is not None and r.buffer in y.private for _, y in made.loops[k:depth])
            below = [b for b, _ in made.loops[k:]]
            if not loop.any_order or k >= depth or alone or injective(w.index, below, TRUE):
                continue
            if not self.one_value(made, w, back[0], below[: depth - k]):
                raise NoIndexMeaning(f"iterations of {a.name.split('.')[0]} write one element of {r.buffer}")
        same = {a.name: b.symbol for (a, _), (b, _) in zip(made.loops[:depth], x.loops[:depth], strict=True)}
        at = {**same, "a": r.index}
        given = {**same, **{name: simplify(v.substitute(at)) for name, v in back[0].items()}}
        runs = and_(back[1].substitute(at), made.when.substitute(given), w.when.substitute(given))
        facts = (and_(when, r.when), *self.program.facts)
        if simplify(runs, facts=facts) is not TRUE:
            raise NoIndexMeaning(f"whether {made.nest.name} writes all that {x.nest.name} reads is not proved")
        return given

    def one_value(self, made: _Leaf, w: Write, point: Mapping[str, Expr], shared: Sequence[Axis]) -> bool:
        """Whether iterations that write one element write one value: what it is made of does not depend on them."""
        n = self.composed(made)
        w = next(x for x in n.writes if x.buffer == w.buffer)
        parts = [simplify(y.substitute(dict(point))) for r in w.reads for y in (r.index, r.when)]
        return not n.loads and not any(a.name in y.names for a in shared for y in parts)


def _used_names(x: LoadedValue | IndirectIndex) -> frozenset[str]:
    if isinstance(x, IndirectIndex):
        return x.value.names | x.size.names
    return x.index.names if not x.text else frozenset()


def prove_tree(p: NeutralProgram, budget: int) -> tuple[CheckRow, ...]:
    """Rows of a program that is right at every size; raises `NoIndexMeaning` with what is not proved."""
    if "a" in p.symbols:  # the name of an address
        raise NoIndexMeaning("a symbol is called a")
    return _Proof(p, budget).rows()
