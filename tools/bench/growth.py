"""Growth of work with the size of the question: ``python -m tools.bench.growth [--quick] [--family F] [--json FILE]``.

Each family is measured at three sizes, each twice the one before, in processes of their own and from the start,
so that nothing is cached. The growth is reported as the power of the size that the time of the last two sizes grows by.
"plan of F" and "schedule of F", which only ``--family`` asks for, take a minute or more each: `ig.fuse.plan` and
`ig.schedule.auto` of up to 10 000 operations (`tools.programs.sized_fusions`). FILE is written after every row.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import log2

import idgraph as ig
from idgraph.arith import symbol
from tools.bench import report
from tools.programs.sized_fusions import FUSIONS

LIMIT_S = 60.0  # of one measurement
MOST = 10_000  # operations of a fusion that is planned
Made = Callable[[], object]


# ---- the families: each returns what is to be timed, built before the clock starts -------------------------------
def parsed_products(k: int) -> Made:
    """A text whose shape is a product of k factors (n+1)."""
    shape = "*".join(["(n+1)"] * k)
    text = f"fusion f {{\n symbol n\n t0 = input(shape=(`{shape}`,))\n t1 = mul(t0, 2.0)\n output t1\n}}"
    return lambda: ig.parse(text)


def powers(k: int) -> Made:
    """(i + 1) to the k."""
    text = "*".join(["(i + 1)"] * k)
    return lambda: ig.simplify(text, {"i": 64})


def mixed_products(k: int) -> Made:
    """A product of k different sums."""
    text = "*".join(f"(a{n} + b{n})" for n in range(k))
    return lambda: ig.simplify(text)


def nested(k: int) -> Made:
    """// and % of k levels, each of a sum of the level before."""
    text = "i"
    for n in range(k):
        a, b = ((2, 3), (3, 2), (4, 8), (5, 3))[n % 4]
        text = f"(({text} + j)//{a}*{b} + ({text if n < 3 else 'j'})%{a + n})"
    return lambda: ig.simplify(text, {"i": 10**6, "j": 64})


def nested_shared(k: int) -> Made:
    """// and % of k levels, each both of the same level before: the text doubles, the graph does not."""
    e = symbol("i", 0, 10**9)
    for n in range(k):
        e = (e + n) // (n % 3 + 2) * 5 + e % (n % 5 + 3)
    return lambda: ig.simplify(e)


def splits(k: int) -> Made:
    """The index and predicate of an axis split k times, nowhere evenly."""
    return lambda: _split_fusion(10**18 + 7, k, lambda n: 2 + n % 2)


def split_symbol(k: int) -> Made:
    """The same of an axis of symbolic extent."""
    return lambda: _split_fusion(None, k, lambda _: 2)


def split_evenly(k: int) -> Made:
    """The same of an axis that each factor divides."""
    return lambda: _split_fusion(2**60, k, lambda n: 1 + (n < 60))


def _split_fusion(extent: int | None, k: int, factor: Callable[[int], int]) -> object:
    f = ig.Fusion("splits")
    t0 = f.input("t0", shape=(f.symbol("n") if extent is None else extent,))
    t1 = f.output(t0 + 1)
    for n in range(k):
        t1.split(0, factor(n))
    a = ig.IdModel(f).access(f.exprs[-1], t0)
    return a.address, a.predicate


def merges(k: int) -> Made:
    """The index of a tensor of rank k whose axes are merged into one loop."""

    def made() -> object:
        f = ig.Fusion("merges")
        t1 = f.output(f.input("t0", shape=(2,) * min(k, 60) + (1,) * (k - 60)) + 1)
        while len(t1.loop) > 1:
            t1.merge(0)
        return ig.IdModel(f).access(f.exprs[-1], f["t0"]).address

    return made


def cat_tensors(k: int) -> Made:
    """The graphs and all accesses of a cat of k tensors."""

    def made() -> object:
        f = ig.Fusion("cat")
        parts = [f.input(f"x{n}", shape=(4 + n % 3,)) for n in range(k)]
        f.output(ig.cat(parts, dim=0))
        m = ig.IdModel(f)
        return len(m.exact.groups), [m.index_map(e) for e in f.exprs]

    return made


