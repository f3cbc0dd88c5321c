"""Names of devices, as torch writes them: "cpu", "cuda:1"."""

from __future__ import annotations

import sys
from typing import Any, cast

from idgraph.errors import EmitError

Device = object  # "cuda:1", 1, torch.device("cuda", 1), or None


def device_text(device: Device) -> str | None:
    """A device by its name, its number among the CUDA devices, or as torch has it; None stays None.

    A CUDA device without a number is the current one. Raises `EmitError` for anything else.

    >>> device_text("cuda:1"), device_text(1), device_text("cpu"), device_text(None)
    ('cuda:1', 'cuda:1', 'cpu', None)
    """
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return f"cuda:{device}"
    text = str(device) if isinstance(device, str) or type(device).__module__ == "torch" else ""
    kind, colon, number = text.partition(":")
    if kind == "cpu" and number in ("", "0"):
        return "cpu"
    if kind == "cuda" and (number.isascii() and number.isdecimal() if colon else True):
        return f"cuda:{int(number) if colon else _current()}"
    raise EmitError(f"{device!r} is not a device", hint='"cuda:1", its number 1, or torch.device("cuda", 1)')


def number_of(device: str) -> int:
    """The number of a CUDA device.

    >>> number_of("cuda:1")
    1
    """
    return int(device.partition(":")[2] or 0)


def _current() -> int:
    """The number of the device that torch works on, where that is loaded and has begun to."""
    torch: Any = cast("Any", sys.modules.get("torch"))
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
