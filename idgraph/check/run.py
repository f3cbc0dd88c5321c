"""A program with the loop nests of its generated source in place of the scheduler's: the same rows are decided.

The two entry points: a function through TorchInductor, and a program in the neutral form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike

from idgraph.arith import TRUE, simplify
from idgraph.check.buffer_contents import BufferContents, entangled, order_matters, unwritten
from idgraph.check.decide import decide
from idgraph.check.enumeration import sample_sizes
from idgraph.check.inductor_wrapper import Argument, launches
from idgraph.check.program import ZERO, BufferLayout, CheckError, Nest, NeutralProgram, Write
from idgraph.check.program_json import read_any
from idgraph.check.report import CheckReport, CheckRow, Difference
from idgraph.check.semantics import NoIndexMeaning
from idgraph.check.statement_values import computed, opaque_write, other_number
from idgraph.check.tree_verdict import follow_tree, runs_right
from idgraph.check.triton import read_kernel
from idgraph.check.value_cases import sizes_of_cases
from idgraph.errors import IdGraphError


def of_source(
    program: NeutralProgram, text: str, dtypes: Mapping[str, str] | None = None
) -> tuple[NeutralProgram, list[str]]:
    """The same program with the nests that its generated source has; and kernels that could not be read, with reasons.

    Buffers keep the names that the wrapper gives them, those of the scheduler.
    """
    nests: list[Nest] = []
    unread: list[str] = []
    order = list(program.order)
    made = {b.name: b for b in program.buffers}
    updated: set[str] = set()
    makers: dict[str, str] = {}  # buffer -> the last nest of the source that writes it
    calls: Counter[str] = Counter()
    begin = 0
    for launch in launches(text, program.symbols):
        launch = replace(launch, arguments=tuple(_positioned(program, a) for a in launch.arguments))
        found = read_kernel(launch, dtypes)
        calls[launch.kernel] += 1
        if calls[launch.kernel] > 1:  # a kernel that is called again, for other buffers
            found.nests = [replace(n, name=f"{n.name} call {calls[launch.kernel]}") for n in found.nests]
        if found.unread:
            unread.append(f"{launch.kernel}: {found.unread}")
            for name in found.results:
                _target(program, Write(name, ZERO, ()), made, updated)
            continue
        written: list[BufferLayout] = []
        for n in found.nests:
            write = n.writes[0]
            into = _target(program, write, made, updated)
            if into is not None:
                written.append(into)
                n = replace(n, writes=(replace(write, buffer=into.name, index=write.index),))
                makers[into.name] = n.name
            nests.append(n)
        at = max(begin, min((order.index(b.after) for b in written if b.after in order), default=len(order)))
        order[at:at] = names = [n.name for n in found.nests]
        begin = at + len(names)
    if unread:  # what these kernels store is taken from the scheduler, so that the others are judged
        nests += [n for n in program.nests if any(w.buffer not in makers for w in n.writes)]
    old = {n.name for n in program.nests} - {n.name for n in nests}
    buffers = tuple(replace(b, after=makers.get(b.name, b.after)) for b in program.buffers)
    order = [x for x in order if x not in old]
    return replace(program, buffers=buffers, nests=tuple(nests), order=tuple(order)), unread


def decide_source(
    program: NeutralProgram, text: str, dtypes: Mapping[str, str] | None = None, budget: int = 1 << 23
) -> CheckReport:
    """The rows of a program's generated source: its addresses, and an unknown one where it computes anything of them,
    which is not judged.
    """
    made, unread = of_source(program, text, dtypes)
    own = {n.name for n in program.nests}
    rows = [r for r in decide(made, stage="source", budget=budget).rows if r.node not in own]
    rows += [CheckRow(x, "", "unknown", because="its source is not known here", stage="source") for x in unread]
    stores = [(n, w) for n in made.nests if n.name not in own for w in n.writes]
    left = [(n, w) for n, w in stores if w.value is None]
    if left:
        count = f"{len(left)} of {len(stores)} store{'s' * (len(stores) != 1)}"
        because = f"which elements it reads and writes is judged, what it computes of them is not ({count})"
        nest, write = left[0]
        rows.append(CheckRow(nest.name, write.buffer, "unknown", "write", because, stage="source", graph=program.name))
    return CheckReport(program.name, tuple(rows))


def _positioned(program: NeutralProgram, given: Argument) -> Argument:
    """An argument that begins elsewhere in its memory than the program's buffer of that name."""
    home, base = program.place_of(given.buffer)
    root, start = program.place_of(given.before or given.buffer)
    if home != root or given.number is not None:
        return given  # memory that is used again
    return replace(given, offset=simplify(given.offset + start + given.start - base))


