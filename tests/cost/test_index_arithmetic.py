"""Quotients and rests of a thread's number cost time, by the same term in the search for tiles and in the cost."""

from __future__ import annotations

from dataclasses import replace

import idgraph as ig
from idgraph.ir.device import Device, current_device
from idgraph.runtime.fusion_call import scheduled
from idgraph.schedule.tiling import choose_tiling
from idgraph.schedule.tiling_cost import Tiling

H200 = ig.cost.devices["H200"]


def turned_around(shape: tuple[int, ...], order: tuple[int, ...], layout: bool) -> ig.Fusion:
    f = ig.Fusion("f")
    f.output(ig.permute(f.input("x", shape=shape), order) + 1.0)
    ig.schedule.auto(f, layout=layout)
    return f


def microseconds(f: ig.Fusion, steps: int) -> tuple[float, str]:
    """The estimate without the launch, on a device that takes so many operations for a coordinate."""
    device = replace(H200, coordinate_steps=steps)
    (k,) = ig.cost(ig.emit(f, "cuda"), device=device).kernels
    return k.time_us - device.launch_us, k.bound


def test_coordinates_of_many_axes_are_counted_by_each_thread() -> None:
    shape, order = (6, 10, 12, 14, 15, 9), (4, 2, 0, 5, 3, 1)
    f = turned_around(shape, order, layout=False)
    few, many = 10_000, 20_000
    (first, bound), (second, _) = microseconds(f, few), microseconds(f, many)
    assert bound == "indices" and abs(second - 2 * first) < 1e-6
    # 5316 blocks of 128 threads, five coordinates of a number each: the sixth axis is what the others leave
    one = 5316 * 128 * 1e6 / H200.flops["int32"]
    assert abs(first - 5 * few * one) < 1e-6 * first


def test_what_lies_as_it_is_looped_over_has_no_coordinates() -> None:
    f = turned_around((6, 10, 12, 14, 15, 9), (4, 2, 0, 5, 3, 1), layout=True)
    assert microseconds(f, 6) == microseconds(f, 10**6)


def test_the_search_asks_the_same_device() -> None:
    f = ig.Fusion("channels last")
    t = f.output(ig.permute(f.input("x", (24, 3, 320, 480), "uint8"), (0, 2, 3, 1)))

    def estimate(device: Device) -> float:
        found = choose_tiling(t, [], Tiling(t.axes, ((t.axes[3], 1),)), 128, device)
        assert found is not None
        return found.cost.time_us

    assert estimate(replace(H200, coordinate_steps=600)) > 2 * estimate(H200)


def test_compiled_fusions_are_scheduled_for_the_device_in_force() -> None:
    def stages(target: str | None) -> str:
        f = ig.Fusion("f")
        f.output(ig.sum(f.input("x", shape=(1 << 22,))))
        if target is None:
            return str(scheduled(f, "cuda").fusion)
        with ig.cost.use_device(target):
            assert current_device().name == target
            return str(scheduled(f, "cuda").fusion)

    assert stages(None) == stages("H200") != stages("L4")
