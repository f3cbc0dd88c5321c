# %% [markdown]
# # Rotation and its cycle
#
# Swap the two halves of a vector and add the vector itself: the heart of rotary position embedding, four lines of
# code. It shows why a compiler that looks for *the* index of an axis goes wrong on it, what the mistake looks
# like as a picture, and how idgraph finds the right index, emits a kernel and checks it.
#
# One idea a step: the fusion, the cycle, what a search would answer, the index graph, the index maps, the kernel, the
# check, and the one schedule that cannot work.

# %%
import dataclasses
from collections import deque

import idgraph as ig
from idgraph import viz

# %% [markdown]
# ## The fusion
#
# `t3` is `t0` with its halves swapped, `t4` adds the two. Nothing is computed yet: the program is recorded, with the
# line that wrote each operation. (In a notebook a fusion shows itself as a picture; `print(f)` gives its text.)

# %%
N = 64
f = ig.Fusion("rotation")
t0 = f.input("t0", shape=(N,), dtype="float32")
t1 = t0[: N // 2]
t2 = t0[N // 2 :]
t3 = ig.cat([t2, t1], dim=0)
t4 = t0 + t3
f.output(t4)
f

# %% [markdown]
# ## One loop for everything
#
# We want one kernel with one loop over the 64 elements of `t4`, and no temporary in memory. So the slices get `t4`'s
# loop too: their axes of 32 elements are *resized* to 64 (their loop runs over elements that they do not have; a
# predicate will keep those away), and everything is inlined.

# %%
ig.schedule.like(f, t4)
ig.schedule.inline_most(f)
for t in (t1, t2, t3, t4):
    print(t, "   loops", *t.loop, "   inlined at", t.inline_position)

# %% [markdown]
# ## Which axes are the same?
#
# The *exact graph* answers as every such system does: an operation reads its operand's axis at the coordinate of its
# own axis, so the two are the same. `t1`'s input axis is `t0`'s axis; so is `t2`'s; the add says that `t0`'s axis is
# `t4`'s and `t3`'s is `t4`'s. One group of axes comes out of it, and two resizes lead out of that group *and back into
# it*.

# %%
m = ig.IdModel(f)
m.exact

# %% [markdown]
# Follow the red arrows: start at coordinate `c` of the blue group, cut off the right half, put 32 elements in front,
# and arrive at the blue group again, at coordinate `c + 32`. But one axis cannot be at two coordinates at once.
#
# The cycle is an object. It knows its kind, the shift, the operation that closes it and the lines that made it. There
# are two, one for each half:

# %%
for cycle in m.exact.cycles():
    print(cycle, end="\n\n")

# %%
m.exact.cycles()[0]

# %% [markdown]
# Why is `t0`'s axis the same as `t3`'s, of all things? Every mapping remembers its reason, and the chain of reasons can
# be marked in the picture: it is the add.

# %%
why = m.exact.explain(t0.logical[0], t3.logical[0])
print(why)

# %%
viz.picture(m.exact, highlight=why)

# %% [markdown]
# ## One extent, or one coordinate?
#
# Two questions were mixed up in that answer. `t0`'s axis and `t3`'s have one *extent*: the add makes sure of that, and
# it is all that a launch size needs to know. But they do not have one *coordinate*. The *extents* graph and the
# *aligned* graph answer the two questions apart: aligned is the exact graph without the unions that close an
# index-changing cycle. Each such union is an *align edge*, owned by the operation that made it.

# %%
print("one extent:", m.extents.mapped(t0.logical[0], t3.logical[0]))
print("one coordinate:", m.aligned.mapped(t0.logical[0], t3.logical[0]), "  and of t0 and t4:", end=" ")
print(m.aligned.mapped(t0.logical[0], t4.logical[0]))
print(m.aligned.explain(t0.logical[0], t3.logical[0]))

# %%
m.aligned

# %% [markdown]
# No way leads back: from `t0`'s group through either half to `t3`'s, and there it ends. The edge that was left out says
# how far the two ends are apart: the index differs by -32 on one half and by +32 on the other.

# %%
for edge in m.aligned.align_edges:
    print(edge.left, "and", edge.right, "by", edge.operation.op)

# %% [markdown]
# ## What a search over this graph answers
#
# To index `t0` as `t1` reads it, one starts from `t1`'s loop and searches the graph for `t0`'s axis, composing the maps
# on the way. Here is that search, breadth first, in a few lines. It need not go anywhere: the loop *is* in `t0`'s
# group.


# %%
def steps_between(graph, start, goal):
    """Axis expressions on a shortest way from one axis to another, as any breadth-first indexer finds them."""
    queue = deque([(graph.group(start), [])])
    seen = {graph.group(start)}
    while queue:
        group, way = queue.popleft()
        if group is graph.group(goal):
            return way
        for x in (*graph.definitions(group), *graph.uses(group)):
            for after in (*x.inputs, *x.outputs):
                if after not in seen:
                    seen.add(after)
                    queue.append((after, [*way, x]))
    return None


print("steps from t1's loop to t0's axis:", steps_between(m.exact, t1.loop[0], t0.logical[0]))

# %% [markdown]
# No step at all, so the index would be the loop variable itself: `t1` would read `t0[i]`. The truth is `t0[i - 32]`:
# the element that ends up at `i` in the rotated vector comes from 32 places further left.
#
# ## The index graph
#
# idgraph asks a sharper question. Its index graph has one node for each *(axis, operation)*: `t0`'s axis as `t1`'s
# slice reads it is one node, as the add reads it another. Inside an operation, axes are joined as before. From one
# operation to the next only a loop that both of them share leads across: the boxes of one colour.

# %%
m.index

# %% [markdown]
# Now `t0.I0` stands there three times: in `t1`'s frame at `i0 - 32`, in `t2`'s at `i0 + 32`, in the add's at `i0`. Each
# frame is a small graph without a way around, and the search is right again:

# %%
for e in (t1.definition, t2.definition, t4.definition):
    print(e.op, "->", e.output.name, "reads t0 at", m.access(e, t0).coordinates[0])
print("the same place?", m.index.mapped((t0.logical[0], t1.definition), (t0.logical[0], t4.definition)))
print("cycles that change an index:", [c for c in m.index.cycles() if c.changes_index])

# %% [markdown]
# ## The index maps
#
# For each operation: every tensor it touches, the coordinates and the address in its loop variables, and when. The
# predicates are the other half of the truth: `t1` has elements only where `i0 >= 32`.

# %%
for e in f.exprs:
    print(m.index_map(e), end="\n\n")

# %% [markdown]
# ## The kernel
#
# The same plan is printed as plain Python, NumPy, numba for the CPU and numba.cuda. Plain Python reads like the
# mathematics:

# %%
program = ig.emit(f, target="python")
print(program.source)

# %% [markdown]
# ## The check
#
# Validation shares no code with what it judges. It applies each operation to element *numbers* to learn which element
# every loop point must touch, and compares every address; then it runs the kernel on random data and compares every
# value with the definition in float64.

# %%
report = ig.validate(f, target="python", exhaustive=True, seed=0)
print("ok:", report.ok, "  points checked:", report.points)

# %% [markdown]
# And if the index were the one that the search over the exact graph gave? We can ask: here is a model that answers `i0`
# for `t1`'s read of `t0` and changes nothing else. The checker refuses it and names the first point where it is
# wrong.


# %%
class SearchedModel(ig.IdModel):
    """The answer of an indexer on the exact graph for t1."""

    def read(self, e, operand):
        right = super().read(e, operand)
        if e is not t1.definition:
            return right
        i0 = right.loops[0].symbol
        return dataclasses.replace(right, logical=(i0,), allocation=(i0,), address=i0)


refuted = ig.validate(f, target="python", model=SearchedModel(f))
print("ok:", refuted.ok)
print(refuted.counterexample)

# %% [markdown]
# ## The schedule that cannot work
#
# `t0` is in memory, so each of its readers may read it elsewhere. Let it be computed instead, `x = exp(a)`, and inlined
# into *one* loop together with both slices and the add: the loop would need `x[i - 32]`, `x[i + 32]` and `x[i]` in the
# same turn, but computes one element a turn. That is the test of an illegal inlining, and it is refused by name:

# %%
g = ig.Fusion("computed")
a = g.input("a", shape=(N,))
x = ig.exp(a, name="x")
low, high = x[: N // 2], x[N // 2 :]
rotated = ig.cat([high, low], dim=0)
y = g.output(x + rotated)
ig.schedule.resize_to_inputs(g, rotated.definition)
for t in (low, high, rotated, x):
    t.inline(1)
try:
    ig.IdModel(g).verify()
except ig.ScheduleError as error:
    print(error)

# %% [markdown]
# The way out stands in the hint: a private copy of `x` for each use. `exp` is computed three times, in registers, and
# the loop nest is legal: each copy has a frame of its own in the index graph.

# %%
ig.schedule.recompute(x, low.definition, name="x_low")
ig.schedule.recompute(x, high.definition, name="x_high")
ig.schedule.like(g, y)
ig.schedule.inline_most(g)
fixed = ig.IdModel(g)
for name in ("x", "x_low", "x_high"):
    e = g[name].definition
    print(name, "reads a at", fixed.access(e, a).coordinates[0], "   inlined at", g[name].inline_position)
checked = ig.validate(g, target="python")
print("ok:", checked.ok, "  points checked:", checked.points)

# %%
fixed.index

# %% [markdown]
# ## What to take away
#
# - A coordinate is what a path of axis expressions does to the loop variables *of one operation*. Two uses share a
#   coordinate only if they share that path.
# - A graph that forgets which operation reads an axis has a cycle as soon as a resize meets a residual; idgraph reports
#   it with the lines that made it and does not search in it.
# - The index graph has no way around it; where a schedule would close one, the schedule is refused.
