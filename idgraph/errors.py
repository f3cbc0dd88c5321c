"""The one family of errors: what went wrong, where the user wrote it, because of which facts, and a way out.

`arguments` makes one of them of a wrong argument, wherever inside it is noticed.
Long: the errors and the decorator that makes them, with what annotations allow, are read together.
"""

from __future__ import annotations

import builtins
import contextlib
import linecache
import re
import sys
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, update_wrapper
from operator import index
from pathlib import Path
from threading import local
from types import FunctionType, ModuleType, NoneType, SimpleNamespace, UnionType
from typing import (
    Any,
    ForwardRef,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

VERSION = "0.1.0"  # of the package; pyproject.toml says the same
REPORT = f"this is a fault of idgraph {VERSION}, not of the program: please report it, with the traceback"

P = ParamSpec("P")
R = TypeVar("R")

_VARARGS = 4  # inspect.CO_VARARGS, without an import of 10 ms
_PACKAGE = str(Path(__file__).resolve().parent)
_INSTALLED = (str(Path(linecache.__file__).parent), str(Path(sys.prefix) / "lib"))  # Python, and what it imports
_OURS = (_PACKAGE, "<frozen", contextlib.__file__)  # a context manager's exit runs between our frames


def visible(text: str, *, lines: bool = False) -> str:
    r"""``text`` with every character that is not printable written as its escape; ``lines`` keeps breaks and tabs.

    A terminal obeys control characters, format characters turn the direction of a line, and a lone surrogate cannot
    be written at all.

    >>> visible("a\x1b[2Jb\u202ec\n"), visible("two\nlines", lines=True)
    ('a\\x1b[2Jb\\u202ec\\n', 'two\nlines')
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program: the place where an operation or a schedule step was written.

    Characters that are not printable are held as their escapes.

    >>> str(SourceLine("rope.py", 12, "t1 = t0[:32]"))
    'rope.py:12: t1 = t0[:32]'
    """

    file: str
    line: int
    code: str = ""

    def __post_init__(self) -> None:
        # A line is shown in terminals, pictures, tables and pages: what it holds can neither steer nor reorder them.
        for name in ("file", "code"):
            text = getattr(self, name)
            if not text.isprintable():
                object.__setattr__(self, name, visible(text.replace("\t", " ")))

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.code}" if self.code else place


class _CallerLine(local):
    """The line that all steps of one call of this package stem from, by thread; ``known`` where one is set."""

    known = False
    line: SourceLine | None = None


_TOLD = _CallerLine()


@contextlib.contextmanager
def one_line() -> Generator[None]:
    """Within, `user_line` is looked for once: for calls that take thousands of steps, none of them in a user's frame.

    >>> with one_line():
    ...     first, second = user_line(), user_line()
    >>> first is second, first.line, user_line().line
    (True, 1, 1)
    """
    if _TOLD.known:
        yield
        return
    _TOLD.line, _TOLD.known = user_line(), True
    try:
        yield
    finally:
        _TOLD.line, _TOLD.known = None, False


def user_line() -> SourceLine | None:
    """The innermost frame of the call stack that lies outside this package (no frame is kept alive)."""
    if _TOLD.known:
        return _TOLD.line
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - inspect costs an import of 10 ms
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            # linecache reads a file once; a doctest or a prompt has no file and gives an empty line.
            return _source_line(file, frame.f_lineno, linecache.getline(file, frame.f_lineno))
        frame = frame.f_back
    return None


def warn_user(text: str) -> None:
    """Warn at the user's line: the innermost frame outside this package."""
    level, frame = 1, sys._getframe()  # pyright: ignore[reportPrivateUsage] - as above
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


@lru_cache(maxsize=4096)
def _source_line(file: str, line: int, code: str) -> SourceLine:
    """One object for all operations that a line makes, as a loop's does."""
    return SourceLine(display_file(file), line, code.strip())


def display_file(file: str) -> str:
    """A file by its name; a notebook's cell, which runs from a file with a number for a name, as ``cell``."""
    if file.startswith("<"):
        return file
    path = Path(file)
    return "cell" if path.parent.name.startswith("ipykernel_") else path.name


