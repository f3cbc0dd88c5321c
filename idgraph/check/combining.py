"""How a nest combines values, against the program: reductions over loops, entries of a scatter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from idgraph.check.report import Difference, Verdict

COMBINES: Mapping[str, tuple[str, ...]] = {  # operations of the program, and what a nest may do for them
    "sum": ("sum",), "mean": ("sum",), "prod": ("prod",), "amax": ("max", "any"), "amin": ("min", "any", "prod"),
    "any": ("any", "max"), "all": ("any", "min", "prod"),
}  # fmt: skip


def other_reduction(found: frozenset[str], meant: Iterable[str], buffer: str) -> Difference | None:
    """How a nest combines (``found``, of Inductor's words) where no operation of the program (``meant``) does so.

    >>> other_reduction(frozenset({"sum"}), ["mean"], "buf0")
    >>> print(other_reduction(frozenset({"max"}), ["sum"], "buf0").read)
    max
    """
    ops = list(meant)
    known = {x for op in ops for x in COMBINES.get(op, ())}
    other = (found & frozenset().union(*COMBINES.values())) - known
    if not other or not known or any(op not in COMBINES for op in ops):
        return None
    return Difference({}, buffer, " and ".join(sorted(other)), " and ".join(ops), "")


def other_mode(adds: bool, element: str, reads_there: bool) -> tuple[Verdict, Difference | None]:
    """The verdict on a nest that stores entries which the program adds (``adds``), or the other way round.

    >>> other_mode(True, "y[x0]", reads_there=False)[0], other_mode(True, "y[x0]", reads_there=True)[0]
    ('refuted', 'unknown')
    """
    words = ("stored", "added")
    return ("unknown", None) if reads_there else ("refuted", Difference({}, element, words[not adds], words[adds], ""))
