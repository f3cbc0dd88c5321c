"""Rows that lie across memory and are written along it: what they are computed from is transposed first.

A reduction whose input has its rows side by side gets neighbouring threads on neighbouring rows (`is_outer_reduction`);
what it writes over its columns, where these are what is contiguous in the result, then goes to a sector of its own for
each element. Stored with its columns side by side, by a kernel that goes through tiles in shared memory, the row is
read and written along memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from idgraph.ir import Fusion, Tensor, item_size
from idgraph.ir.device import current_device
from idgraph.layout.stride_order import own_order
from idgraph.schedule.fusion_segments import narrowest
from idgraph.schedule.reduction_domain import NEAR, ReductionDomain, product_of, reduces
from idgraph.schedule.reduction_tiling import BLOCK, is_outer_reduction
from idgraph.schedule.tiling import base_axes, reference_accesses
from idgraph.schedule.tiling_cost import Tiling, tiling_cost


def staged_rows(fusion: Fusion, spaces: Sequence[ReductionDomain]) -> set[Tensor]:
    """The tensors that are stored with the columns of their space side by side, by estimated time; those that are not
    outputs are laid out so."""
    found: set[Tensor] = set()
    for space in spaces:
        rows, count = product_of(space.extents[: space.rows]), product_of(space.extents[space.rows :])
        if rows is None or count is None or not is_outer_reduction(space):
            continue
        written = [t for t in space.labels if _is_written_along(space, t)]
        cut = _boundary(space)
        if not written or not cut or any(not _is_stageable(space, t) for t in cut):
            continue
        gpu, points = current_device(), rows * count
        scattered = sum(max(gpu.sector, item_size(t.dtype)) * points / gpu.cache_bandwidth for t in written)
        dense = sum(item_size(t.dtype) * points / gpu.bandwidth for t in written)
        moved = sum((1 + (t not in fusion.outputs)) * item_size(t.dtype) * points / gpu.bandwidth for t in cut)
        if (scattered - dense - moved) * 1e6 > gpu.launch_us:
            found.update(cut)
            for t in cut:
                if t not in fusion.outputs:
                    labels = space.labels[t]
                    t.set_allocation(sorted(t.axes, key=lambda d: labels.get(d, -1)))
    return found


def repeated_windows(fusion: Fusion, spaces: Sequence[ReductionDomain]) -> set[Tensor]:
    """Tensors over all columns of a space that several kernels would compute, from several places of memory for each
    element (means of windows between two stages of a norm), and that take less time stored once, by their accesses.

    >>> import idgraph as ig
    >>> from idgraph.schedule.reduction_domain import reduction_domains
    >>> f = ig.Fusion("f")
    >>> p = ig.pad(f.input("x", (512, 64, 64)), [1, 1, 1, 1])
    >>> y = sum(p[:, i : 64 + i, k : 64 + k] for i in range(3) for k in range(3))
    >>> rows, columns = f.output(ig.sum(y, 2)), f.output(ig.sum(y, 0))
    >>> repeated_windows(f, reduction_domains(f)) == {y}
    True
    """
    home = {t: space for space in spaces for t in space.labels}
    found = dict[Tensor, None]()
    for space in spaces:
        for t in _boundary(space):
            times = len(_kernels_behind(t, home))
            if times > 1 and not fusion.is_output(t) and _is_cheaper_stored(t := narrowest(t, ()), times):
                found[t] = None
    return set(found)


def _kernels_behind(t: Tensor, home: Mapping[Tensor, ReductionDomain]) -> set[object]:
    """The kernels that a tensor is computed for: of spaces, and those of what is written outside of them."""
    found, seen, work = set[object](), {t}, [t]
    while work and len(seen) < NEAR:
        u = work.pop()
        ends = reduces(u) or not u.uses or u.fusion.is_output(u)
        found.update([id(home[u]) if u in home else u] if ends else [])
        new = [use.output for use in u.uses if use.output not in seen] if not reduces(u) else []
        seen.update(new)
        work += new
    return found


def _is_cheaper_stored(t: Tensor, times: int) -> bool:
    """Whether all kernels read ``t`` sooner, with the one that stores it, than they compute it."""
    base, gpu = base_axes(t), current_device()
    known = all(d.extent.is_const and int(d.extent) for d in base) and all(d.kind == "iteration" for d in base)
    accesses = reference_accesses(t, base, ()) if known and base else None
    if accesses is None or len(accesses) < 3:
        return False
    own, *reads = accesses
    tiling = Tiling(base, run=min(gpu.lanes(a.item) for a in accesses))
    read, again, store = (tiling_cost(tiling, x, BLOCK, gpu).time_us for x in ([own], reads, accesses))
    return store + times * read + gpu.launch_us < times * again


def _is_written_along(space: ReductionDomain, t: Tensor) -> bool:
    """Whether a member is written with its columns side by side."""
    if space.is_row(t) or (t.uses and not t.fusion.is_output(t)):
        return False
    order = [d for d in own_order(t).axes if d in space.labels[t]]
    return bool(order) and space.labels[t][order[-1]] >= space.rows


def _boundary(space: ReductionDomain) -> list[Tensor]:
    """The members over all columns, computed from no reduction of the space, that its reductions and what waits for
    those are computed from; before conversions to a wider type, and without those that are computed from others."""
    found: dict[Tensor, None] = {}  # in order, which is that of the steps in a schedule's text
    for t in space.labels:
        e = t.definition
        if e is not None and (reduces(t) or t in space.fixed):
            wide = [_unconverted(space, p) for p in e.inputs if _is_wide(space, p) and p not in space.fixed]
            found.update(dict.fromkeys(wide))
    return [t for t in found if not _is_computed_from(space, t, found.keys() - {t})]


def _is_computed_from(space: ReductionDomain, t: Tensor, others: Collection[Tensor]) -> bool:
    """Whether all that ``t`` reads over all columns are ``others``, or computed from those."""
    work, seen, met = [t], set[Tensor](), False
    while work:
        e = work.pop().definition
        for p in () if e is None else e.inputs:
            if p in seen:
                continue
            seen.add(p)
            if _unconverted(space, p) in others:
                met = True
            elif p in space.labels and not space.is_row(p):
                work.append(p)
            elif p.definition is None and len([d for d in p.logical if not d.is_broadcast]) == len(space.extents):
                return False
    return met


def _is_wide(space: ReductionDomain, t: Tensor) -> bool:
    return t in space.labels and not space.is_row(t) and t.definition is not None


def _unconverted(space: ReductionDomain, t: Tensor) -> Tensor:
    """The operand of a conversion to a wider type, where that is a member."""
    e = t.definition
    while e is not None and e.op == "cast" and _is_wide(space, e.inputs[0]):
        if item_size(e.inputs[0].dtype) > item_size(t.dtype):
            break
        t, e = e.inputs[0], e.inputs[0].definition
    return t


def _is_stageable(space: ReductionDomain, t: Tensor) -> bool:
    """Whether a member can be stored so: it has all axes, in any order, and no other layout is demanded of it."""
    labels = space.labels[t]
    if len(labels) != len(space.extents) or any(d.kind == "reduction" for d in t.logical) or t.domain.exprs:
        return False
    return not t.fusion.is_output(t) or _is_stored_along(space, t)


def _is_stored_along(space: ReductionDomain, t: Tensor) -> bool:
    order = [d for d in own_order(t).axes if d in space.labels[t]]
    return space.labels[t][order[-1]] >= space.rows