class IdGraphError(Exception):
    """Root of every error of the library.

    ``what`` is one sentence; ``where`` the user's line; ``because`` the chain of facts; ``hint`` a way out; ``origins``
    the lines of the tensors that it names by numbers (t5), where it does not say them already.

    >>> print(IdGraphError("axis 2 does not exist", where="a.py:3: t.split(2, 8)", hint="t has 2 axes: 0 and 1"))
    axis 2 does not exist
      at a.py:3: t.split(2, 8)
      hint: t has 2 axes: 0 and 1
    """

    def __init__(
        self, what: str, *, where: str | SourceLine | None = None, because: Sequence[str] = (), hint: str = ""
    ) -> None:
        self.what = what
        self.where = "" if where is None else str(where)
        self.because = tuple(because)
        self.hint = hint
        self.origins = dict[str, str]()
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        lines += [f"  {name} is made at {line}" for name, line in self.origins.items()]
        lines += [f"  because {fact}" for fact in self.because]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return visible("\n".join(lines), lines=True)


class OperationError(IdGraphError, ValueError):
    """An operation was built with shapes, types or bounds that have no meaning.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 6))
    >>> ig.reshape(t, 5, 5)
    Traceback (most recent call last):
    idgraph.errors.OperationError: reshape: t has shape (4, 6), 24 elements; (5, 5) has 25
      ...
    """


class FusionError(IdGraphError):
    """A fusion is not well formed; ``violations`` holds every finding, each with its line.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(4,)) + 1
    >>> f.verify()
    Traceback (most recent call last):
    idgraph.errors.FusionError: fusion f is not well formed: 1 violation(s)
      at ...
      because fusion f has no output
      hint: mark what it computes: f.output(tensor)
    """

    def __init__(self, what: str, violations: Sequence[str] = (), *, hint: str = "") -> None:
        self.violations = tuple(violations)
        super().__init__(what, because=violations, hint=hint)


