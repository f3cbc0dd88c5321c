"""A frozen call in the fewest steps: a function that is written for so many arrays, as most calls need no more.

It serves calls whose inputs are taken as they lie and whose outputs are new arrays without gaps. Where an input has to
be copied, is refused, or there is no memory, the call is handed on to the function that tells more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from idgraph.runtime.functions import function_of
from idgraph.runtime.kinds import UNMAPPED

Whole = Callable[[Sequence[Any], Any, bool], list[Any]]  # see `idgraph.runtime.frozen.Frozen.whole`


class FastCallTemplate(NamedTuple):
    """A call in numbers. ``inputs``: the place of each among the caller's arrays, the number of its buffer,
    the bytes ahead of its first element, and its alignment in bytes. ``made``: the numbers of the buffers that are new.
    ``buffers`` in all; ``order``: which new ones are the outputs.

    >>> print(Steps(((0, 1, 0, 16),), (0,), 2, (0,)).text)
    def bound(pointer, launch, slow, make0):
        def whole(values, tell, wait):
            try:
                a1 = pointer(values[0])
                if a1 % 16 or a1 < 65536:
                    return slow(values, tell, wait)
                m0 = make0()
            except (RuntimeError, MemoryError, ValueError):
                return slow(values, tell, wait)
            launch((pointer(m0), a1), wait)
            return [m0]
        return whole
    <BLANKLINE>
    """

    inputs: tuple[tuple[int, int, int, int], ...]
    made: tuple[int, ...]
    buffers: int
    order: tuple[int, ...]

    @property
    def text(self) -> str:
        """The function as source."""
        hand_on = "return slow(values, tell, wait)"
        lines = [f"a{n} = pointer(values[{at}]){f' - {ahead}' if ahead else ''}" for at, n, ahead, _ in self.inputs]
        tests = [mistaken_address(f"a{n}", alignment) for _, n, _, alignment in self.inputs]
        lines += [f"if {' or '.join(tests)}:", f"    {hand_on}"] if tests else []
        lines += [f"m{n} = make{n}()" for n in self.made]
        known = {n: f"a{n}" for _, n, _, _ in self.inputs} | {n: f"pointer(m{n})" for n in self.made}
        addresses = ", ".join(known.get(n, "0") for n in range(self.buffers))
        given = ", ".join(["pointer", "launch", "slow", *(f"make{n}" for n in self.made)])
        return "\n".join([
            f"def bound({given}):",
            "    def whole(values, tell, wait):",
            "        try:",
            *(f"            {line}" for line in lines or ["pass"]),
            "        except (RuntimeError, MemoryError, ValueError):",
            f"            {hand_on}",
            f"        launch(({addresses}{',' * (self.buffers == 1)}), wait)",
            f"        return [{', '.join(f'm{self.made[n]}' for n in self.order)}]",
            "    return whole",
            "",
        ])  # fmt: skip


def mistaken_address(name: str, alignment: int) -> str:
    """The condition, as source, of an address that kernels cannot take.

    >>> mistaken_address("p", 16)
    'p % 16 or p < 65536'
    """
    return f"{name} % {alignment} or {name} < {UNMAPPED}"


@lru_cache(maxsize=512)
def _bound(steps: FastCallTemplate) -> Callable[..., Whole]:
    return function_of(steps.text, "bound", {}, "call")


def compile_fast_call(
    steps: FastCallTemplate,
    pointer: Callable[[Any], int],
    launch: Any,
    slow: Whole,
    makers: Sequence[Callable[[], Any]],
) -> Whole:
    """The function of `FastCallTemplate` over what makes each new array, in the order of ``steps.made``."""
    return _bound(steps)(pointer, launch, slow, *makers)