def ranks(k: int) -> Made:
    """The graphs and indices of a transposed tensor of rank k plus another."""

    def made() -> object:
        f = ig.Fusion("rank")
        x, y = f.input("x", shape=(2,) * k), f.input("y", shape=(2,) * k)
        t = f.output(ig.permute(x, *reversed(range(k))) + y)
        ig.schedule.like(f, t)
        m = ig.IdModel(f)
        return [m.index_map(e) for e in f.exprs]

    return made


def texts(k: int) -> Made:
    """Reading a text of k operations, and writing it again."""
    lines = [f"  t{n + 1} = add(t{n}, t0)" for n in range(k)]
    text = "\n".join(["fusion f {", "  t0 = input(shape=(4, 8))", *lines, f"  output t{k}", "}"])
    return lambda: str(ig.parse(text))


def selections(k: int) -> Made:
    """A choice inside a choice, k deep."""
    text = "i"
    for n in range(k):
        text = f"where(i < {n + 3}, {text} + {n}, j)"
    return lambda: ig.simplify(text, {"i": k + 5, "j": 9})


def conditions(k: int) -> Made:
    """k conditions at once, each of a symbol of its own and one of all."""
    text = "(" + ") & (".join(f"i + a{n} < {n + 9}" for n in range(k)) + ")"
    return lambda: ig.simplify(text, {"i": 8})


def resizes(k: int) -> Made:
    """The index and predicate of a loop that is grown k times."""

    def made() -> object:
        f = ig.Fusion("resizes")
        t0 = f.input("t0", shape=(64,))
        t1 = f.output(t0 + 1)
        for _ in range(k):
            t1.resize(0, 1, 1)
        a = ig.IdModel(f).access(f.exprs[-1], t0)
        return a.address, a.predicate

    return made


def pads(k: int) -> Made:
    """The source of a program of k pads, each of the one before."""

    def made() -> object:
        f = ig.Fusion("pads")
        t = f.input("t0", shape=(4, 5))
        for n in range(k):
            t = ig.pad(t, (1, n % 2))
        f.output(t)
        ig.schedule.auto(f)
        return ig.emit(f, "numpy").source

    return made


def _scheduled(step: Callable[[ig.Fusion, ig.Tensor, int], ig.Tensor], k: int, extent: int = 64) -> Made:
    """A chain of k operations, each of the one before, under `auto`. Its tensors follow the last one's loops through
    all operations between, so that the schedule itself has k^2 / 2 steps."""

    def made() -> object:
        f = ig.Fusion("chain")
        t = f.input("t0", shape=(extent,))
        for n in range(k):
            t = step(f, t, n)
        f.output(t)
        ig.schedule.auto(f)
        return f

    return made


def rolls(k: int) -> Made:
    """A schedule of k rolls, each of the one before."""
    return _scheduled(lambda _, t, n: ig.roll(t, n % 7 + 1, 0), k)


def cats(k: int) -> Made:
    """The same of cats with one more input each."""
    return _scheduled(lambda f, t, n: ig.cat([t, f.input(f"x{n}", shape=(2,))], dim=0), k, 3)


def selections_of_rows(k: int) -> Made:
    """The same of gathers with an index each."""
    return _scheduled(lambda f, t, n: ig.index_select(t, 0, f.input(f"i{n}", shape=(64,), dtype="int64")), k)


