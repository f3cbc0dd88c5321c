"""Configurations chosen by measurement: with a clock that says what the test wants, and kernels that really run."""

from __future__ import annotations

import ctypes
import json
import math
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime import Program
from idgraph.runtime.kernel_cache import KernelCache
from idgraph.runtime.tuning import tuner as tuner_module
from idgraph.runtime.tuning.trial import Record, made_up, record_of, shortest
from idgraph.runtime.tuning.tuner import stages
from idgraph.schedule import KernelConfig
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import rows
from tests.emit.turns import simulated

FEW: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({"persistent": False},),
    ({"parallel": False}, {"items_per_thread": 32}),
)


def few(fusion: ig.Fusion, target: str) -> tuple[tuple[Mapping[str, Any], ...], ...]:
    """Three configs instead of a dozen: each one is compiled."""
    return FEW


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner_module, "stages", few)


def softmax(columns: int = 40) -> ig.Fusion:
    return rows(lambda x: ig.softmax(x, 1), (3, columns))


class Clock:
    """Gives the times it was told, in the order of the runs; each run happens."""

    def __init__(self, *times: float) -> None:
        self.times = list(times)
        self.calls = 0

    def __call__(self, work: Callable[[], None], target: str) -> float:
        work()
        self.calls += 1
        return self.times[(self.calls - 1) % len(self.times)]


@pytest.mark.usefixtures("quick")
def test_the_fastest_is_kept_and_remembered(tmp_path: Path) -> None:
    clock = Clock(10.0, 7.0, 8.0, 5.0)  # the rule, the first stage, then each of the second stage
    tuner = ig.Tuner(tmp_path, clock)
    f = softmax()
    tuned = ig.tune(f, "cpu", tuner=tuner)
    assert (
        tuned.source == "measured"
        and tuned.config == KernelConfig(persistent=False, items_per_thread=32)
        and tuned.us == 5.0
    )
    assert [str(m.config) for m in tuned.measured] == [
        "rule", "persistent=False", "persistent=False parallel=False", "items_per_thread=32 persistent=False",
    ]  # fmt: skip
    assert clock.calls == 4
    x = {"x": np.linspace(-3, 3, 120, dtype=np.float32).reshape(3, 40)}
    np.testing.assert_allclose(tuned.program.run(x)[f.outputs[0].name], evaluate(f, x)[f.outputs[0].name], rtol=3e-6)

    again = ig.tune(softmax(), "cpu", tuner=tuner)
    other = ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, clock))
    assert (again.source, other.source, clock.calls) == ("memory", "disk", 4)
    assert again.config == other.config == tuned.config and other.measured == tuned.measured
    assert ig.tune(softmax(48), "cpu", tuner=tuner).source == "measured"  # another shape


@pytest.mark.usefixtures("quick")
def test_a_tie_and_noise_leave_the_rule() -> None:
    tuned = ig.tune(softmax(), "cpu", tuner=ig.Tuner(timer=Clock(10.0, 9.9, 10.0, 9.85)))
    assert tuned.config == KernelConfig()


