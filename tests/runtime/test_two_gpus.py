"""Devices: how they are named and entered; on two GPUs, all that `tests.runtime.two_gpus` checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import idgraph as ig
from idgraph.runtime.cuda.launch import LaunchContext
from idgraph.runtime.interrupts import device_text
from tests.runtime import two_gpus

torch: Any = pytest.importorskip("torch")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", two_gpus.CHECKS)
def test_on_two_gpus(name: str) -> None:
    found = two_gpus.run(two_gpus.place(torch), name)
    assert found.ok, found.note


def test_devices_by_name_number_and_torch() -> None:
    given = (1, "cuda:1", torch.device("cuda", 1), "cuda", torch.device("cuda"), "cpu", torch.device("cpu"), None)
    assert [device_text(d) for d in given] == [*["cuda:1"] * 3, *["cuda:0"] * 2, "cpu", "cpu", None]
    for wrong in (-1, True, 1.0, "tpu", "cuda:", "cuda:x", "cuda:-1", "1", torch.device("meta"), [1]):
        with pytest.raises(ig.EmitError, match="is not a device"):
            device_text(wrong)
    f = ig.Fusion("f")
    f.output(f.input("x", (4,)) * 2.0)
    with pytest.raises(ig.EmitError, match="'gpu' is not a device"):
        ig.compile(f, device="gpu")
    x = torch.ones(4)
    for k in (ig.compile(f, device=torch.device("cpu")), ig.compile(ig.from_torch(torch.neg, x), device=0)):
        assert k(x).device == x.device


def test_arrays_without_torch_have_their_own_device_made_current() -> None:
    entered: list[str] = []
    now = [0]

    class Context:
        def __enter__(self) -> None:
            now.append(1)
            entered.append("in")

        def __exit__(self, *_: object) -> None:
            now.pop()
            entered.append("out")

    driver = SimpleNamespace(cuCtxGetDevice=lambda: (0, now[-1]))
    device = LaunchContext(driver, 1, None, Context())
    before = device.enter()
    assert before is not None and now[-1] == 1 and device.enter() is None
    device.leave(before)
    assert entered == ["in", "out"] and now == [0]