FAMILIES: dict[str, tuple[Callable[[int], Made], int]] = {  # with the largest size
    "product of (n+1) in a text": (parsed_products, 96),
    "(i+1) to the k": (powers, 48),
    "product of k different sums": (mixed_products, 48),
    "nested // and %, one inside": (nested, 56),
    "nested // and %, shared": (nested_shared, 28),
    "splits that do not divide": (splits, 200),
    "splits of a symbolic extent": (split_symbol, 200),
    "splits that divide": (split_evenly, 200),
    "merges of a rank": (merges, 64),
    "tensors in a cat": (cat_tensors, 1000),
    "rank, transposed": (ranks, 64),
    "operations in a text": (texts, 10_000),
    "where inside where": (selections, 120),
    "conditions of many symbols": (conditions, 100),
    "resizes of a loop": (resizes, 160),
    "pads of pads": (pads, 120),
    "rolls of rolls, scheduled": (rolls, 120),
    "cats of cats, scheduled": (cats, 120),
    "gathers of gathers, scheduled": (selections_of_rows, 120),
}


def _of_fusions(work: Callable[[ig.Fusion], object]) -> Callable[[str], Callable[[int], Made]]:
    def family(name: str) -> Callable[[int], Made]:
        def made(size: int) -> Made:
            work(FUSIONS[name](20))  # imports
            f = FUSIONS[name](size)
            return lambda: work(f)

        return made

    return family


PLANNED: dict[str, tuple[Callable[[int], Made], int]] = {
    f"{what} of {name}": (_of_fusions(work)(name), MOST)
    for what, work in (("plan", ig.fuse.plan), ("schedule", ig.schedule.auto))
    for name in FUSIONS
}


@dataclass(frozen=True, slots=True)
class Grown:
    """Seconds of processor time at each size; None where it took more than the limit or failed, with the reason."""

    family: str
    sizes: tuple[int, ...]
    seconds: tuple[float | None, ...]
    why: str = ""

    @property
    def exponent(self) -> float | None:
        """p where time grows as size**p between the last two sizes; None where one is not known or too short."""
        a, b = self.seconds[-2:]
        return None if a is None or b is None or a < 1e-3 else round(log2(b / a), 2)


def timed(family: str, size: int) -> float:
    """Seconds of processor time for one size, in this process."""
    sys.setrecursionlimit(1000)
    ig.simplify("warm//2 + warm%2", {"warm": 4})
    _split_fusion(100, 1, lambda _: 3)
    run = {**FAMILIES, **PLANNED}[family][0](size)
    start = time.process_time()
    run()
    return time.process_time() - start


def alone(family: str, size: int, limit: float) -> float | str:
    """Seconds for one size in a process of its own, or why there are none: no other garbage is collected meanwhile."""
    return report.alone(timed, family, size, limit=limit, ready="tools.bench.growth")


def measured(family: str, largest: int, limit: float) -> Grown:
    """One family at a quarter, a half and the whole of ``largest``."""
    sizes = (max(1, largest // 4), max(1, largest // 2), largest)
    seconds: list[float | None] = []
    why = ""
    for size in sizes:
        answer = "" if why else alone(family, size, limit)
        seconds.append(round(answer, 5) if isinstance(answer, float) else None)
        why = why or (f"{answer} at {size}" if isinstance(answer, str) else "")
    return Grown(family, sizes, tuple(seconds), why)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a table, write JSON row by row."""
    parser = report.arguments(__doc__)
    parser.add_argument("--family", action="append", choices=[*FAMILIES, *PLANNED], help="only these")
    parser.add_argument("--quick", action="store_true", help="at a quarter of the sizes")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one measurement")
    args = parser.parse_args(argv)
    rows: list[Grown] = []
    for family in args.family or FAMILIES:
        largest = {**FAMILIES, **PLANNED}[family][1]
        rows.append(measured(family, largest // (4 if args.quick else 1), args.limit))
        report.write(args.json, {**report.facts(), "rows": [{**asdict(r), "exponent": r.exponent} for r in rows]})
    lines = (
        (
            r.family, "  ".join(map(str, r.sizes)), "  ".join("-" if s is None else f"{s:.3f}" for s in r.seconds),
            "" if r.exponent is None else r.exponent, r.why,
        )
        for r in rows
    )  # fmt: skip
    report.show("growth", ("family", "sizes", "seconds", "grows as size to the", ""), lines, left=3)


if __name__ == "__main__":
    main()
