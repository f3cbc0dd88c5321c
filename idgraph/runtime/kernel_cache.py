"""Compiled kernels on disk: text by a key of all that it follows from (`idgraph.runtime.program_cache`: programs).

A file holds text and a checksum of it, nothing that reading could run. A kernel is code for the device all the same:
an entry is read only where it and the folder belong to this user (or to root) and nobody else can write them, no
folder above is everybody's to write, and a link in the place of an entry is not followed. It is written beside its
place and then moved there, so a reader sees all of it or none; one that is damaged, cut short or of another version is
made anew. A file that a killed process left half written is never read, and a write a day later removes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from idgraph.errors import EmitError

FORMAT = "idgraph kernel 3"
BESIDE = ".making-"  # the prefix of the names of files being written
_LINKS = 40  # as many as Linux follows
MOST_BYTES = 2**28  # of an entry; a larger one is not of this library
# They keep, name and start what is compiled: no kernel is another one when their text changes.
BESIDE_COMPILING = frozenset({"trampoline.py", "launch.py"})
STALE = 24 * 3600  # seconds after which nobody is still writing it
FOLDER_BYTES = 2**31  # of all entries of a folder; those that were not used for longest go first
CLEARED = 0.75  # of that, what stays then
WRITES = 64  # of a process, after which it looks at the size of a folder again
_ENTRY = re.compile(r"[0-9a-f]{64}\.(?:ptx|obj|program)", re.ASCII)


@dataclass(frozen=True, slots=True)
class KernelCache:
    """A folder of compiled kernels, made when first written; any number of processes may share it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = KernelCache(Path(folder))
    ...     kept.text("key", lambda: "made"), kept.text("key", lambda: "made again")
    ('made', 'made')
    """

    folder: Path
    suffix: str = ".ptx"
    limit: int = FOLDER_BYTES

    def text(self, key: str, make: Callable[[], str]) -> str:
        """The text stored under ``key``, else what ``make`` gives, which is stored.

        Raises `EmitError` where the folder cannot be written, before anything is made for it.
        """
        found = self.find(key)
        if found is None:
            self.check()
            found = make()
            self.put(key, found)
        return found

    def find(self, key: str) -> str | None:
        """The text stored under ``key``; None where there is none that is whole."""
        name = _digest(key)
        return _read_entry(self.folder / f"{name}{self.suffix}", name) if _is_ours(self.folder) else None

    def put(self, key: str, text: str) -> None:
        """Store ``text`` in place of the old one; readers see the one or the other."""
        name = _digest(key)
        self._write(self.folder / f"{name}{self.suffix}", f"{FORMAT}\n{name}\n{_digest(text)}\n{text}")

    def check(self) -> None:
        """Raise `EmitError` where nothing can be written to the folder, so that it is known before long work."""
        handle, beside = self._opened()
        os.close(handle)
        with contextlib.suppress(OSError):
            Path(beside).unlink()

    def _opened(self) -> tuple[int, str]:
        try:
            for part in reversed((self.folder, *self.folder.parents)):
                part.mkdir(exist_ok=True, mode=0o700)
            if (weak := _weak(self.folder)) is not None:
                raise EmitError(
                    f"others may write to the kernel cache {self.folder}, or it is somebody else's",
                    because=[] if weak == self.folder else [f"{weak} lies on the way to it"],
                    hint=f"a folder of your own that only you can write: chmod go-w {shlex.quote(str(weak))}",
                )
            return tempfile.mkstemp(dir=self.folder, prefix=BESIDE)
        except (OSError, ValueError) as error:  # a path with a NUL is a wrong value
            raise EmitError(
                f"the kernel cache {self.folder} cannot be written",
                because=[str(error)],
                hint="name a folder of your own: emit(f, 'cuda', cache=...)",
            ) from None

    def _write(self, place: Path, text: str) -> None:
        handle, beside = self._opened()
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
                out.write(text)
            Path(beside).replace(place)
        except OSError as error:
            with contextlib.suppress(OSError):
                Path(beside).unlink()
            raise EmitError(f"the kernel cache {self.folder} cannot be written", because=[str(error)]) from None
        self._sweep()

    def _sweep(self) -> None:
        """Take away what processes that were killed have left."""
        with contextlib.suppress(OSError):
            for left in self.folder.glob(f"{BESIDE}*"):
                with contextlib.suppress(OSError):
                    if time.time() - left.stat().st_mtime > STALE:
                        left.unlink()
        written = _WRITTEN[self.folder] = _WRITTEN.get(self.folder, -1) + 1
        if written % WRITES == 0:
            self.shrink()

    def shrink(self) -> None:
        """Take away the entries that were not used for longest, where all together are larger than ``limit`` bytes.

        A file is an entry by its name; others in the folder stay.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     kept = KernelCache(Path(folder), limit=1000)
        ...     for n in range(4):
        ...         kept.put(str(n), "made" * 40)
        ...     kept.shrink()
        ...     len([*Path(folder).iterdir()])
        2
        """
        with contextlib.suppress(OSError), os.scandir(self.folder) as every:
            entries = [(e.stat(follow_symlinks=False), e.path) for e in every if _ENTRY.fullmatch(e.name)]
            total = sum(s.st_size for s, _ in entries)
            if total <= self.limit:
                return
            for found, path in sorted(entries, key=lambda e: max(e[0].st_atime, e[0].st_mtime)):
                if total <= self.limit * CLEARED:
                    return
                with contextlib.suppress(OSError):
                    Path(path).unlink()
                    total -= found.st_size


def user_folder() -> Path | None:
    """The user's own folder of kernels (``$XDG_CACHE_HOME/idgraph``, ``~/.cache/idgraph``); None where it cannot be
    written, or others could write to it.

    >>> folder = user_folder()
    >>> folder is None or folder.name == "idgraph"
    True
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME", "")
        folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "idgraph"
        KernelCache(folder).check()
    except (EmitError, RuntimeError):  # no home
        return None
    return folder