def _target(
    program: NeutralProgram, write: Write, made: Mapping[str, BufferLayout], updated: set[str]
) -> BufferLayout | None:
    """The buffer that a store fills: of the wrapper's name, or the next update of that memory."""
    later = [b for b in program.buffers if b.home == write.buffer and b.over and b.name not in updated]
    own = made.get(write.buffer)
    fresh = own is not None and own.after and own.name not in updated
    if own is not None and fresh and write.mode == "store" and not (later and own.name in updated):
        updated.add(own.name)
        return own
    if later:
        updated.add(later[0].name)
        return later[0]
    return own


SURE = ("proved", "enumerated")


def check_inductor(
    fn: Callable[..., object],
    args: Sequence[object],
    dynamic: bool | None,
    options: Mapping[str, object] | None,
    budget: int,
    name: str | None,
    source: bool,
) -> CheckReport:
    """See `idgraph.check.inductor`."""
    from idgraph.check.inductor_capture import Capture  # noqa: PLC0415 - the frontends, for torch's programs alone

    _check_budget(budget)
    title = name or getattr(fn, "__name__", type(fn).__name__)
    capture = Capture(options=options, name=title, source=source)
    try:
        capture.run(fn, tuple(args), dynamic=dynamic)
    except IdGraphError:
        raise
    except Exception as error:  # torch raises many kinds, of whatever it does not compile
        what = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckError(f"torch cannot compile {title}: {what[:300]}") from None
    if capture.failed and not capture.lowered:
        raise CheckError(f"{title}: no graph could be read", because=tuple(capture.failed))
    rows: list[CheckRow] = list(capture.values)
    calls: list[str] = []
    for found in capture.lowered:
        for stage, program in (("before", found.before), ("after", found.after)):
            rows += decide(program, stage=stage, budget=budget).rows
        rows += found.outside
        if found.source:
            rows += decide_source(found.after, found.source, found.dtypes, budget).rows
        calls += [f"{found.name}: {c}" for c in found.calls]
    rows += [CheckRow("graph", "", "unknown", because=why) for why in capture.failed]
    return CheckReport(title, tuple(rows), tuple(calls))


def check_program(data: NeutralProgram | Mapping[str, object] | str | PathLike[str], budget: int) -> CheckReport:
    """See `idgraph.check.program`."""
    _check_budget(budget)
    read = data if isinstance(data, NeutralProgram) else read_any(data)
    found = _judged(read, budget)
    wrong = _value_row(read) if found.ok else None
    return found if wrong is None else replace(found, rows=(*found.rows, wrong))


def _judged(read: NeutralProgram, budget: int) -> CheckReport:
    if read.body:
        return CheckReport(read.name, follow_tree(read, budget).rows)
    found = decide(read, budget=budget)
    if not order_matters(read) and found.rows and all(r.verdict in SURE for r in found.rows):
        return found
    return _as_it_runs(read, found, budget)