class ScheduleError(IdGraphError):
    """A schedule that is not legal: a wrong axis, an inlining past a consumer, a race between parallel axes.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("a", shape=(4,)) + 1
    >>> t.inline(2)
    Traceback (most recent call last):
    idgraph.errors.ScheduleError: inline: tensor t1 has 1 loop axes, position 2 is past them
      ...

    ``subject`` names the tensor whose inlining is not legal, and the output of the operation that reads it (or none);
    ``loop`` is the first of its loops that the two do not share, if that is why. ``subjects`` are those of all such
    inlinings that were seen at once.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | SourceLine | None = None,
        because: Sequence[str] = (),
        hint: str = "",
        subject: tuple[str, ...] = (),
        loop: int | None = None,
    ) -> None:
        self.subject = subject
        self.loop = loop
        self.subjects: tuple[tuple[str, ...], ...] = (subject,)
        super().__init__(what, where=where, because=because, hint=hint)


class IndexingError(IdGraphError):
    """A question about indices that has no answer (an access that does not exist, an axis no loop reaches).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, b = f.input("a", shape=(4,)), f.input("b", shape=(4,))
    >>> ig.IdModel(f).access((a + 1).definition, b)
    Traceback (most recent call last):
    idgraph.errors.IndexingError: t2[I2] = add(a[I0], 1) neither reads nor writes b
      ...
    """


class ParseError(IdGraphError, ValueError):
    """Text or JSON that does not say a fusion or an index expression.

    >>> import idgraph as ig
    >>> ig.parse("fusion f {")
    Traceback (most recent call last):
    idgraph.errors.ParseError: line 1: expected a name, found the end of the text
      ...
    """


class EmitError(IdGraphError):
    """A fusion that a target cannot express, or arrays that do not fit its inputs.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(4,)) + 1)
    >>> ig.emit(f, target="fpga")
    Traceback (most recent call last):
    idgraph.errors.EmitError: unknown target 'fpga'
      at ...: ig.emit(f, target="fpga")
      hint: one of python, numpy, cpu, cuda
    """


class FrontendError(IdGraphError):
    """A program of another system that could not be imported.

    >>> import idgraph as ig
    >>> ig.frontends.fx.from_json("no_such_file.json")
    Traceback (most recent call last):
    idgraph.errors.FrontendError: 'no_such_file.json' cannot be read: No such file or directory
      at ...
    """


class ArgumentError(IdGraphError, TypeError):
    """A call with a keyword that the function does not have, or without an argument that it needs.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("x", shape=(4,))
    >>> ig.sum(t, axis=0)
    Traceback (most recent call last):
    idgraph.errors.ArgumentError: sum() got an unexpected keyword argument 'axis'
      ...
      hint: did you mean dim=?
    """


class InternalError(IdGraphError, RuntimeError):
    """A fault of the library itself, noticed by the library: no argument is to blame, and the fusion is as it was.

    >>> import idgraph as ig
    >>> from idgraph.ir.clone import at_most
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4,))
    >>> with at_most(f, 1):
    ...     x = ig.exp(x) + 1.0
    Traceback (most recent call last):
    idgraph.errors.InternalError: rewriting fusion f does not end: a step more would build add
      ...
    """

    def __init__(self, what: str, *, because: Sequence[str] = ()) -> None:
        super().__init__(what, because=because, hint=REPORT)


Keep = Callable[[tuple[object, ...], Mapping[str, object]], "Callable[[], None] | None"]


def arguments(
    error: type[IdGraphError], *, first: bool = False, keep: Keep | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function: an argument that its annotation does not allow ends in one ``error`` that names it.

    ``first``: all arguments are looked at before the call. Else only flags are, and the others when the call has
    raised what is not an `IdGraphError`. An exception that no annotation explains goes on unchanged, with its
    traceback; one that code of the library raised gets a note that asks for a report. What a function cannot take and
    no annotation says, it refuses itself.
    ``keep`` makes, of the arguments, the function that puts back what the call may have changed when it failed or was
    interrupted (`idgraph.ir.transaction`).

    >>> import idgraph as ig
    >>> ig.emit(5)
    Traceback (most recent call last):
    idgraph.errors.EmitError: emit: fusion is 5, an int
      ...
      hint: fusion: a Fusion
    """

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        function = cast("FunctionType", f)
        blame, misfit, known, noted, trim, by_kind = _blame, _misfit, IdGraphError, _noted, trimmed, _by_kind
        unwritable, located = _unwritable, _add_origins
        hints = function.__annotations__
        names = function.__code__.co_varnames
        fit = set[tuple[type, ...] | None]()  # kinds of arguments known to be allowed, where no more than kinds counts
        flags = tuple((n, names.index(n)) for n, hint in hints.items() if hint in ("bool", bool) and n != "return")

        def call(*args: Any, **kwargs: Any) -> Any:
            for name, at in flags:
                value = kwargs[name] if name in kwargs else args[at] if at < len(args) else True
                if value is not True and value is not False:
                    wrong = blame(function, args, kwargs, error)
                    if wrong is not None:
                        raise wrong
            kinds = tuple(map(type, args)) if first and not kwargs else None
            if first and kinds not in fit:
                wrong = blame(function, args, kwargs, error)
                if wrong is not None:
                    raise wrong
                if kinds is not None and by_kind(function):
                    fit.add(kinds)
            restore = None if keep is None else keep(args, kwargs)
            try:
                return function(*args, **kwargs)
            except BaseException as failure:
                if restore is not None:
                    restore()
                if isinstance(failure, known):
                    located(failure, args)
                    raise trim(failure) from failure.__cause__
                if not isinstance(failure, Exception):
                    raise
                wrong = misfit(function, failure) or blame(function, args, kwargs, error)
                if wrong is None and isinstance(failure, ValueError | RecursionError):
                    wrong = unwritable(function, args, kwargs, error)
                if wrong is not None:
                    raise trim(wrong) from None  # `failure` stays its context, with its traceback
                noted(failure)
                raise

        return cast("Callable[P, R]", _standing_for(call, function))

    return decorate