_WRITTEN: dict[Path, int] = {}  # entries that this process has written, by folder
_FALLBACK: list[KernelCache] = []


def keep_in(folder: Path | None) -> None:
    """Kernels of programs that name no folder are kept in this one, for the rest of the process; None: nowhere."""
    _FALLBACK[:] = [] if folder is None else [KernelCache(folder)]


def fallback() -> KernelCache | None:
    """Where the kernels of programs that name no folder are kept."""
    return next(iter(_FALLBACK), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_entry(place: Path, name: str) -> str | None:
    """The stored text, or None where there is none that is whole and of this format."""
    try:
        with open(place, "rb", opener=_not_followed) as stream:
            found = os.fstat(stream.fileno())
            if not _owned(found, stat.S_ISREG) or found.st_size > MOST_BYTES:
                return None
            head, own, digest, text = stream.read().decode().split("\n", 3)
    except (OSError, ValueError):
        return None
    return text if (head, own, digest) == (FORMAT, name, _digest(text)) else None


def _not_followed(place: str, flags: int) -> int:
    return os.open(place, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _is_ours(folder: Path) -> bool:
    """Whether only this user, or root, can change what the folder holds, or put another in its place."""
    try:
        return _weak(folder) is None
    except (OSError, ValueError):
        return False


def _weak(folder: Path) -> Path | None:
    """The first of the folders and links on the way to ``folder`` that everybody can change, or ``folder`` itself where
    anybody else can.

    In a folder with the sticky bit, such as /tmp, others can make files and cannot move those of this user; a link
    there is followed where it belongs to this user or the folder's owner, as Linux does. Whoever owns a folder above,
    or shares its group, is trusted with it: a checkout often lies in another account's folder.
    """
    place, links = Path("/"), 0
    parts = [*reversed((Path.cwd() / folder).parts[1:])]
    while True:
        found = place.stat()
        if not parts:
            return None if _owned(found, stat.S_ISDIR) else folder
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return place
        trusted = (0, os.geteuid(), found.st_uid)
        following = place / parts.pop()
        found = following.lstat()
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            if found.st_uid not in trusted:
                return following
            parts += reversed(following.readlink().parts)
        else:
            place = place.parent if following.name == ".." else following
        if parts and parts[-1] == "/":
            place = Path(parts.pop())


def _owned(found: os.stat_result, kind: Callable[[int], bool]) -> bool:
    others = stat.S_IWGRP | stat.S_IWOTH
    return kind(found.st_mode) and found.st_uid in (0, os.geteuid()) and not found.st_mode & others


@cache
def versions() -> str:
    """The compilers, and the text of the modules that feed them."""
    made: list[str] = []
    for package in ("idgraph", "numba", "numba-cuda", "nvidia-cuda-nvvm", "nvidia-nvvm", "llvmlite"):
        try:
            made.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            made.append(f"{package} none")
    here = Path(__file__).parent
    ops = here.parent / "codegen" / "runtime_lib"
    compiling = [
        *(f for f in sorted(here.glob("cpu/*.py")) if f.name not in BESIDE_COMPILING),
        *sorted(here.glob("cuda/*.py")),
        here / "source_function.py",
        *sorted(ops.glob("*.py")),
    ]
    made += [_digest(f.read_text(encoding="utf-8")) for f in compiling]
    return "\n".join(made)
