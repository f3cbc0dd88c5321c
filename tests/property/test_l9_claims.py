"""L9: contiguity, vector width and index width hold at every point of the access; the width is the largest there is.

The points are tried here one by one in plain integers; nothing is asked of the index room but coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hypothesis import event, given, settings

import idgraph as ig
from idgraph.index import Access, LoopVariable
from idgraph.ir import Fusion, item_size
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples
from tests.property.legal import model_of

Point = dict[str, int]


@dataclass(frozen=True)
class Visit:
    """An access at one loop point: whether it happens, and the address for given loaded values."""

    happens: bool
    address: tuple[int, ...]
    loaded_from: tuple[tuple[int, ...], ...]


def visits(a: Access, loop: LoopVariable) -> dict[tuple[int, ...], Visit]:
    """Every loop point; the address is tried with each loaded value at two of its bounds and in between.

    A register has no address: each step of a loop that it is inlined in has one of its own.
    """
    p = a.loops.index(loop)
    anew = p < a.tensor.inline_position
    used = [n for n in a.loads if n in a.address.names]
    bounds = {str(c.args[0]): int(c.args[1]) for c in a.load_bounds if c.op == "lt"}
    choices = [sorted({0, bounds[n] // 2, max(0, bounds[n] - 1), min(1, bounds[n] - 1)}) for n in used]
    values = [dict(zip(used, v, strict=True)) for v in itertools.product(*choices)]
    found: dict[tuple[int, ...], Visit] = {}
    for at in itertools.product(*(range(int(x.extent)) for x in a.loops)):
        env = {x.name: v for x, v in zip(a.loops, at, strict=True)} | free(a)
        happens = bool(a.predicate.evaluate(env))
        source = tuple(tuple(int(c.evaluate(env)) for c in a.loads[n][1]) for n in used) if happens else ()
        address = tuple(int(a.address.evaluate({**env, **v})) for v in values) if happens else ()
        if a.buffer.place == "register":
            address = (at[p] if anew else 0,) if happens else ()
        found[at] = Visit(happens, address, source)
    return found


def free(a: Access) -> Point:
    """Free strides, at an odd number: no alignment may be taken for granted."""
    return {n: 37 for n in a.address.names if n.startswith("stride")}


def runs(a: Access, loop: LoopVariable, width: int, seen: Mapping[tuple[int, ...], Visit]) -> Iterator[list[Visit]]:
    """Aligned runs of ``width`` steps."""
    p = a.loops.index(loop)
    for at in seen:
        if at[p] % width == 0:
            yield [seen[(*at[:p], at[p] + n, *at[p + 1 :])] for n in range(width)]


def legal(a: Access, loop: LoopVariable, width: int, seen: Mapping[tuple[int, ...], Visit]) -> bool:
    """Whether vectors of ``width`` are legal, by looking at all of them."""
    if int(loop.extent) % width or (a.tensor.alignment // item_size(a.tensor.dtype)) % width:
        return False
    for run in runs(a, loop, width, seen):
        if len({v.happens for v in run}) > 1:
            return False
        if not run[0].happens:
            continue
        if len({v.loaded_from for v in run}) > 1:
            return False
        for k, first in enumerate(run[0].address):
            if first % width or [v.address[k] for v in run] != list(range(first, first + width)):
                return False
    return True


def largest(a: Access, loop: LoopVariable, seen: Mapping[tuple[int, ...], Visit]) -> int:
    """The largest legal power of two within 16 bytes."""
    width = 16 // item_size(a.tensor.dtype)
    while width > 1 and not legal(a, loop, width, seen):
        width //= 2
    return width


@settings(max_examples=examples(150))
@given(scheduled_fusions(max_steps=4))
def test_vector_widths_are_legal_and_the_largest(f: Fusion) -> None:
    """Of every access and loop; with free strides only legal (they may turn out aligned)."""
    m = model_of(f)
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            for loop in a.loops:
                seen = visits(a, loop)
                why = a.explain_vector_width(loop)
                assert legal(a, loop, why.width, seen), f"{a}: {why.width} along {loop}"
                best = largest(a, loop, seen)
                event("largest" if why.width == best else "narrower than possible")
                assert why.width == best or free(a), f"{a} along {loop}: {why.width} of {best}: {why.reason}"


def starts(line: list[Visit]) -> set[tuple[int, ...]]:
    """Address minus step, wherever the access happens."""
    return {tuple(x - n for x in v.address) for n, v in enumerate(line) if v.happens}


@settings(max_examples=examples(60))
@given(scheduled_fusions(max_steps=4))
def test_contiguous_loops_step_by_one(f: Fusion) -> None:
    """Along the whole loop, wherever the access happens; where they do, it is also found."""
    m = model_of(f)
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            for loop in a.loops:
                seen = visits(a, loop)
                lines = list(runs(a, loop, int(loop.extent), seen))
                anew = any(loop.symbol in x.symbols for n, (_, w) in a.loads.items() if n in a.address.names for x in w)
                truth = all(len(starts(line)) <= 1 for line in lines) and not (anew and int(loop.extent) > 1)
                claimed = a.contiguous(loop)
                assert claimed == truth or (free(a) and not claimed), f"{a} along {loop}"


@settings(max_examples=examples(60))
@given(scheduled_fusions(max_steps=4))
def test_runs_lie_side_by_side(f: Fusion) -> None:
    """`VectorWidth.run`: within each run of that length, addresses count up by one where the access happens."""
    m = model_of(f)
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            for loop in a.loops:
                seen = visits(a, loop)
                length = int(a.explain_vector_width(loop).run)
                assert int(loop.extent) % length == 0
                for run in runs(a, loop, length, seen):
                    assert len(starts(run)) <= 1, f"{a}: run of {length} along {loop}"


@settings(max_examples=examples(15))
@given(scheduled_fusions(max_steps=3))
def test_suggestions_hold(f: Fusion) -> None:
    """A suggestion for wider vectors holds: the change made, the width it says is legal at every point."""
    m = model_of(f)
    for e in f.exprs:
        a = m.write(e) if len(e.inputs) != 1 else m.read(e, 0)
        for loop in a.loops[-1:]:
            why = a.explain_vector_width(loop)
            for suggestion in why.suggestions():
                g = suggestion.apply(f)
                n = ig.IdModel(g)
                other = next(x for x in g.exprs if x.output.name == e.output.name)
                again = n.write(other) if a.operand is None else n.read(other, a.operand)
                at = next(x for x in again.loops if x.name == suggestion.loop)
                assert suggestion.width > why.width
                assert legal(again, at, suggestion.width, visits(again, at)), f"{a} along {loop}: {suggestion}\n{g}"
                if suggestion.keeps_result:
                    assert [t.shape for t in g.tensors] == [t.shape for t in f.tensors]