_NUMBERED = re.compile(r"\bt\d+\b")  # a tensor that the user gave no name


def _add_origins(failure: IdGraphError, args: tuple[object, ...]) -> None:
    """The lines of those tensors among the arguments, or of a fusion among them, that ``failure`` names by number;
    the user's line where it names none."""
    text = "\n".join((failure.what, failure.where, *failure.because))
    missing = set(_NUMBERED.findall(text)) - failure.origins.keys()
    for x in args if missing else ():
        own = type(x).__module__.startswith("idgraph.")  # attributes of others may do anything
        for t in getattr(x, "tensors", (x,)) if own else ():
            name, line = str(getattr(t, "name", "")), getattr(t, "source_line", None)
            if name in missing and isinstance(line, SourceLine) and line.code and str(line) not in text:
                failure.origins[name] = str(line)
    called = None if failure.where or failure.origins or isinstance(failure, InternalError) else user_line()
    if called is not None and called.code:
        failure.where = str(called)


def _standing_for(call: Callable[..., object], function: FunctionType) -> FunctionType:
    """``call`` with the name, text and module of ``function``.

    doctest takes a function for its module's by its globals, so all that ``call`` needs is in its closure.
    """
    body = cast("FunctionType", call)
    made = FunctionType(body.__code__, function.__globals__, function.__name__, None, body.__closure__)
    update_wrapper(made, function)
    return made