def _value_row(p: NeutralProgram) -> CheckRow | None:
    """A result whose elements are the right ones, combined to another number: a constant or an operation is wrong."""
    try:
        every, left = sizes_of_cases(p) if computed(p) else ([], None)
    except NoIndexMeaning:
        return None
    found = ((s, other_number(p, s)) for s in every)
    sizes, wrong = next((x for x in found if x[1] is not None), (dict[str, int](), None))
    if wrong is None:
        hidden = opaque_write(p)
        because = "it computes something that is not known here: which elements it reads is all that was judged"
        if hidden is None and left is not None:
            hidden = left.nest, left.write
            because = f"no size that was tried has a point where {left.condition}: its numbers there are not judged"
            if left.condition is TRUE:
                because = "its value has conditions of positions whose cases are not all known: it is right where tried"
        return hidden and CheckRow(hidden[0].name, hidden[1].buffer, "unknown", "write", because, graph=p.name)
    element = f"{wrong.tensor}[{', '.join(str(c) for c in wrong.element)}]"
    nest, write, point = wrong.last
    text = write.value.text if write.value is not None else ""
    op, line = p.sources.get(wrong.tensor, ("", None))
    shown = f"{element} = {wrong.found:.6g}"
    found = Difference({**sizes, **point}, shown, None, f"{wrong.meant:.6g} there", text, op, line)
    because = "it computes another number of the elements that it reads, at random inputs"
    return CheckRow(nest.name, write.buffer, "refuted", "write", because, found, graph=p.name)


def _as_it_runs(p: NeutralProgram, found: CheckReport, budget: int) -> CheckReport:
    """Nests that share memory, or are not all decided one by one, judged by what the program stores when it runs."""
    run = follow_tree(p, budget)
    sure = tuple(r for r in found.rows if r.verdict in SURE)
    if run.right:
        decided = {(r.node, r.buffer) for r in sure if r.role == "write"}
        return replace(found, rows=(*sure, *(r for r in run.rows if (r.node, r.buffer) not in decided)))
    missing: Sequence[CheckRow] = tuple(unwritten(p))
    shared = _several(p)  # what one of several writes stores is not what the element means
    if run.right is False and order_matters(p):
        ran = (r for r in run.rows if all(r.node != m.node for m in missing))
        return replace(found, rows=(*sure, *missing, *ran))
    if run.right is False:
        rows = [r for r in found.rows if r.verdict in SURE or (_two_sided(r) and r.node not in shared)]
        alone = any(r.verdict == "refuted" for r in rows)
        return replace(found, rows=(*rows, *(r for r in run.rows if r is run.outside or not alone)))
    doubted = {n.name for n in p.nests} if run.tried else shared | entangled(p)
    contents = BufferContents(p)  # what nothing fills before a nest adds to it is wrong in any order
    empty = {
        (n.name, b.home) for n in p.nests for w in n.writes for b in p.buffers
        if w.mode == "add" and w.buffer == b.name and not run.tried and contents.never_filled(n, b)
    }  # fmt: skip
    rows = [
        r for r in found.rows
        if r.verdict != "refuted" or r.node not in doubted or (r.role == "write" and (r.node, r.buffer) in empty)
    ]  # fmt: skip
    if any(r.verdict == "refuted" for r in (*rows, *missing)) and _runs_right(p):
        rows, missing = [r for r in rows if r.verdict != "refuted"], ()
    clear = len(rows) == len(found.rows) and not order_matters(p)
    why = () if clear or any(r.verdict == "refuted" for r in missing) else run.rows
    return replace(found, rows=(*rows, *missing, *why))


def _runs_right(p: NeutralProgram) -> bool:
    """Whether runs on numbers are right, where the program is one that is run."""
    try:
        return all(runs_right(p, sizes) for sizes in sample_sizes(p))
    except (NoIndexMeaning, CheckError):
        return False


def _two_sided(r: CheckRow) -> bool:
    """Whether a refuted row says what is touched and what should be."""
    found = r.counterexample
    return r.verdict == "refuted" and found is not None and bool(found.read or found.written) and bool(found.meant)


def _several(p: NeutralProgram) -> frozenset[str]:
    """Nests that write a buffer together with others, or add to it."""
    count = Counter(w.buffer for n in p.nests for w in n.writes)
    return frozenset(n.name for n in p.nests if any(count[w.buffer] > 1 or w.mode == "add" for w in n.writes))


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise CheckError(f"budget is {budget}", hint="the points that an enumeration may look at: 1 or more")
