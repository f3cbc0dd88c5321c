# %% [markdown]
# # The core, from scratch
#
# The core of idgraph, rebuilt in under 200 lines with nothing but Python (sympy only prints): axes, three axis
# expressions, disjoint sets with congruence, the exact graph, its cycle, the index graph keyed by *(axis,
# operation)*, and index maps from it. At the end a brute-force check says who is right. Nothing here imports idgraph:
# read it once and the library holds no secrets; the library adds many more operations, schedules, proofs and kernels
# to the same idea.

# %%
import itertools
from dataclasses import dataclass, field

import sympy

# %% [markdown]
# ## Axes and axis expressions
#
# An axis is a thing of its own: two axes of extent 32 are two things until a graph says otherwise, so axes compare by
# identity (`eq=False`). An axis expression makes axes from axes. Each can be read in both directions: *forward*, from
# the coordinates of its inputs to those of its outputs, and *backward*. The formulas only use `+ - * // %`, so they
# take numbers and symbols alike.


# %%
@dataclass(eq=False)
class Axis:
    name: str
    extent: int

    def __repr__(self):
        return f"{self.name}[{self.extent}]"


@dataclass(eq=False)
class Split:  # axis -> outer, inner
    inputs: tuple
    outputs: tuple
    factor: int

    def forward(self, x):
        return x // self.factor, x % self.factor

    def backward(self, outer, inner):
        return (outer * self.factor + inner,)


@dataclass(eq=False)
class Merge:  # outer, inner -> axis
    inputs: tuple
    outputs: tuple

    def forward(self, outer, inner):
        return (outer * self.inputs[1].extent + inner,)

    def backward(self, x):
        return x // self.inputs[1].extent, x % self.inputs[1].extent


@dataclass(eq=False)
class Resize:  # axis -> axis with `left` elements put in front and `right` behind; negative cuts
    inputs: tuple
    outputs: tuple
    left: int
    right: int

    def forward(self, x):
        return (x + self.left,)

    def backward(self, x):
        return (x - self.left,)


def attributes(x):
    """The facts that must be equal, beside the inputs, for two axis expressions to have equal outputs."""
    return (type(x), *(getattr(x, name) for name in ("factor", "left", "right") if hasattr(x, name)))


# %% [markdown]
# ## Tensors and operations
#
# A tensor has *root* axes (as its producer sees it), *logical* axes (as its consumers see it) and *loop* axes (as it
# is scheduled); axis expressions lie between them. An operation writes one tensor and reads others; `reads` pairs
# each operand's logical axes with the output's root axes that read them at the same coordinate.


# %%
@dataclass(eq=False)
class Tensor:
    name: str
    logical: list
    root: list = None
    loop: list = None
    exprs: list = field(default_factory=list)  # every axis expression between root, logical and loop

    def __post_init__(self):
        self.root, self.loop = self.root or list(self.logical), self.loop or list(self.logical)

    def resize_loop(self, left, right):
        (axis,) = self.loop
        wide = Axis(f"{self.name}.loop", axis.extent + left + right)
        self.exprs.append(Resize((axis,), (wide,), left, right))
        self.loop = [wide]


@dataclass(eq=False)
class Operation:
    name: str
    output: Tensor
    reads: list  # (operand, [(operand's logical axis, output's root axis), ...])

    def __repr__(self):
        return self.name


def cut(source, name, start, stop):
    """source[start:stop] of a vector."""
    root, out = Axis(f"{name}.root", source.logical[0].extent), Axis(name, stop - start)
    resize = Resize((root,), (out,), -start, stop - source.logical[0].extent)
    tensor = Tensor(name, [out], [root], exprs=[resize])
    return Operation(f"slice->{name}", tensor, [(source, [(source.logical[0], root)])])


def concatenate(parts, name):
    """cat of vectors: each part has a root axis of its own, padded into the joined axis."""
    total = sum(part.logical[0].extent for part in parts)
    out, before, exprs, reads = Axis(name, total), 0, [], []
    for part in parts:
        root = Axis(f"{name}.{part.name}", part.logical[0].extent)
        exprs.append(Resize((root,), (out,), before, total - before - root.extent))
        reads.append((part, [(part.logical[0], root)]))
        before += root.extent
    return Operation(f"cat->{name}", Tensor(name, [out], [x.inputs[0] for x in exprs], exprs=exprs), reads)


