# %% [markdown]
# # Graphs: which axes are the same
#
# A graph here is a partition of axes with a reason for every union. There are several because "the same" has several
# meanings: the same coordinate (exact), the same up to axes of one element (almost exact), the same loop if a
# broadcast resolves to it (broadcast, permissive), the same real loop (loop), the same coordinate *as one operation
# uses it* (index).

# %%
import networkx as nx

import idgraph as ig
from idgraph import viz

# %% [markdown]
# ## Exact
#
# An operation reads its operand's axis at the coordinate of its own axis, so the two are one. A broadcast and what it
# resolves to are not: the one stays at coordinate 0 while the other runs.

# %%
f = ig.Fusion("bias")
x = f.input("x", shape=(6, 8))
bias = f.input("bias", shape=(8,))
row = ig.unsqueeze(bias, 0, name="row")
y = f.output(x + row)
m = ig.IdModel(f)
m.exact

# %% [markdown]
# Every mapping has a shortest chain of facts behind it; where there is none, the answer says where the two part.

# %%
print(m.exact.explain(bias.logical[0], y.logical[1]))
print()
print(m.exact.explain(row.logical[0], y.logical[0]))

# %% [markdown]
# The broadcast graph joins them too:

# %%
print(m.exact.mapped(row.logical[0], y.logical[0]), m.broadcast.mapped(row.logical[0], y.logical[0]))
print(m.broadcast.explain(row.logical[0], y.logical[0]))

# %% [markdown]
# ## Congruence
#
# Equal inputs to equal expressions have equal outputs, and the other way round. `x` is scheduled by merge and split,
# `y` in the same way by hand: nobody maps the two inner axes, congruence does. Attributes are compared by proof: here
# one factor is `2*n`, the other `n + n`.

# %%
g = ig.Fusion("congruence")
n = g.symbol("n", min=1)
a = g.input("a", shape=(6, n * 4))
b = ig.exp(a, name="b")
c = g.output(ig.sin(b, name="c"))
for t, factor in ((b, 2 * n), (c, n + n)):
    t.merge(0)
    t.split(0, factor)
exact = ig.IdModel(g).exact
print(b.loop, c.loop, [exact.mapped(p, q) for p, q in zip(b.loop, c.loop)])
print(exact.explain(b.loop[1], c.loop[1]))

# %% [markdown]
# ## Almost exact
#
# Merging with an axis of one element, or splitting by one, changes nothing but the spelling. The almost exact graph
# looks through it, and through reshapes there and back.

# %%
g = ig.Fusion("squeezing")
a = g.input("a", shape=(24,))
b = ig.reshape(ig.reshape(a, (4, 6)), (24,))
c = g.output(ig.exp(b))
c.split(0, 24)
model = ig.IdModel(g)
for pair in ((a.logical[0], c.logical[0]), (c.loop[1], c.logical[0])):
    print(*pair, "exact:", model.exact.mapped(*pair), "  almost exact:", model.almost_exact.mapped(*pair))

# %% [markdown]
# ## Permissive: through merges with broadcasts
#
# `y` and `row` merge both their axes. That `row`'s merged loop of 8 can become `y`'s loop of 48 follows from the
# broadcast graph by congruence. `bias` has no broadcast axis to merge: the almost exact graph sees through a merge
# with one element, the broadcast graph does not. The permissive graph *forwards* `bias`'s axis through that merge,
# and so has all of it.

# %%
for t in (row, y):
    t.merge(0)
m = ig.IdModel(f)
print("bias", *bias.loop, "  row", *row.loop, "  y", *y.loop)
for name in ("exact", "almost_exact", "broadcast", "permissive"):
    graph = getattr(m, name)
    print(f"{name:13}", graph.mapped(row.loop[0], y.loop[0]), graph.mapped(bias.loop[0], row.loop[0]))

# %% [markdown]
# ## Loop, and promotion
#
# Inlining `row` makes it one loop. Which extent has it? The loop's *promotion* is the axis that gives it: `y`'s 48.
# So `row` is computed in a loop of 48, six times each element; its index map says so.

# %%
row.inline(1)
m = ig.IdModel(f)
print("one loop:", m.loop.mapped(row.loop[0], y.loop[0]), "  promoted to", m.promotion(row.loop[0]))
print(m.index_map(row.definition))

# %% [markdown]
# ## A tensor mapped onto itself
#
# `t + t.T` says that both axes of `t` are one. That is reported, with both axes and the operation; index maps do not
# care, because the index graph has a copy of `t`'s axes for each use.

# %%
g = ig.Fusion("symmetric")
t = g.input("t", shape=(8, 8))
s = g.output(t + t.T)
m = ig.IdModel(g)
tensor, axis, other, reason = m.exact.self_mappings[0]
print(tensor, ":", axis, "is", other, "because")
print(reason)
print(m.index_map(s.definition))

# %% [markdown]
# ## The index graph
#
# Its keys are (axis, operation). Two nodes share a group only if they have the same coordinate at every point of the
# loops; where two uses differ it can say where they part.

# %%
g = ig.Fusion("window")
t0 = g.input("t0", shape=(64,))
d = g.output(ig.sub(t0[1:], t0[:-1], name="d"))
ig.schedule.inline_most(g)
m = ig.IdModel(g)
left, right = d.definition.inputs
node = {t.name: (t0.logical[0], t.definition) for t in (left, right)}
print("one coordinate?", m.index.mapped(*node.values()))
print(m.index.explain(*node.values()))
m.index

# %% [markdown]
# ## As networkx, as DOT
#
# Every graph is an ordinary networkx graph when that is what you need, with its attributes kept, and a DOT text with
# names that do not change from run to run.

# %%
graph = m.exact.to_networkx()
print(graph, "  strongly connected components:", nx.number_strongly_connected_components(graph))
for node, data in list(graph.nodes(data=True))[:2]:
    print(node, data)
print(m.exact.to_dot().splitlines()[0])

# %% [markdown]
# A graph of axes can also have a way round. `t0` shifted by one and added to itself is the smallest one: the add says
# that the padded axis is the axis, the pad says that it is one further.

# %%
g = ig.Fusion("shifted")
t0 = g.input("t0", shape=(64,))
y = g.output(t0 + ig.pad(t0, (1, -1)))
exact = ig.IdModel(g).exact
print(exact.cycles()[0])
viz.picture(exact, highlight=exact.cycles()[0])

# %% [markdown]
# `03_resize_cycle` is about exactly this.
