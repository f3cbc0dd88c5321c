"""A program's tree proved without counting, at any size: what each result is made of, followed back to arguments.

`idgraph.check.symbolic_flow` says what an element of a result holds when all has run, in terms of arguments; that, as
one nest over the elements of each result, is decided against what the program means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.check.buffer_contents import touches_inside
from idgraph.check.decide import decide
from idgraph.check.enumeration import sample_sizes, uses
from idgraph.check.program import (
    ZERO,
    Axis,
    BufferLayout,
    IndirectIndex,
    LoadedValue,
    Nest,
    NeutralProgram,
    TreeGuard,
    TreeLoop,
    TreeNode,
    Write,
    tree_of,
)
from idgraph.check.report import CheckRow
from idgraph.check.semantics import NoIndexMeaning
from idgraph.check.statement_values import computed
from idgraph.check.symbolic_flow import Statement, SymbolicFlow
from idgraph.check.tree_values import ElementValues, ValueNumbers
from idgraph.ir import Tensor


@dataclass(slots=True)
class _Proof:
    program: NeutralProgram
    budget: int
    buffers: dict[str, BufferLayout] = field(default_factory=dict[str, BufferLayout])
    statements: list[Statement] = field(default_factory=list[Statement])
    fresh: int = 0

    def rows(self) -> tuple[CheckRow, ...]:
        p = self.program
        self.buffers = {b.name: b for b in p.buffers}
        self.flattened(tree_of(p), (), {}, TRUE, ())
        arguments = {t.name for t in p.fusion.inputs}
        given = [b for b in p.buffers if b.tensor in arguments]
        self.supported({b.home for b in given})
        homes = {n: (b.home, b.base) for n, b in self.buffers.items()} | dict(p.memory)
        flow = SymbolicFlow(self.statements, {b.home: (b.name, b.base) for b in given}, homes, p.facts)
        for s in self.statements:
            if not touches_inside(p, s.write, s.when):
                raise NoIndexMeaning(
                    f"whether all that {s.nest.name} touches is in its memory at every size is not proved"
                )
        if not computed(p) and any(e.op == "iota" for e in p.fusion.exprs):
            for name in (ElementValues(p, sizes, ValueNumbers()).undistinguished() for sizes in sample_sizes(p)):
                if name:
                    raise NoIndexMeaning(f"elements of {name}, made of positions, differ in their `value`s only")
        made = tuple(self.final(flow, t) for t in dict.fromkeys(p.fusion.outputs) if t.name not in arguments)
        for s in self.statements:
            flow.of(s)
        why = flow.race()
        if why:
            raise NoIndexMeaning(why)
        results = tuple(b for _, b in made)
        nests = tuple(n for n, _ in made)
        order = tuple(n.name for n in nests)
        left = replace(p, nests=nests, body=(), buffers=(*given, *results), order=order, memory={}, sizes={})
        found = decide(left, budget=self.budget).rows
        bad = next((r for r in found if r.verdict not in ("proved", "enumerated")), None)
        if bad is not None:
            raise NoIndexMeaning(bad.because or "its formulas are not decided")
        because = "what each read sees, at every size, is what the result means"
        wrote = dict.fromkeys((s.nest.name, s.write.buffer) for s in self.statements)
        return (*(replace(r, node=f"{r.node} at the end") for r in found), *(
            CheckRow(name, buffer, "proved", "write", because, graph=p.name) for name, buffer in wrote
        ))  # fmt: skip

    def final(self, flow: SymbolicFlow, t: Tensor) -> tuple[Nest, BufferLayout]:
        """The elements that a result holds when all has run, as one nest over its elements, and the buffer of that."""
        b = next((b for b in self.program.buffers if b.tensor == t.name), None)
        if b is None:
            raise NoIndexMeaning(f"nothing writes {t.name}, a result")
        axes = tuple(Axis(f"{t.name}.{k}", as_expr(n)) for k, n in enumerate(t.shape))
        at = simplify(b.offset + sum((a.symbol * s for a, s in zip(axes, b.strides, strict=True)), ZERO))
        write = Write(b.name, at, ())
        end = Statement(Nest(t.name, axes, ()), write, tuple((a, None) for a in axes), TRUE, (1 << 60,), b.home, at)
        made = flow.content(end, b.home, at, TRUE)
        nest = Nest(
            t.name, axes, (replace(write, reads=made.reads),), made.reduce, loads=made.loads, places=made.places
        )  # fmt: skip
        return nest, replace(b, storage=f"{t.name} at the end", base=ZERO, after=t.name, over="", copy=False)

    def home(self, name: str) -> str:
        return self.place(name)[0]

    def place(self, name: str) -> tuple[str, Expr]:
        b = self.buffers.get(name)
        return (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))

    # the tree ---------------------------------------------------------------------------------------------------------

    def flattened(
        self, body: Sequence[TreeNode], loops: tuple[tuple[Axis, TreeLoop | None], ...], names: Mapping[str, Expr],
        when: Expr, path: tuple[int, ...],
    ) -> None:  # fmt: skip
        for k, node in enumerate(body):
            here = (*path, k)
            if isinstance(node, TreeGuard):
                held = and_(when, node.when.substitute(dict(names)))
                self.flattened(node.body, loops, names, held, here)
            elif isinstance(node, TreeLoop):
                axis = self.renamed(node.axis)
                own = {**names, node.axis.name: axis.symbol}
                self.flattened(node.body, (*loops, (axis, node)), own, when, here)
            else:
                axes = [(a, self.renamed(a)) for a in node.loops]
                reduce = [(a, self.renamed(a)) for a in node.reduce]
                given = {**names, **{a.name: b.symbol for a, b in (*axes, *reduce)}}
                nest = self.substituted(replace(node, loops=(), reduce=tuple(b for _, b in reduce), kernel=""), given)
                every = (*loops, *((b, None) for _, b in axes))
                for j, w in enumerate(nest.writes):
                    home, base = self.place(w.buffer)
                    own_at = [
                        n + 1 for n, (_, loop) in enumerate(every) if loop is not None and w.buffer in loop.private
                    ]
                    self.statements.append(
                        Statement(
                            nest, w, every, and_(when, w.when), (*here, j), home, simplify(w.index + base),
                            max(own_at, default=0),
                        )
                    )  # fmt: skip

    def renamed(self, a: Axis) -> Axis:
        self.fresh += 1
        return Axis(f"{a.name}.{self.fresh}", a.extent)

    def substituted(self, n: Nest, given: Mapping[str, Expr]) -> Nest:
        """The nest with other loops, and loaded values under names of their own."""
        names = dict(given)
        loads, places = dict[str, LoadedValue](), dict[str, IndirectIndex]()
        left: dict[str, LoadedValue | IndirectIndex] = {**n.loads, **n.places}
        while left:
            ready = [k for k, x in left.items() if not (uses(x) & left.keys())]
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

    def supported(self, given: set[str]) -> None:
        """Reads of memory that an iteration has of its own stay in it, and what is loaded is never written."""
        p = self.program
        ends = given | {b.home for b in p.buffers if b.tensor in {t.name for t in p.fusion.outputs}}
        written = {s.home for s in self.statements}
        own = {n: loop for s in self.statements for _, loop in s.loops if loop is not None for n in loop.private}
        sharing = [n for n in own if self.home(n) in ends or self.place(n) != (n, ZERO)]
        if sharing:
            raise NoIndexMeaning(f"each iteration has a {sharing[0]} of its own, which shares a memory")
        for s in self.statements:
            n = s.nest
            if n.unread or n.loose or n.masked or n.position is not None:
                raise NoIndexMeaning(n.unread or f"{n.name} is limited by loaded values")
            if (s.address.names | s.when.names) & {*n.loads, *n.places}:
                raise NoIndexMeaning(f"where {n.name} writes depends on loaded values")
            if s.address.names & {a.name for a in n.reduce}:
                raise NoIndexMeaning(f"the element that {n.name} writes depends on its reduced loops")
            if any(
                self.home(v.buffer) in written or self.home(v.buffer) not in given
                for v in n.loads.values()
                if not v.text
            ):
                raise NoIndexMeaning(f"{n.name} loads what the program computes")
            if any(self.home(r.buffer) in given and self.buffers.get(r.buffer) is None for r in s.write.reads):
                raise NoIndexMeaning(f"{n.name} reads an argument under another name")
            for name in {s.write.buffer, *(r.buffer for r in s.write.reads)} & own.keys():
                if not any(loop is own[name] for _, loop in s.loops):
                    raise NoIndexMeaning(f"{name} is another one for {n.name}")


def prove_tree(p: NeutralProgram, budget: int) -> tuple[CheckRow, ...]:
    """Rows of a program that is right at every size; raises `NoIndexMeaning` with what is not proved."""
    return _Proof(p, budget).rows()