def shortened(f: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function that `arguments` does not: its errors come with one frame of ours."""
    function, known, trim, located, misfit = cast("FunctionType", f), IdGraphError, trimmed, _add_origins, _misfit

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except known as failure:
            located(failure, args)
            raise trim(failure) from failure.__cause__
        except TypeError as failure:
            wrong = misfit(function, failure)
            if wrong is None:
                raise
            raise trim(wrong) from None

    return cast("Callable[P, R]", _standing_for(call, function))


class _Tracebacks:
    """Whether errors keep the frames in which they were raised."""

    full = False


def full_tracebacks(on: bool = True) -> None:
    """Keep every frame in the tracebacks of our errors, to debug the library; by default they end where it begins.

    >>> full_tracebacks()
    >>> full_tracebacks(False)
    """
    _Tracebacks.full = on


def trimmed(failure: IdGraphError) -> IdGraphError:
    """``failure`` without the frames below the public function that raises it, nor those of causes that are ours too.

    An `InternalError`, and a cause that is none of ours, keep theirs: where a fault is stands in nothing else.
    """
    if not _Tracebacks.full:
        failure.__suppress_context__ = True
        at: BaseException | None = failure
        seen: set[int] = set()
        while isinstance(at, IdGraphError) and not isinstance(at, InternalError) and id(at) not in seen:
            seen.add(id(at))
            at.__traceback__ = None
            at = at.__cause__ or at.__context__
    return failure


def _by_kind(f: FunctionType) -> bool:
    """Whether all that the annotations ask of arguments is to be objects of classes of this package."""
    found = [_resolved(hint, f) for name, hint in f.__annotations__.items() if name != "return"]
    ours = [c for c in found if isinstance(c, type) and c.__module__.startswith("idgraph.")]
    return len(ours) == len(found) and not any(getattr(c, "_is_protocol", False) for c in ours)


def _blame(
    f: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object], error: type[IdGraphError]
) -> IdGraphError | None:
    """An ``error`` for the first argument that its annotation does not allow."""
    for name, value in _named_arguments(f, args, kwargs):
        hint = f.__annotations__.get(name)
        if hint is not None and not _allowed(value, allowed := _resolved(hint, f), 64):
            kind = type(value).__name__
            told = error(
                f"{f.__name__}: {name} is {short_repr(value)}, {'an' if kind[0] in 'aeiou' else 'a'} {kind}",
                where=user_line(),
                hint=f"{name}: {_in_words(allowed)}",
            )
            told.__suppress_context__ = True
            return told
    return None


def _misfit(f: FunctionType, failure: Exception) -> ArgumentError | None:
    """The error for a call that Python itself refused: a keyword that is not known, an argument that is missing."""
    at = failure.__traceback__
    if not isinstance(failure, TypeError) or at is None or at.tb_next is not None:
        return None
    code = f.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    name = f.__qualname__.split(".")[-2] if f.__name__ == "__init__" else f.__name__
    said = str(failure).rpartition(".")[2] if "()" in str(failure) else str(failure)
    said = said.replace("__init__()", f"{name}()")
    strange = said.rpartition("unexpected keyword argument ")[2].strip("'") if "unexpected keyword" in said else ""
    near = nearest(strange, names) if strange else ""
    shown = [n for n in names[: code.co_argcount] if n not in ("self", "cls")]
    more = list(code.co_varnames[count : count + bool(code.co_flags & 4) + bool(code.co_flags & 8)])
    if code.co_flags & 8:  # inspect.CO_VARKEYWORDS; 4 is CO_VARARGS
        more[-1] = "name=..."
    call = f"{name}({', '.join([*shown, *more, *(['...'] if code.co_kwonlyargcount else [])])})"
    return ArgumentError(said, where=user_line(), hint=f"did you mean {near}=?" if near else call)


def _unwritable(
    f: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object], error: type[IdGraphError]
) -> IdGraphError | None:
    """An ``error`` for the first argument that Python cannot write down: an integer of more than
    `sys.get_int_max_str_digits` digits, a list nested deeper than the stack."""
    for name, value in _named_arguments(f, args, kwargs):
        if type(value) not in (int, list, tuple, dict):
            continue
        try:
            repr(value)
        except (ValueError, RecursionError) as failure:
            kind = "an integer" if isinstance(value, int) else f"a {type(value).__name__}"
            return error(
                f"{f.__name__}: {name} is {kind} that cannot be written down",
                where=user_line(),
                because=(str(failure),),
            )
    return None


_SYSTEM = (OSError, ImportError, Warning)  # of a path, of an extra that is not installed, of a caller's own filter


def _noted(failure: Exception) -> None:
    """Add, once, where to report an exception that code of the library raised.

    Not one of the system, nor one of the caller's: Python's own refusal of the call, and what a function of the
    program's raised that ran inside, such as a signal's handler.
    """
    at = failure.__traceback__
    at = None if at is None else at.tb_next
    if at is None or isinstance(failure, _SYSTEM) or REPORT in getattr(failure, "__notes__", ()):
        return
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if not file.startswith((*_OURS, *_INSTALLED)):
            return
        at = at.tb_next
    failure.add_note(REPORT)


def _named_arguments(
    f: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[tuple[str, object]]:
    """Arguments with the names of their parameters; those that fit no parameter are Python's to refuse."""
    code = f.__code__
    names = code.co_varnames
    found = list(zip(names[: code.co_argcount], args, strict=False))
    if code.co_flags & _VARARGS:
        at = code.co_argcount + code.co_kwonlyargcount
        found += [(names[at], value) for value in args[code.co_argcount :]]
    return found + [(n, v) for n, v in kwargs.items() if n in names[: code.co_argcount + code.co_kwonlyargcount]]


# What NumPy, torch, C, LLVM and others call it.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "axis": ("dim", "dims"), "axes": ("dims",), "keepdims": ("keepdim",), "dim": ("dims",), "dims": ("dim",),
    "gpu": ("cuda",), "nvidia": ("cuda",), "llvm": ("cpu",), "numba": ("cpu",), "np": ("numpy",),
    "f16": ("float16",), "fp16": ("float16",), "half": ("float16",), "bf16": ("bfloat16",), "f32": ("float32",),
    "fp32": ("float32",), "float": ("float32",), "f64": ("float64",), "fp64": ("float64",), "double": ("float64",),
    "i8": ("int8",), "u8": ("uint8",), "byte": ("uint8",), "i16": ("int16",), "short": ("int16",), "i32": ("int32",),
    "int": ("int32",), "i64": ("int64",), "long": ("int64",), "i1": ("bool",),
}  # fmt: skip


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that ``word`` was probably meant to be, "" where none is near.

    >>> nearest("slcie", ("slice", "cat")), nearest("SLICE", ("slice",)), nearest("conv2d", ("slice", "cat"))
    ('slice', 'slice', '')
    >>> nearest("expp", ("Expr", "exp")), nearest("gpu", ("cpu", "cuda")), nearest("axis", ("x", "dims"))
    ('exp', 'cuda', 'dims')
    """
    words = sorted(known)
    for other in _SYNONYMS.get(word.lower(), ()):
        if other in words:
            return other
    limit = max(1, min(3, len(word) // 3 + (len(word) > 4)))
    near = [
        (_distance(word.lower()[:40], k.lower()[:40]), _distance(word[:40], k[:40]), k)
        for k in words
        if abs(len(k) - len(word)) <= limit
    ]
    best = min(near, default=(limit + 1, 0, ""))
    return best[2] if best[0] <= limit else ""


def _distance(a: str, b: str) -> int:
    """Letters to insert, drop, change or exchange with a neighbour (Damerau 1964)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for n, x in enumerate(a):
        last, row, before = before, [n + 1], row
        for m, y in enumerate(b):
            cost = min(before[m + 1] + 1, row[m] + 1, before[m] + (x != y))
            if n and m and x == b[m - 1] and a[n - 1] == y:
                cost = min(cost, last[m - 1] + 1)
            row.append(cost)
    return row[-1]


