"""Program text for people: coloured in a terminal, plain anywhere else."""

from __future__ import annotations


def coloured(what: object, *, language: str = "python") -> str:
    """Text with the colours of ``language`` where standard output is a terminal that shows colours, else as it is.

    >>> coloured("for i0 < 4:")
    'for i0 < 4:'
    """
    from rich.console import Console  # noqa: PLC0415 - 30 ms
    from rich.syntax import Syntax  # noqa: PLC0415

    text = str(what)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal or console.color_system is None:
        return text
    shown = Syntax("", language, theme="ansi_dark", background_color="default").highlight(text)
    with console.capture() as captured:
        console.print(shown, end="")
    return captured.get()