def plus(a, b, name):
    """Pointwise sum."""
    out = Axis(name, a.logical[0].extent)
    return Operation(f"add->{name}", Tensor(name, [out]), [(t, [(t.logical[0], out)]) for t in (a, b)])


# %% [markdown]
# The four lines that matter: rotate by half, and add the vector itself.

# %%
N = 64
t0 = Tensor("t0", [Axis("t0", N)])
s1 = cut(t0, "t1", 0, N // 2)
s2 = cut(t0, "t2", N // 2, N)
c3 = concatenate([s2.output, s1.output], "t3")
a4 = plus(t0, c3.output, "t4")
operations = [s1, s2, c3, a4]

# %% [markdown]
# ## Disjoint sets with congruence
#
# `union` says that two keys are the same. *Congruence* draws the conclusion: two axis expressions of one form on
# equal inputs have equal outputs (forward); on equal outputs, equal inputs (backward; of a merge only if one input
# agrees, which this tutorial leaves out). One worklist until nothing changes.


# %%
class Graph:
    def __init__(self):
        self.parent, self.exprs = {}, []

    def find(self, key):
        self.parent.setdefault(key, key)
        while self.parent[key] is not key:
            key = self.parent[key]
        return key

    def union(self, a, b):
        a, b = self.find(a), self.find(b)
        self.parent[b] = a
        return a is not b

    def add(self, inputs, outputs, x):
        """An axis expression between keys."""
        self.exprs.append((inputs, outputs, x))

    def close(self):
        changed = True
        while changed:
            changed = False
            for side in (0, 1):  # equal inputs, then equal outputs
                seen = {}
                for entry in self.exprs:
                    if side and isinstance(entry[2], Merge):
                        continue
                    signature = (attributes(entry[2]), *(self.find(key) for key in entry[side]))
                    first = seen.setdefault(signature, entry)
                    joined = [self.union(a, b) for a, b in zip(first[1 - side], entry[1 - side])]
                    changed |= any(joined)
        return self

    def groups(self):
        keys = sorted(self.parent, key=str)
        return [list(g) for _, g in itertools.groupby(sorted(keys, key=lambda k: str(self.find(k))), key=self.find)]


# %% [markdown]
# ## The exact graph, and its cycle
#
# Producer's logical axis with consumer's root axis, for every operation. That is what every such system starts from.

# %%
exact = Graph()
for op in operations:
    for x in op.output.exprs:
        exact.add(x.inputs, x.outputs, x)
    for _, pairs in op.reads:
        for producer, consumer in pairs:
            exact.union(producer, consumer)
for group in exact.close().groups():
    print(group)

# %% [markdown]
# `t0`, both slices' roots, the cat's result and the sum are *one* group. Start there, go forward through `t1`'s
# resize and forward through the cat's, and you are back: at another coordinate.


# %%
def cycles(graph):
    """Ways of two axis expressions from a group back to itself, and what they do to a coordinate."""
    for (ins, mid, x), (mid2, outs, y) in itertools.combinations(graph.exprs, 2):
        if graph.find(mid[0]) is graph.find(mid2[0]) and graph.find(ins[0]) is graph.find(outs[0]):
            i = sympy.Symbol("i")
            yield ins[0], mid[0], outs[0], y.forward(*x.forward(i))[0] - i


for start, middle, end, shift in cycles(exact):
    print(f"{start} -> {middle} -> {end}: once around adds {shift}")

# %% [markdown]
# ## The index graph
#
# A coordinate belongs to an axis *as one operation uses it*. So the keys are pairs. Inside an operation, its output's
# axis expressions and its accesses join as before, all under the key of that operation. Between two operations only a
# loop that they really share leads across: here all four operations sit in one loop over `t4`'s 64 elements. The
# slices have 32; their loops are resized to 64, and run over elements that do not exist (a predicate keeps those
# away).

# %%
s1.output.resize_loop(N // 2, 0)  # t1 ends up in the right half of t3
s2.output.resize_loop(0, N // 2)


def index_graph(operations, inlined):
    graph = Graph()
    for op in operations:
        for x in op.output.exprs:
            graph.add(tuple((a, op) for a in x.inputs), tuple((a, op) for a in x.outputs), x)
        for _, pairs in op.reads:  # access
            for producer, consumer in pairs:
                graph.union((producer, op), (consumer, op))
    for tensor, definition, reader in inlined:  # the reader uses the tensor in the tensor's own loop
        for axis, loop in zip(tensor.loop, reader.output.loop):
            graph.union((axis, definition), (loop, reader))
    return graph.close()


inlined = [(s1.output, s1, c3), (s2.output, s2, c3), (c3.output, c3, a4)]
index = index_graph(operations, inlined)
for group in index.groups():
    print(*(f"{axis}@{op}" for axis, op in group), sep="  ")

# %% [markdown]
# `t0@slice->t1`, `t0@slice->t2` and `t0@add->t4` are three nodes now, in three groups. `(t1's loop)@slice->t1` is in
# the group of the sum: that loop is shared.
#
# ## Coordinates
#
# Start from the loop variable of an operation, follow axis expressions whose one side is known, under that
# operation's key only, and read off the coordinate of the operand's axis.


# %%
def coordinates(graph, op, loop_values):
    """Coordinate of each group that `op` reaches from its loops."""
    known = {graph.find((axis, op)): value for axis, value in zip(op.output.loop, loop_values)}
    for _ in op.output.exprs:  # each round settles at least one expression
        for x in op.output.exprs:
            for here, there, rule in ((x.outputs, x.inputs, x.backward), (x.inputs, x.outputs, x.forward)):
                values = [known.get(graph.find((a, op))) for a in here]
                if None not in values:
                    for axis, value in zip(there, rule(*values)):
                        known.setdefault(graph.find((axis, op)), value)
    return known


def reads_at(graph, op, operand, *loop_values):
    return coordinates(graph, op, loop_values)[graph.find((operand.logical[0], op))]


i = sympy.Symbol("i")
for op in (s1, s2, a4):
    print(f"{op} reads t0 at {reads_at(index, op, t0, i)}")

# %% [markdown]
# A search on the exact graph finds `t1`'s loop *in* `t0`'s group (closing the exact graph over the resized loops
# shows it) and answers `i` for all three.

# %%
for op in (s1, s2):
    for x in op.output.exprs[-1:]:
        exact.add(x.inputs, x.outputs, x)
exact.close()
print("t1's loop and t0's axis, one group?", exact.find(s1.output.loop[0]) is exact.find(t0.logical[0]))

# %% [markdown]
# ## Who is right?
#
# No graph is needed to know: let `t0` hold the numbers of its own elements and do what the four lines say. Element
# `i` of each tensor then *is* the element of `t0` that it came from.

# %%
numbers = list(range(N))
low, high = numbers[: N // 2], numbers[N // 2 :]
came_from = {s1: {k + N // 2: v for k, v in enumerate(low)}, s2: dict(enumerate(high)), a4: dict(enumerate(numbers))}
for op, truth in came_from.items():
    by_index_graph = all(reads_at(index, op, t0, k) == v for k, v in truth.items())
    by_search = all(k == v for k, v in truth.items())
    print(
        f"{op}: index graph right at {len(truth)} points: {by_index_graph};  search over the exact graph: {by_search}"
    )

# %% [markdown]
# ## What is missing
#
# - **Predicates**: `t1` exists only where `i >= 32`; an index map without its predicate is half an answer.
# - **Inlining and promotion**: partial positions, broadcasts in loops of another tensor's extent.
# - **Refusals**: with a *computed* `t0` inlined into the loop, the index graph itself would close a shift cycle; that
#   is how an illegal schedule is found (`03_resize_cycle`).
# - Reasons for every union, simplification with proofs, buffers, kernels, and the checks of all of it.
#
# `01_iterdomains` starts with the real thing.
