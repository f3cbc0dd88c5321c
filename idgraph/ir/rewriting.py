"""Parts of rewrites inside a fusion: a mark to go back to, and the order of what moves in front of its readers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Mark:
    """The numbers of operations, tensors, inputs, outputs and symbols, the numbers of the next ones, and of equalities
    of symbols."""

    counts: tuple[int, int, int, int, int]
    made: int
    domains: int
    equalities: int = 0


def with_front(rest: Sequence[K], front: Mapping[K, Sequence[K]]) -> list[K]:
    """``rest``, each in front of it what ``front`` says, which may have something in front of it too."""
    made: list[K] = []
    for e in rest:
        work = [(e, False)]
        while work:
            x, is_done = work.pop()
            if is_done or x not in front:
                made.append(x)
            else:
                work.append((x, True))
                work += [(m, False) for m in reversed(front[x])]
    return made
