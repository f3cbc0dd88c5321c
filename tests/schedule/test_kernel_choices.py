"""Choices of kernels: a schedule says them, text keeps them, the emitted kernel obeys them or refuses by name."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.codegen.printers.scalar import runs_parallel
from idgraph.errors import EmitError, ParseError, ScheduleError
from idgraph.runtime.program import stages
from idgraph.schedule import KernelConfig
from tests.emit.row_cases import NORMS, cross_entropy, rows


def scheduled(form: str = "softmax", columns: int = 1024, rows_: int = 8192) -> ig.Fusion:
    f = rows(NORMS[form], (rows_, columns), "float32")
    ig.schedule.auto(f)
    return f


def reductions(f: ig.Fusion) -> list[ig.Tensor]:
    return [t for t in f.tensors if t.definition is not None and t.definition.is_reduction]


def held(f: ig.Fusion) -> bool:
    return "kept" in ig.emit(f, "cuda").source


def without_lines(f: ig.Fusion) -> str:
    return re.sub(r' at "[^"]*"', "", ig.emit(f, "cuda").source)


def refused(f: ig.Fusion) -> str:
    with pytest.raises(EmitError) as error:
        ig.emit(f, "cuda")
    return str(error.value)


def test_one_tensor_of_a_row_speaks_for_the_row() -> None:
    f = scheduled()
    assert held(f)
    reductions(f)[0].persistent(False)
    assert not held(f) and "persistent(false)" in str(f)
    reductions(f)[0].persistent()
    assert held(f)


def test_what_is_said_is_printed_and_read_back() -> None:
    f = scheduled()
    first, second = reductions(f)
    first.persistent(False).online(False)
    second.items_per_thread(8).parallel(True)
    again = ig.parse(str(f))
    assert str(again) == str(f)
    assert [t.choices for t in reductions(again)] == [first.choices, second.choices]
    assert without_lines(again) == without_lines(f)
    kernel = ig.emit(f, "cuda").kernels[0]
    assert "  choose persistent=false online=false items_per_thread=8 parallel=true" in str(kernel).splitlines()
    assert ig.kernel.parse(str(kernel)) == kernel


@pytest.mark.parametrize("words", ["held=true", "persistent=1", "items_per_thread=3", "online=true online=true", "x"])
def test_other_choices_are_no_text_of_a_kernel(words: str) -> None:
    with pytest.raises(ParseError):
        ig.kernel.parse(f"kernel k():\n  choose {words}\n")


def test_online_is_obeyed_both_ways() -> None:
    f = cross_entropy(8192, 1024, "mean", gradient=False, dtype="float32")
    ig.schedule.auto(f)
    one = ig.emit(f, "cuda").source
    top = next(t for t in reductions(f) if t.definition is not None and t.definition.op == "amax")
    top.online()
    assert ig.emit(f, "cuda").source == one
    top.online(False)
    two = ig.emit(f, "cuda").source
    assert "_near" in one and "_near" not in two
    g = scheduled()  # held by the rule; online, it is read again
    reductions(g)[0].online()
    assert not held(g) and "_near" in ig.emit(g, "cuda").source


def test_items_under_way_are_no_more_than_said() -> None:
    def under_way(most: int) -> int:
        f = scheduled(columns=4096)
        reductions(f)[0].persistent(False).items_per_thread(most)
        plan = dict(stages(f, "cuda"))["rows"]
        return max(len(re.findall(r"^ *\w+: float32 = buf0\[", x, re.M)) for x in str(plan).split("lanes:"))

    assert [under_way(n) for n in (4, 8, 16)] == [4, 8, 16]


def test_cores_are_taken_as_said() -> None:
    f = rows(lambda x: ig.exp(x), (64, 64))
    ig.schedule.auto(f)
    (t,) = f.outputs
    assert all(map(runs_parallel, ig.emit(f, "cpu").kernels))
    t.parallel(False)
    assert not any(map(runs_parallel, ig.emit(f, "cpu").kernels))
    assert ig.validate(f, target="cpu").ok


REFUSED: dict[str, tuple[Callable[[], ig.Fusion], str]] = {
    "too long": (lambda: scheduled(columns=1 << 17, rows_=4096), "would hold 512 values, at most 64 fit"),
    "one pass": (lambda: rows(lambda x: ig.sum(x, 1), (64, 512)), "passed over twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_row_that_cannot_be_held_is_refused_by_name(case: str) -> None:
    build, why = REFUSED[case]
    f = build()
    t = reductions(f)[0].persistent()
    told = refused(f)
    assert f"{t.name}.persistent(True) at " in told and __file__.rsplit("/", 1)[1] in told and why in told
    t.persistent(False)
    ig.emit(f, "cuda")


def test_the_way_out_by_more_threads_works() -> None:
    f = rows(NORMS["softmax"], (8192, 8192), "float32")
    config = KernelConfig(threads=32, persistent=True)
    ig.schedule.auto(f, config=config)
    told = refused(f)
    found = re.search(r"KernelConfig\(threads=(\d+)\)", told)
    assert found is not None, told
    ig.schedule.auto(f, config=config.but(threads=int(found[1])))
    assert held(f)
    ig.schedule.auto(f, config=config.but(threads=int(found[1]) // 2))
    refused(f)


def test_online_needs_a_maximum() -> None:
    f = scheduled("layer norm")
    t = reductions(f)[0].online()
    assert f"{t.name}.online(True)" in refused(f)
    t.online(False)
    ig.emit(f, "cuda")


def test_contradictions_in_one_kernel_are_refused() -> None:
    f = scheduled()
    first, second = reductions(f)
    first.persistent()
    second.persistent(False)
    with pytest.raises(
        ScheduleError, match=rf"{second.name} says persistent\(False\), {first.name} in the same kernel"
    ):
        ig.emit(f, "cuda")
    second.persistent().online()
    with pytest.raises(ScheduleError, match="a row that is held is passed over twice"):
        ig.emit(f, "cuda")


def test_only_what_has_rows_or_loops_takes_a_choice() -> None:
    f = scheduled()
    x, y = f.inputs[0], f.outputs[0]
    before = str(f)
    with pytest.raises(ScheduleError, match=f"persistent: {y.name} is made by") as error:
        y.persistent()
    assert all(t.name in str(error.value) for t in reductions(f))
    with pytest.raises(ScheduleError, match="parallel: x is an input"):
        x.parallel()
    with pytest.raises(ScheduleError, match="a power of two"):
        reductions(f)[0].items_per_thread(3)
    with pytest.raises(ScheduleError, match="online: on is 'yes'"):
        reductions(f)[0].online("yes")  # type: ignore[arg-type]
    assert str(f) == before


def test_loops_anew_keep_what_the_user_chose() -> None:
    f = scheduled()
    reductions(f)[0].persistent(False)
    ig.schedule.auto(f)
    assert str(f).count("persistent(false)") == 1 and not held(f)


def test_launches_of_rows_with_other_choices_stay_apart() -> None:
    f = ig.Fusion("two")
    for name in "xy":
        f.output(ig.softmax(f.input(name, (8192, 1024)), 1))
    ig.schedule.auto(f)
    assert len(ig.emit(f, "cuda").kernels) == 1
    first = reductions(f)[0].persistent(False)
    one, other = ig.emit(f, "cuda").kernels
    assert [k.choices.persistent for k in (one, other)] == [first.choices.persistent, None]


def test_auto_returns_what_it_decided_and_why() -> None:
    f = rows(NORMS["softmax"], (8192, 1024), "float32")
    (told,) = ig.schedule.auto(f).rows
    assert told.tensors == tuple(t.name for t in reductions(f)) and (told.rows, told.columns) == ("8192", "1024")
    assert (told.threads, told.lanes, told.passes) == (64, 4, 3) and told.why == "short rows share a block"
    kernel = ig.emit(f, "cuda").kernels[0]
    assert told.threads in map(int, kernel.launch["threadIdx.x"])
    assert told.why in str(ig.schedule.auto(f))
