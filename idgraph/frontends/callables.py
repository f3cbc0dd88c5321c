"""The arguments of `from_torch`: example arguments, and functions made into modules that torch.export takes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from idgraph.errors import FrontendError


def arguments_of(torch: Any, given: object) -> tuple[object, ...] | None:
    """The example arguments; one tensor alone is one argument (a tuple of its rows is never meant)."""
    if given is None or isinstance(given, (tuple, list)):
        return None if given is None else tuple(cast("Sequence[object]", given))
    if isinstance(given, torch.Tensor):
        return (given,)
    raise FrontendError(
        f"example_args: {type(given).__name__} is not a list or tuple of arguments", hint="from_torch(f, (x, y))"
    )


def as_module(torch: Any, f: Callable[..., object]) -> object:
    """A module around a function. torch notes lines of frames called ``forward`` only, so that a copy has this name."""

    def called(*args: object, **kwargs: object) -> object:
        return f(*args, **kwargs)

    renamed: Callable[..., object] = f if has_signature(f) else called  # torch.sin has none, and export asks for it
    if isinstance(f, types.FunctionType):
        renamed = types.FunctionType(
            f.__code__.replace(co_name="forward"), f.__globals__, "forward", f.__defaults__, f.__closure__
        )
        renamed.__kwdefaults__ = f.__kwdefaults__
    module = torch.nn.Module()
    module.forward = renamed
    return module


def has_signature(f: Callable[..., object]) -> bool:
    try:
        inspect.signature(f)
    except (TypeError, ValueError):
        return False
    return True
