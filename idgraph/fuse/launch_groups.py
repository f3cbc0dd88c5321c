"""Launches of a scheduled fusion: which operations share one, and what keeps the launches of two apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.errors import IdGraphError
from idgraph.fuse.mismatch import Mismatch
from idgraph.index.allocation import live_exprs
from idgraph.ir import SCATTERS, Fusion, LoadedCoordinate, Tensor, TensorExpr
from idgraph.ir.walks import upstream
from idgraph.kernel.def_use import stored_in
from idgraph.kernel.ir import Accumulate, Kernel, Store, VectorAdd, VectorStore, walk
from idgraph.passes.kernel_fusion import ARRAYS, LOOKED_AT
from idgraph.runtime.program import launches


@dataclass(frozen=True, slots=True)
class Launched:
    """``kernels`` in launch order; ``homes``: numbers of those that compute a tensor, by its name; ``before``: those
    that each needs something of."""

    kernels: tuple[Kernel, ...]
    homes: Mapping[str, frozenset[int]]
    before: tuple[frozenset[int], ...] = field(repr=False)

    def share(self, a: TensorExpr, b: TensorExpr) -> bool:
        """Whether one launch computes both."""
        return bool(self.homes[a.output.name] & self.homes[b.output.name])

    def obstacle_between(self, a: TensorExpr, b: TensorExpr) -> tuple[Mismatch, str] | None:
        """The obstacle between the launches of ``a`` and ``b``, whose loops could be one, with its proof; None
        where they share one, or where no kernel computes one of them."""
        first, second = (min(self.homes[x.output.name], default=None) for x in (a, b))
        if first is None or second is None or self.share(a, b):
            return None
        low, high = sorted((first, second))
        one, other = self.kernels[low], self.kernels[high]
        why = self._between(low, high)
        if why:
            return Mismatch("synchronisation", (why,)), f"{why}; a launch ends before the next one reads"
        arrays = len({x.name for x in (*one.buffers, *other.buffers)})
        if arrays > ARRAYS:
            why = f"{one.name} and {other.name} take {arrays} arrays"
            return Mismatch("limits", (why,)), f"{why}, and a launch passes at most {ARRAYS}"
        shapes = tuple(_threads(k) for k in (one, other))
        if shapes[0] != shapes[1]:
            why = f"blocks of {one.name} have {shapes[0]} threads, those of {other.name} {shapes[1]}"
            return Mismatch("limits", (why,)), f"{why}, and what threads combine fixes which thread has which"
        why = f"{one.name} and {other.name} together ask for more than one launch has, or lie over {LOOKED_AT} apart"
        return Mismatch("limits", (why,)), why

    def _between(self, low: int, high: int) -> str:
        """Why the later launch waits for the earlier one; empty where it does not."""
        seen: set[int] = set()
        work = [(n, (n, high)) for n in self.before[high]]
        while work:
            n, way = work.pop()
            if n == low:
                names = [self.kernels[k].name for k in way]
                return " waits for ".join(reversed(names))
            if n > low and n not in seen:
                seen.add(n)
                work += [(m, (m, *way)) for m in self.before[n]]
        return ""


def _threads(k: Kernel) -> str:
    return " x ".join(str(k.launch[d][0]) for d in sorted(k.launch) if d.startswith("threadIdx")) or "1"


def launched(fusion: Fusion) -> Launched | None:
    """The CUDA launches of a fusion scheduled on blocks; None of another, or of one that cannot be emitted."""
    if not any(d.parallel.startswith("blockIdx") for t in fusion.tensors for d in t.loop):
        return None
    try:
        return of_kernels(fusion, launches(fusion))
    except IdGraphError:
        return None


def count(fusion: Fusion) -> int:
    """The number of `launches`. Where no step was taken, each operation that runs has a launch of its own: it is
    counted without emitting, but for what is read at an index or updated in place.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(ig.exp(f.input("x", shape=(8,))) * 2.0)
    >>> count(f), len(launches(f))
    (2, 2)
    """
    run = live_exprs(fusion)
    plain = not any(
        e.op in SCATTERS or any(isinstance(r, LoadedCoordinate) for row in e.reads for r in row)
        or any(t.log or t.memory != "auto" or t.inline_position for t in e.outputs)
        for e in run
    )  # fmt: skip
    return len(run) if plain else len(launches(fusion))


def of_kernels(fusion: Fusion, kernels: Sequence[Kernel]) -> Launched:
    """The same of kernels that were emitted."""
    homes: dict[str, set[int]] = {e.output.name: set() for e in fusion.exprs}
    for n, names in enumerate(operations(fusion, kernels)):
        for name in names:
            homes[name].add(n)
    last: dict[str, int] = {}
    before: list[frozenset[int]] = []
    for n, k in enumerate(kernels):
        before.append(frozenset(last[b.name] for b in k.buffers if b.name in last))
        last.update(dict.fromkeys(stored_in(k.body), n))
    return Launched(tuple(kernels), {name: frozenset(k) for name, k in homes.items()}, tuple(before))


def operations(f: Fusion, kernels: Sequence[Kernel]) -> tuple[tuple[str, ...], ...]:
    """The tensors that each kernel makes: those it stores, and those computed only for them."""
    order = {e: n for n, e in enumerate(f.exprs)}
    by_name: Mapping[str, Tensor] = {t.name: t for t in f.tensors}
    found: list[tuple[str, ...]] = []
    for k in kernels:
        stored = _stored_tensors(by_name, k)
        read = {b.title for b in k.buffers} - {t.name for t in stored}
        inside = upstream(stored, lambda e, read=read: e.output.name not in read)
        found.append(tuple(e.output.name for e in sorted(inside, key=order.__getitem__)))
    return tuple(found)


def _stored_tensors(by_name: Mapping[str, Tensor], k: Kernel) -> list[Tensor]:
    titles = dict.fromkeys(
        s.buffer.title
        for s in walk(k.body)
        if isinstance(s, (Store, VectorStore, VectorAdd, Accumulate)) and s.buffer is not None
    )
    return [by_name[t] for t in titles if t in by_name]