class Doubling:
    """A kernel that was compiled wrong: its result, the last array of its words, is twice what it should be."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def entry(self, env: Any) -> Any:
        run = self._kernel.entry(env)

        def wrong(words: Any) -> int:
            code = run(words)
            _, _, address, count, *_ = struct.unpack(f"{len(words) // 8}q", words)
            result = (ctypes.c_float * count).from_address(address)
            for k in range(count):
                result[k] *= 2
            return int(code)

        return wrong


@pytest.mark.usefixtures("quick")
def test_a_config_that_fails_is_dropped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ig.Tuner.program

    def program(self: ig.Tuner, fusion: ig.Fusion, target: Any, config: KernelConfig) -> Program:
        if config.persistent is False:
            raise RuntimeError("no registers\nleft")
        made = whole(self, fusion, target, config)
        if config.items_per_thread is not None:  # a compiler's mistake
            functions: Any = made.functions()
            functions["kernel0"] = Doubling(functions["kernel0"])
        return made

    monkeypatch.setattr(ig.Tuner, "program", program)
    tuned = ig.tune(softmax(), "cpu", tuner=ig.Tuner(timer=Clock(10.0, 9.0, 1.0)))
    notes = {str(m.config): m.note for m in tuned.dropped}
    assert notes.keys() == {"persistent=False", "items_per_thread=32"}
    assert notes["persistent=False"] == "dropped: RuntimeError: no registers left"
    assert "120 elements, off by up to" in notes["items_per_thread=32"]
    assert tuned.config == KernelConfig(parallel=False)
    assert "dropped: RuntimeError" in str(tuned) and tuned.to_data()["measured"][1]["us"] is None


@pytest.mark.usefixtures("quick")
def test_the_rule_itself_must_work() -> None:
    f = softmax()
    with pytest.raises(ig.EmitError, match="x"):
        ig.tune(f, "cpu", {"x": np.zeros((3, 41), np.float32)}, tuner=ig.Tuner())
    with pytest.raises(ig.EmitError, match="not measured"):
        ig.tune(f, "numpy", tuner=ig.Tuner())  # pyright: ignore[reportArgumentType]


def damaged(text: str) -> list[str]:
    data = json.loads(text)
    return [
        "", "[]", "null", text[:-5], json.dumps({**data, "format": 0}), json.dumps({**data, "best": {"threads": 3}}),
        json.dumps({**data, "best": {"__class__": "x"}}), json.dumps({**data, "measured": [{}]}),
        json.dumps({**data, "measured": None}), json.dumps({**data, "best": {"threads": "1; import os"}}),
        json.dumps({**data, "measured": [{"config": {}, "us": True, "note": ""}]}),
        json.dumps({**data, "measured": [{"config": {}, "us": 10**400, "note": ""}]}), "[" * 100_000,
    ]  # fmt: skip


def test_records_are_data_and_never_trusted() -> None:
    record = Record(
        KernelConfig(threads=64),
        (ig.Measured(KernelConfig(), 2.5), ig.Measured(KernelConfig(threads=64), math.nan, "why")),
    )
    back = record_of(record.to_text())
    assert back is not None and back.best == record.best and str(back) == str(record)
    assert all(record_of(t) is None for t in damaged(record.to_text()))


@pytest.mark.usefixtures("quick")
def test_a_damaged_entry_is_measured_anew(tmp_path: Path) -> None:
    clock = Clock(4.0)
    ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, clock))
    (place,) = tmp_path.glob("*.choice")
    whole = place.read_bytes()
    for change in (whole[:-1], whole.replace(b"4.0", b"0.5"), b""):
        place.write_bytes(change)
        assert ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, clock)).source == "measured"
        assert place.read_bytes() == whole


@pytest.mark.usefixtures("quick")
def test_a_folder_that_cannot_be_written_is_told_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    clock = Clock(1.0)
    with pytest.raises(ig.EmitError, match="cannot be written"):
        ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path / "file" / "inside", clock))
    assert clock.calls == 0


@pytest.mark.usefixtures("quick")
def test_another_version_measures_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(2.0)
    ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, clock))
    monkeypatch.setattr(tuner_module, "versions", lambda: "numba 99")
    assert ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, clock)).source == "measured"
    assert len(list(tmp_path.glob("*.choice"))) == 2


@pytest.mark.usefixtures("quick")
def test_a_full_disk_loses_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(kept: KernelCache, _key: str, _text: str) -> None:
        if kept.suffix == ".choice":
            raise ig.EmitError("no room")

    clock = Clock(2.0)
    tuner = ig.Tuner(tmp_path, clock)
    with monkeypatch.context() as m:
        m.setattr(KernelCache, "put", full)
        with pytest.raises(ig.EmitError, match="no room"):
            ig.tune(softmax(), "cpu", tuner=tuner)
    calls = clock.calls
    assert ig.tune(softmax(), "cpu", tuner=tuner).source == "memory" and clock.calls == calls


@pytest.mark.usefixtures("quick")
def test_what_a_compiler_raised_is_shown_with_escapes() -> None:
    found = ig.Measured(KernelConfig(), float("nan"), "dropped: \x1b[31m \u202e")
    program = ig.emit(softmax(), "python")
    assert str(ig.Tuned(program, KernelConfig(), (found,), "disk")).endswith("dropped: \\x1b[31m \\u202e")


@pytest.mark.usefixtures("quick")
def test_processes_may_measure_at_once(tmp_path: Path) -> None:
    found: list[ig.Tuned] = []
    workers = [
        threading.Thread(target=lambda: found.append(ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, Clock(2.0)))))
        for _ in range(3)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(found) == 3 and len(list(tmp_path.glob("*.choice"))) == 1
    assert ig.tune(softmax(), "cpu", tuner=ig.Tuner(tmp_path, Clock(2.0))).source == "disk"


def test_every_config_of_the_cpu_computes_the_same() -> None:
    f = softmax(300)
    tuned = ig.tune(f, "cpu", tuner=ig.Tuner(timer=Clock(1.0)))
    assert tuned.dropped == () and len(tuned.measured) > 8
    assert ig.validate(f, target="cpu").ok


def test_on_the_simulated_device() -> None:
    pytest.importorskip("numba_cuda")
    done = simulated("-m", "tests.emit.simulate_tuning")
    assert done.returncode == 0, done.stderr[-2000:]
    softmax_, loss = json.loads(done.stdout.splitlines()[-1])
    for told in (softmax_, loss):
        ran = [m for m in told["measured"] if m["us"] is not None and not m["note"]]
        assert all(m["us"] is not None for m in told["measured"]), told  # nothing was dropped
        assert len(ran) > 3 and told["config"] == ran[-1]["config"]
    ran = [m["config"] for m in (*softmax_["measured"], *loss["measured"]) if not m["note"]]
    assert {"threads": 32, "persistent": False} in ran and {"threads": 32, "persistent": True} in ran
    assert {"online": False, "persistent": False} in ran  # two passes are a kernel of their own


@pytest.mark.gpu
def test_on_a_device(tmp_path: Path) -> None:
    f = rows(lambda x: ig.cast(ig.softmax(ig.cast(x, "float32"), 1), "bfloat16"), (4096, 4096), "bfloat16")
    tuned = ig.tune(f, "cuda", cache=tmp_path)
    assert tuned.source == "measured" and tuned.us > 0
    assert {(m.config.threads, m.config.persistent) for m in tuned.dropped} == {(32, True), (64, True)}
    assert all("values, at most 64 fit" in m.note for m in tuned.dropped)  # a row of 4 096 columns
    assert ig.validate(f, target="cuda").ok
    assert ig.tune(f, "cuda", cache=tmp_path).source == "disk"


def test_made_up_inputs_fit() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x, i = f.input("x", shape=(n, 7), dtype="bfloat16"), f.input("i", shape=(n, 3), dtype="int64")
    f.output(ig.gather(x, 1, i))
    made = made_up(f, {"n": 50})
    assert made["x"].dtype == ml_dtypes.bfloat16 and made["x"].shape == (50, 7)
    assert made["i"].min() == 0 and made["i"].max() == 6
    with pytest.raises(ig.EmitError, match="size n is not known") as found:
        ig.tune(f, "cpu", tuner=ig.Tuner())
    assert "symbols={'n': 1024}" in (found.value.hint or "")


def test_stages_depend_on_the_work() -> None:
    assert "persistent" in stages(softmax(), "cuda")[0][0] and "block" not in str(stages(softmax(), "cuda"))
    pointwise = rows(lambda x: x * 2.0, (4, 8))
    assert "threads" not in str(stages(pointwise, "cuda")) and "block" in str(stages(pointwise, "cuda"))


def test_the_default_clock_takes_the_shortest_window() -> None:
    calls: list[int] = []
    assert shortest(lambda: calls.append(1), "cpu") >= 0.0
    assert len(calls) > 10


@pytest.mark.parametrize(
    ("choice", "value"),
    [("threads", 3), ("threads", 2048), ("rows", 0), ("items_per_thread", True), ("persistent", 1), ("block", 1.0)],
)
def test_a_config_refuses_what_no_kernel_can_have(choice: str, value: object) -> None:
    with pytest.raises(ig.ScheduleError, match=choice):
        KernelConfig(**{choice: value})  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("quick")
def test_imported_programs_are_tuned_on_their_arguments() -> None:
    torch: Any = pytest.importorskip("torch")
    clock = Clock(10.0, 7.0, 8.0, 5.0)
    x = torch.linspace(-2, 2, 120).reshape(3, 40)

    def work(t: Any) -> Any:
        return torch.softmax(t, 1)

    imp = ig.from_torch(work, (x,))
    tuner = ig.Tuner(timer=clock)
    for _ in range(2):
        got: Any = imp.run(x, tuner=tuner)
        assert torch.allclose(got, torch.softmax(x, 1), atol=1e-6)
    assert clock.calls == 4  # once for both runs
