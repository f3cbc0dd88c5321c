"""Answers of numba's front end about calls, which are asked for once.

A generated kernel has a few kinds of calls and hundreds of each. For each one numba goes through all forms that a
function has, and takes one whose body is copied into its caller through the whole front end: as long as all the rest
of typing. The answers depend on the function, the types of the arguments and the compiler's settings, and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from functools import cache
from typing import Any

Found = dict[Hashable, Any]


@cache
def _answers(settings: Hashable) -> tuple[Found, Found]:
    return {}, {}


@contextmanager
def typing_once(context: Any, inliner: Any, settings: Hashable) -> Generator[None]:
    """Calls that the typing ``context`` resolves, and functions that ``inliner`` (numba's ``InlineWorker``, None: no
    function is inlined) reads, are looked up where they were resolved before under equal ``settings``. The caller has
    numba's lock, so that nobody else compiles meanwhile.

    >>> class Context:
    ...     def resolve_function_type(self, func, args, kws):
    ...         print("resolved")
    ...         return f"{func}{args}"
    >>> context = Context()
    >>> with typing_once(context, None, "settings of an example"):
    ...     context.resolve_function_type("f", [1], {}), context.resolve_function_type("f", [1], {})
    resolved
    ('f[1]', 'f[1]')
    """
    calls, bodies = _answers(settings)
    resolve: Callable[[Any, Any, Any], Any] = context.resolve_function_type

    def resolved(func: Any, args: Any, kws: Any) -> Any:
        key = (func, tuple(args), tuple(dict(kws).items()))
        found = calls.get(key)
        if found is None and (found := resolve(func, args, kws)) is not None:
            calls[key] = found
        return found

    read = None if inliner is None else inliner.run_untyped_passes

    def body(self: Any, func: Any, enable_ssa: bool = False) -> Any:
        found = bodies.get(func)
        if found is None and read is not None:
            found = bodies[func] = read(self, func, enable_ssa)
        self.flags.enable_ssa = enable_ssa  # as reading it leaves them
        return found

    context.resolve_function_type = resolved
    if inliner is not None:
        inliner.run_untyped_passes = body
    try:
        yield
    finally:
        del context.resolve_function_type
        if inliner is not None:
            inliner.run_untyped_passes = read
