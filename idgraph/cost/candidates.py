"""The schedules that `ig.schedule.auto` chooses among, each as a fusion with its estimated time.

They are the configurations that `ig.tune` measures, here estimated: the others than the chosen one are scheduled and
emitted when they are first asked for. Equal kernels are one candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from idgraph.cost.model import program_cost
from idgraph.display import Printed
from idgraph.errors import IdGraphError, ScheduleError, arguments, short_repr, user_line
from idgraph.ir import Fusion
from idgraph.ir.clone import clone_fusion
from idgraph.ir.device import Device, use_device
from idgraph.rewrite.gather_strategy import Force
from idgraph.runtime.program import emit
from idgraph.runtime.tuning.tuner import kernel_text, stages
from idgraph.schedule.auto import auto
from idgraph.schedule.config import KernelConfig


@dataclass(frozen=True, slots=True)
class CandidateSchedule(Printed):
    """One schedule: ``config`` (see `ig.schedule.KernelConfig`) on ``device``, and ``fusion``, a scheduled copy to look
    at. Prints as the steps of the copy."""

    config: KernelConfig
    device: Device
    fusion: Fusion = field(repr=False)
    layout: bool = True
    gathers: Force = None

    @arguments(ScheduleError)
    def apply(self, fusion: Fusion) -> None:
        """Schedule a fusion of the same operations so. Raises `ScheduleError` for one with other outputs.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("x", shape=(4096, 64)) * 2.0)
        >>> other = ig.schedule.auto(f).runner_up
        >>> other.schedule.apply(f)
        >>> other.schedule.config.to_data()
        {'block': 64}
        """
        if [t.name for t in fusion.outputs] != [t.name for t in self.fusion.outputs]:
            names = ", ".join(t.name for t in self.fusion.outputs)
            raise ScheduleError(
                f"fusion {short_repr(fusion.name)} has other outputs than the schedule is for", hint=f"outputs {names}",
                where=user_line(),
            )  # fmt: skip
        auto(fusion, gathers=self.gathers, config=self.config, layout=self.layout, device=self.device)

    def __str__(self) -> str:
        steps = [x.strip() for x in str(self.fusion).splitlines() if x.strip().startswith("schedule ")]
        return "\n".join(steps) or "no steps"


@dataclass(frozen=True, slots=True)
class ScheduleCandidate(Printed):
    """A schedule, its estimated time ``cost`` (microseconds on the device, all kernels) and whether `auto` chose it."""

    schedule: CandidateSchedule
    cost: float
    chosen: bool

    def __str__(self) -> str:
        return f"{self.schedule.config}: {self.cost:.2f} us on {self.schedule.device.name}{', chosen' * self.chosen}"


def schedule_candidates(
    fusion: Fusion, version: int, config: KernelConfig, layout: bool, device: Device, gathers: Force
) -> tuple[ScheduleCandidate, ...]:
    """The chosen schedule of a fusion, which it has, and the others, the cheapest first; ones that cannot be emitted
    are left out. Raises `ScheduleError` where the fusion has changed since, or has sizes that are symbols."""
    if fusion.version != version:
        raise ScheduleError(
            f"fusion {short_repr(fusion.name)} has changed since auto scheduled it: its candidates are not known",
            hint="ask for candidates before other steps, or call auto again", where=user_line(),
        )  # fmt: skip
    if fusion.symbols:
        names = ", ".join(fusion.symbols)
        raise ScheduleError(
            f"fusion {short_repr(fusion.name)} has sizes that are symbols ({names}): times of candidates are not known",
            hint="build it with numbers, or measure: ig.tune(fusion, symbols={...})", where=user_line(),
        )  # fmt: skip
    with use_device(device):
        found = [_candidate(clone_fusion(fusion), config, layout, device, gathers, True)]
        seen = {found[0][1]}
        best = config
        for stage in stages(fusion, device.kind):
            for move in stage:
                tried = best.but(**move)
                copy = clone_fusion(fusion)
                try:
                    auto(copy, config=tried, layout=layout, device=device)
                    made, text = _candidate(copy, tried, layout, device, gathers, False)
                except IdGraphError:  # a number that this fusion's kernels cannot have
                    continue
                if text not in seen:
                    seen.add(text)
                    found.append((made, text))
            best = min((c for c, _ in found), key=lambda c: c.cost).schedule.config
    first, *rest = (c for c, _ in found)
    return (first, *sorted(rest, key=lambda c: c.cost))


def _candidate(
    scheduled: Fusion, config: KernelConfig, layout: bool, device: Device, gathers: Force, chosen: bool
) -> tuple[ScheduleCandidate, str]:
    program = emit(scheduled, target=device.kind)
    cost = program_cost(program, device, {}, {}, False).total.time_us
    schedule = CandidateSchedule(config, device, scheduled, layout, gathers)
    return ScheduleCandidate(schedule, round(cost, 4), chosen), kernel_text(program)
