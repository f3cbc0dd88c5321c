"""Text in pictures: how wide it is, how it is cut, and how untrusted names are escaped for XML and DOT."""

from __future__ import annotations

import unicodedata


def cells(text: str) -> int:
    """Width in cells of a fixed-pitch font: wide letters take two, combining marks none.

    >>> cells("t0"), cells("テンソル"), cells("e\\u0301")
    (2, 8, 1)
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, limit: int) -> str:
    """At most ``limit`` cells, with an ellipsis where something was cut.

    >>> clip("attention_scores", 8)
    'attenti…'
    """
    if cells(text) <= limit:
        return text
    kept = ""
    for c in text:
        if cells(kept + c) >= limit:
            break
        kept += c
    return kept + "…"


def wrapped(text: str, limit: int) -> list[str]:
    """Lines of at most ``limit`` cells, broken at spaces; a longer word is clipped."""
    lines: list[str] = []
    for word in text.split():
        if lines and cells(lines[-1]) + 1 + cells(word) <= limit:
            lines[-1] += " " + word
        else:
            lines.append(clip(word, limit))
    return lines or [""]


def clean(text: str) -> str:
    """The text without characters that XML forbids; tabs and line breaks become spaces.

    >>> clean("a\\x00b\\tc")
    'a�b c'
    """
    return "".join(c if _allowed(c) else " " if c in "\t\n\r" else "�" for c in text)


def _allowed(c: str) -> bool:
    n = ord(c)
    return 0x20 <= n <= 0x7E or 0xA0 <= n <= 0xD7FF or 0xE000 <= n <= 0xFFFD or 0x10000 <= n <= 0x10FFFF


def xml(text: str) -> str:
    """Text as XML content or as a double-quoted attribute.

    >>> xml('a<b & "c"')
    'a&lt;b &amp; &quot;c&quot;'
    """
    return clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def xml_lines(text: str) -> str:
    """As `xml`, line breaks kept (tooltips)."""
    return "\n".join(map(xml, text.split("\n")))


def dot(text: str) -> str:
    """A double-quoted DOT string that shows ``text`` as it is: no escapes, no entities, no HTML labels.

    >>> print(dot('a"b\\\\c & <d>'))
    "a\\"b\\\\c &amp; <d>"
    """
    return dot_lines([text])


def dot_lines(lines: list[str], end: str = "\\n") -> str:
    """Several lines as one DOT string; ``end`` is DOT's line end (``\\n`` centred, ``\\l`` to the left)."""
    # Graphviz reads character entities in labels, so an ampersand must be one.
    shown = [clean(x).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for x in lines]
    return '"' + end.join(shown) + (end if end == "\\l" else "") + '"'
