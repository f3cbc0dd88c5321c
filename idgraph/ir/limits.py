"""Limits on a text or file that is read as a fusion; untrusted input ends in one error, early."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO, cast

from idgraph.errors import OperationError, ParseError, arguments, short_repr, user_line


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of `parse` and `from_json`; the defaults hold every graph that was captured so far, tenfold.

    ``bytes`` of the text or file (UTF-8), ``nodes``: inputs and operations, and of symbols and outputs as many,
    ``terms``: operators and names of one index expression as it is written, entries of one tuple, arguments of one
    call, ``rank``: axes of one tensor, ``loops`` of one tensor, and steps of its schedule. Each is counted before what
    it limits is made. Raises `ParseError` for a limit that is not a positive number of at most
    63 bits.

    >>> import idgraph as ig
    >>> ig.parse("fusion f { }", limits=ig.Limits(bytes=8))
    Traceback (most recent call last):
    idgraph.errors.ParseError: the text has 12 bytes, at most 8 are read
      at ...
      hint: say limits=Limits(bytes=...) if you trust where it comes from
    """

    bytes: int = 16_000_000
    nodes: int = 100_000
    terms: int = 10_000
    rank: int = 64
    loops: int = 1_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
                raise ParseError(f"limits: {field.name} is {short_repr(value)}, not a positive number of 63 bits")

    @arguments(ParseError)
    def check(self, what: str, count: int, name: str, counted: str = "") -> None:
        """Raise unless ``count`` is within the limit called ``name``.

        >>> Limits(rank=2).check("the tensor t", 3, "rank", "axes")
        Traceback (most recent call last):
            ...
        idgraph.errors.ParseError: the tensor t has 3 axes, at most 2 are read
          at ...
          hint: say limits=Limits(rank=...) if you trust where it comes from
        """
        most: int = getattr(self, name)
        if count > most:
            raise ParseError(
                f"{what} has {count} {counted or name}, at most {most} are read",
                hint=f"say limits=Limits({name}=...) if you trust where it comes from",
            )


LIMITS = Limits()


def read_within(place: str | Path, most: int) -> bytes:
    """The bytes of a file; ``most`` + 1 of one that has more than ``most``.

    A pipe that nobody writes to is empty: it is not waited for. Raises OSError, and ValueError for a path that no
    system has.

    >>> len(read_within("/dev/zero", 1000))
    1001
    """
    with cast("BinaryIO", open(place, "rb", opener=_at_once)) as stream:
        os.set_blocking(stream.fileno(), True)
        return stream.read(most + 1)


def open_plain(place: Path, mode: str) -> BinaryIO:
    """The file, open without a buffer; raises OSError at once for anything but a plain file, such as a pipe.

    >>> open_plain(Path("/dev/zero"), "rb")
    Traceback (most recent call last):
        ...
    OSError: [Errno 22] it is not a plain file: '/dev/zero'
    """
    stream = open(place, mode, buffering=0, opener=_at_once)  # noqa: SIM115 - it is the caller's
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is not a plain file", str(place))
    return cast("BinaryIO", stream)


def _at_once(place: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe."""
    return os.open(place, flags | os.O_NONBLOCK, 0o666)


def check_name(name: object, what: str) -> str:
    """A printable name of 1 to 200 characters; anything else is an error (names reach text and pictures)."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise OperationError(
            f"{short_repr(name)} is not a name for a {what}",
            where=user_line(),
            hint="1 to 200 printable characters, no line breaks",
        )
    return name