def no_attribute(module: ModuleType, name: str, otherwise: str = "", instead: str = "") -> AttributeError:
    """The error of a module that lacks ``name``: with what to write ``instead`` where that is known, else with the
    nearest of its names, else with ``otherwise``.

    >>> import idgraph.layout
    >>> print(no_attribute(idgraph.layout, "infr"))
    module 'idgraph.layout' has no attribute 'infr'; did you mean 'infer'?
    """
    near = "" if name.startswith("_") else nearest(name, {*dir(module), *getattr(module, "__all__", ())})
    hint = f"; here it is {instead}" if instead else f"; did you mean {near!r}?" if near else otherwise
    return AttributeError(f"module {module.__name__!r} has no attribute {name!r}{hint}", name=name, obj=module)


def suggesting(package: str) -> Callable[[str], object]:
    """The ``__getattr__`` of a package: the error of a name that it lacks.

    >>> import idgraph.layout
    >>> suggesting("idgraph.layout")("infr")
    Traceback (most recent call last):
    AttributeError: module 'idgraph.layout' has no attribute 'infr'; did you mean 'infer'?
    """

    def missing(name: str) -> object:
        raise no_attribute(sys.modules[package], name)

    return missing


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the nearest known word, else ``otherwise``."""
    found = nearest(word, known)
    return f"did you mean {found!r}?" if found else otherwise


def one_of(word: object, known: Iterable[str]) -> str:
    """The hint for a word of a closed set: the nearest one, else all of them.

    >>> one_of("H20", ("H200", "cpu")), one_of(5, ("xor", "cyclic"))
    ("did you mean 'H200'?", 'one of xor, cyclic')
    """
    words = list(known)
    return did_you_mean(word if isinstance(word, str) else "", words, f"one of {', '.join(words)}")


def short_repr(value: object, limit: int = 60) -> str:
    """The repr, cut; the type's name where it has none (a list nested a thousand deep)."""
    try:
        text = repr(value)
    except Exception:  # whatever an object of somebody else's raises
        return f"<{type(value).__name__}>"
    text = text.partition("\n")[0] + " ..." if "\n" in text else text  # a fusion
    return text if len(text) <= limit else text[: limit - 3] + "..."


class _Loaded(dict[str, object]):
    """Names that annotations use and a module imports for its checker only, in whatever module of ours has them."""

    def __missing__(self, name: str) -> object:
        ours = (m for key, m in list(sys.modules.items()) if key.startswith(f"{__name__.partition('.')[0]}."))
        for module in ours if not hasattr(builtins, name) else ():
            if name in vars(module):
                return vars(module)[name]
        raise KeyError(name)


