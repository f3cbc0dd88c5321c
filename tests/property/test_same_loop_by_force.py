"""Which loops a tensor and its reader share, against plain integers: element by element, with no code of the library.

Both sides are scheduled by steps that keep every coordinate (there and back, the same pieces told another way), or by
one that moves some. An inlining must be accepted exactly where each element that is read has the reader's loop
coordinates, however long the loops are, and what is accepted must be right at every address and value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

from hypothesis import event, given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.ir import (
    DomainExpr,
    IterDomain,
    Mapped,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from tests.property.budget import examples

Known = dict[IterDomain, int]


def n_of(d: IterDomain) -> int:
    return int(d.extent)


def onward(x: DomainExpr, v: list[int]) -> list[int] | None:
    """Outputs of an axis expression from its inputs; None where it has no such element."""
    match x:
        case Split():
            return list(divmod(v[0], n_of(x.inner)))
        case Merge():
            return [v[0] * n_of(x.inner) + v[1]]
        case Resize():
            return [v[0] + int(x.left)]
        case Stride():
            step, left = divmod(v[0] - int(x.start), int(x.step))
            return None if left else [step]
        case Roll():
            return [(v[0] + int(x.shift)) % n_of(x.source)]
        case Swizzle():
            return [v[0], v[0] ^ v[1] if x.kind == "xor" else (v[0] + v[1]) % n_of(x.y)]
        case RowPartition():
            raise AssertionError("these fusions have no rows")


def back(x: DomainExpr, v: list[int]) -> list[int]:
    """Inputs of an axis expression from its outputs."""
    match x:
        case Split():
            return [v[0] * n_of(x.inner) + v[1]]
        case Merge():
            return list(divmod(v[0], n_of(x.inner)))
        case Resize():
            return [v[0] - int(x.left)]
        case Stride():
            return [int(x.start) + int(x.step) * v[0]]
        case Roll():
            return [(v[0] - int(x.shift)) % n_of(x.source)]
        case Swizzle():
            return [v[0], v[1] ^ v[0] if x.kind == "xor" else (v[1] - v[0]) % n_of(x.y)]
        case RowPartition():
            raise AssertionError("these fusions have no rows")


def spread(t: Tensor, known: Known) -> Known | None:
    """All axes of a tensor from some; None where an axis has no such element."""
    known = {d: 0 for d in (*t.root, *t.logical) if d.is_broadcast and not d.definitions} | known
    before = -1
    while before != len(known):
        before = len(known)
        for x in (*t.domain.exprs, *t.domain.loop_exprs):
            if all(d in known for d in x.inputs) and not all(d in known for d in x.outputs):
                made = onward(x, [known[d] for d in x.inputs])
                if made is None:
                    return None
                known.update(zip(x.outputs, made, strict=True))
            elif all(d in known for d in x.outputs) and not all(d in known for d in x.inputs):
                known.update(zip(x.inputs, back(x, [known[d] for d in x.outputs]), strict=True))
    return known


def reads(e: TensorExpr, k: int) -> Iterator[tuple[Known, Known]]:
    """For each element of operand ``k`` that is read: axes of the output and of the operand with their coordinates."""
    t = e.inputs[k]
    for at in itertools.product(*(range(n_of(d)) for d in t.axes)):
        mine = spread(t, dict(zip(t.axes, at, strict=True)))
        start = {r.domain: c for r, c in zip(e.reads[k], at, strict=True) if isinstance(r, Mapped)}
        theirs = spread(e.output, start)
        if mine is None or theirs is None:
            continue
        axes = (*e.output.root, *e.output.logical)
        if all(0 <= theirs[d] < n_of(d) for d in axes):
            yield theirs, mine


def same_loops(t: Tensor, position: int) -> str:
    """One of "same", "moved" where a coordinate differs, "extent" where only the number of steps does."""
    for e in t.uses:
        for k in e.operands_of(t):
            for theirs, mine in reads(e, k):
                if any(mine[a] != theirs[b] for a, b in zip(t.loop[:position], e.output.loop, strict=False)):
                    return "moved"
            if any(n_of(a) != n_of(b) for a, b in zip(t.loop[:position], e.output.loop, strict=False)):
                return "extent"
    return "same"


def there_and_back(draw: st.DrawFn, t: Tensor) -> None:
    """Steps that leave every coordinate of a loop as it was."""
    p = draw(st.integers(0, len(t.loop) - 1))
    n = n_of(t.loop[p])
    match draw(st.sampled_from(("split", "resize", "roll", "stride", "nothing"))):
        case "split":
            by = [d for d in range(1, n + 1) if n % d == 0]
            if draw(st.booleans()):
                t.split(p, draw(st.sampled_from(by)), inner=draw(st.booleans())).merge(p)
        case "resize":
            a, b = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            t.resize(p, a, b).resize(p, -a, -b)
        case "roll":
            s = draw(st.integers(0, n))
            t.roll(p, s).roll(p, -s)
        case "stride":
            t.stride(p, n - 1, -1, n).stride(p, n - 1, -1, n)
        case _:
            pass


def moved(draw: st.DrawFn, t: Tensor) -> None:
    """A step that moves some coordinate, as a rule."""
    p = draw(st.integers(0, len(t.loop) - 1))
    n = n_of(t.loop[p])
    match draw(st.sampled_from(("roll", "flip", "shift", "order"))):
        case "roll":
            t.roll(p, draw(st.integers(0, n)))
        case "flip":
            t.stride(p, n - 1, -1, n)
        case "shift":
            t.resize(p, 1, 0)
        case _:
            t.reorder(draw(st.permutations(range(len(t.loop)))))


def same_pieces(draw: st.DrawFn, both: list[Tensor]) -> None:
    """One step for both, each told in its own way."""
    p = draw(st.integers(0, min(len(t.loop) for t in both) - 1))
    n = n_of(both[0].loop[p])
    if any(n_of(t.loop[p]) != n for t in both) or n < 1:
        return
    if draw(st.booleans()):
        size = draw(st.integers(1, n))
        count = -(-n // size)
        size = -(-n // count)
        for t in both:
            inner = draw(st.booleans())
            t.split(p, size if inner else count, inner=inner)
            if n_of(t.loop[p]) != count:
                return
    elif p + 1 < min(len(t.loop) for t in both):
        for t in both:
            t.merge(p)


def moves(draw: st.DrawFn, t: Tensor) -> Tensor:
    """A reader of ``t``: one operation that moves elements."""
    p = draw(st.integers(0, t.ndim - 1))
    shape = [int(d.extent) for d in t.axes]
    n = shape[p]
    match draw(st.sampled_from(("slice", "pad", "reshape", "permute", "flip", "roll", "step", "neg"))):
        case "slice":
            start = draw(st.integers(0, n - 1))
            return ig.slice(t, p, start, draw(st.integers(start + 1, n)))
        case "pad":
            return ig.pad(t, [0, 0] * (t.ndim - 1 - p) + [draw(st.integers(-(n // 2), 2)), draw(st.integers(0, 2))])
        case "reshape":
            whole = prod(shape)
            outer = draw(st.sampled_from([d for d in range(1, whole + 1) if whole % d == 0]))
            return ig.reshape(t, outer, whole // outer)
        case "permute":
            return ig.permute(t, *draw(st.permutations(range(t.ndim))))
        case "flip":
            return ig.flip(t, p)
        case "roll":
            return ig.roll(t, draw(st.integers(-3, 3)), p)
        case "step":
            return ig.slice(t, p, draw(st.integers(0, n - 1)), n, draw(st.integers(1, 3)))
        case _:
            return ig.neg(t)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[ig.Fusion, Tensor]:
    """A fusion of a tensor and its reader, with loops that are often, but not always, the same."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("x", shape=draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))), name="t")
    f.output(moves(draw, t))
    (e,) = t.uses
    if draw(st.integers(0, 4)) == 4 and e.output.domain.exprs and not any(map(grows, e.output.domain.exprs)):
        e.output.set_loop(e.output.root)
    else:
        ig.schedule.like(f, e.output)
    both = [t, e.output]
    for _ in range(draw(st.integers(0, 3))):
        if all(t.loop for t in both):
            there_and_back(draw, draw(st.sampled_from(both)))
            same_pieces(draw, both)
    if draw(st.integers(0, 2)) == 2:
        moved(draw, draw(st.sampled_from(both)))
    return f, t


def is_accepted(f: ig.Fusion) -> bool:
    try:
        ig.IdModel(f).index  # noqa: B018 - building it checks the nests
    except ScheduleError:
        return False
    return True


def grows(x: DomainExpr) -> bool:
    return isinstance(x, Resize) and (int(x.left) > 0 or int(x.right) > 0)


@settings(max_examples=examples(400))
@given(pairs(), st.data())
def test_an_inlining_is_legal_exactly_where_the_coordinates_are_one(
    made: tuple[ig.Fusion, Tensor], data: st.DataObject
) -> None:
    f, t = made
    (e,) = t.uses
    position = data.draw(st.integers(1, min(len(t.loop), len(e.output.loop)))) if t.loop and e.output.loop else 0
    t.inline(position)
    before = str(f)
    note(before)
    want = same_loops(t, position)
    accepted = is_accepted(f)
    assert str(f) == before
    event(f"{want}, {'accepted' if accepted else 'refused'}")
    assert accepted == (want != "moved")
    if accepted:
        try:
            ig.IdModel(f).verify()
        except ScheduleError:
            return  # loops that cut what is read: judged elsewhere
        report = ig.validate(f, target="python", exhaustive=True)
        assert report.ok, str(report)
