"""Guards of calls that build operations or take a step: a call that fails, or is interrupted, leaves fusions as they
were. Each makes, from the arguments of a call, the function that puts the state back; `idgraph.errors.arguments` takes
them as ``keep``. A guard is not dearer than the call: operations only add at the end, a step changes one tensor.
`idgraph.ir.clone` guards the schedulers, which may change everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, TypeVar, cast

from idgraph.ir.argument_resolution import MOST_LISTED
from idgraph.ir.protocols import TensorLike

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


Args: TypeAlias = tuple[object, ...]
Restore: TypeAlias = Callable[[], None]
"""Puts a state back."""


class Restorable:
    """A base of fusions, by which guards know them."""

    @property
    def mark(self) -> Mark:
        """The present state, for `restore`."""
        raise NotImplementedError

    def restore(self, mark: Mark) -> None:
        """Take back all that was added at the end since ``mark``."""
        raise NotImplementedError


class Member:
    """A base of tensors, by which guards know what belongs to a fusion."""

    __slots__ = ()


def transactional_step(args: Args, _kwargs: Mapping[str, object]) -> Restore | None:
    """The undo of a schedule step that failed or was interrupted."""
    tensor = args[0] if args else None
    if not isinstance(tensor, Member):
        return None
    known = cast("TensorLike", tensor)
    state, fusion = known.state(), cast("Restorable", known.fusion)
    mark = fusion.mark

    def restore() -> None:
        state()
        fusion.restore(mark)

    return restore


def transactional_build(args: Args, kwargs: Mapping[str, object]) -> Restore | None:
    """For functions that add operations: the numbers of operations, tensors and symbols."""
    marks = [(fusion, fusion.mark) for fusion in fusions_among(args, kwargs)]
    if not marks:
        return None

    def restore() -> None:
        for fusion, mark in marks:
            fusion.restore(mark)

    return restore


_NEST = 4  # levels of lists in which a call looks for tensors: no function takes more
_NUMBERS = (str, bytes, bytearray, memoryview, range)


def fusions_among(args: Args, kwargs: Mapping[str, object]) -> list[Restorable]:
    """The fusions that the arguments belong to, each once."""
    found: dict[Restorable, None] = {}
    _collect_fusions((*args, *kwargs.values()), found, _NEST)
    return list(found)


def _collect_fusions(values: Iterable[object], found: dict[Restorable, None], depth: int) -> None:
    """Add the fusions of tensors, of objects that have a fusion or a tensor, and of those in collections."""
    for value in values:
        if isinstance(value, Member):
            found[cast("Restorable", cast("TensorLike", value).fusion)] = None
        elif isinstance(value, Restorable):
            found[value] = None
        elif depth and type(value).__module__.startswith("idgraph."):
            _collect_fusions((getattr(value, "fusion", None), getattr(value, "tensor", None)), found, depth - 1)
        elif depth and isinstance(value, Sequence | Set | Mapping) and not isinstance(value, _NUMBERS):
            held = cast("Collection[object]", value)
            with suppress(Exception):  # whatever a collection of somebody else's raises
                _collect_fusions(islice(held, MOST_LISTED), found, depth - 1)
                if isinstance(held, Mapping):
                    _collect_fusions(
                        islice(cast("Mapping[object, object]", held).values(), MOST_LISTED), found, depth - 1
                    )