def _resolved(hint: object, f: FunctionType) -> object:
    """The type that an annotation names; ``object`` where its names are not known when the program runs."""
    try:
        return _annotation_type(hint, f)
    except (NameError, TypeError):
        return object


@cache
def _annotation_type(hint: object, f: FunctionType) -> object:
    """The type that an annotation names, read once; an error is not kept: the name may come later."""
    given = SimpleNamespace(__annotations__={"it": hint})
    return get_type_hints(given, f.__globals__, _Loaded(f.__globals__))["it"]


def _is_index(value: object) -> bool:
    try:
        index(cast("SupportsIndex", value))
    except Exception:  # whatever an object of somebody else's raises
        return False
    return not isinstance(value, bool) and type(value).__name__ != "bool"


def _allowed(value: object, hint: object, depth: int) -> bool:
    """True unless the annotation plainly excludes the value; a bool is not an int, text and bytes are not sequences."""
    if isinstance(hint, str | TypeVar | ForwardRef) or hint is Any or depth == 0:
        return True
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        return any(_allowed(value, h, depth - 1) for h in parts)
    if origin is Literal:
        return any(type(value) is type(part) for part in parts)  # which words are known is the function's to say
    kind = origin or hint
    if kind is None or kind is NoneType:
        return value is None
    if not isinstance(kind, type):
        return True
    if kind is int or kind is float:
        return not isinstance(value, bool) and (_is_index(value) or (kind is float and isinstance(value, float)))
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
    try:
        held = isinstance(value, kind)
    except TypeError:  # a protocol
        return all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))
    if isinstance(value, str | bytes) and kind in (Sequence, Iterable, Collection):
        return False
    if held and kind is tuple and len(parts) == 2 and parts[1] is Ellipsis:
        return all(_allowed(v, parts[0], depth - 1) for v in cast("tuple[object, ...]", value))
    if held and isinstance(value, list | tuple | set | frozenset | range) and parts and kind is not tuple:
        some = cast("Iterable[object]", value[:1] if isinstance(value, range) else value)
        return all(_allowed(v, parts[0], depth - 1) for v in some)
    if held and isinstance(value, Mapping) and len(parts) == 2:
        pairs = cast("Mapping[object, object]", value).items()
        return all(_allowed(k, parts[0], depth - 1) and _allowed(v, parts[1], depth - 1) for k, v in pairs)
    return held


_NOUNS = {
    "int": "integer", "float": "number", "str": "string", "bool": "boolean", "PathLike": "path", "Path": "path",
    "Iterable": "sequence", "Collection": "sequence", "Sequence": "sequence", "tuple": "sequence", "list": "sequence",
    "Mapping": "mapping", "dict": "mapping", "Callable": "function", "ndarray": "array",
}  # fmt: skip


def _in_words(hint: object, *, many: bool = False) -> str:
    """An annotation as it is said: `Mapping[str, int] | None` is "a mapping of strings to integers or None"."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        named = [p for p in parts if not getattr(p, "_is_protocol", False)]
        named = named if any(p is not NoneType for p in named) else list(parts)
        words = list(dict.fromkeys(_in_words(p, many=many) for p in named))
        words = [w for w in words if w != "anything"] if {*words} - {"anything", "None"} else ["anything"]
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if origin is Literal:
        return "one of " * (len(parts) > 1) + ", ".join(map(repr, parts))
    kind = origin or hint
    if kind is None or kind is NoneType:
        return "None"
    if not isinstance(kind, type) or kind is Any or kind is object:
        return "anything"
    if kind is bool and not many:
        return "True or False"
    noun = _NOUNS.get(kind.__name__, kind.__name__)
    said = f"{noun}s" if many else f"{'an' if noun[0] in 'aeiouAEIO' else 'a'} {noun}"
    if noun == "sequence" and parts:
        said += f" of {_in_words(parts[0], many=True)}"
    if noun == "mapping" and parts:
        said += f" of {_in_words(parts[0], many=True)} to {_in_words(parts[1], many=True)}"
    return said
