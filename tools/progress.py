"""Progress of long steps with nothing but the standard library: it runs before anything is installed."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

PLAIN_INTERVAL = 15.0  # seconds between lines where no terminal can redraw one


class Steps:
    """Numbered steps, each with its elapsed time: `[1/3] environment: done in 2 s`."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0

    def step(self, what: str) -> Step:
        """Begin the next step."""
        self.number += 1
        return Step(f"[{self.number}/{self.total}] {what}")


class Step:
    """One step while it runs; a terminal sees one line redrawn, a log sees a line now and then."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.began = time.monotonic()
        self._live = sys.stderr.isatty()
        self._said = self.began

    @property
    def seconds(self) -> int:
        """Whole seconds since the step began."""
        return int(time.monotonic() - self.began)

    def __enter__(self) -> Step:
        self._write(f"{self.title} ...", last=not self._live)
        return self

    def update(self, detail: str) -> None:
        """Say how far it is."""
        now = time.monotonic()
        if self._live or now - self._said >= PLAIN_INTERVAL:
            self._said = now
            self._write(f"{self.title}: {detail} ({self.seconds} s)", last=not self._live)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = "done in" if kind is None else "stopped after"
        self._write(f"{self.title}: {outcome} {self.seconds} s", last=True)

    def _write(self, text: str, *, last: bool) -> None:
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
        else:
            sys.stderr.write(text)
        if last:
            sys.stderr.write("\n")
        sys.stderr.flush()


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> int:
    """Run `command`, its output into `log` and line by line to `on_line`; `on_tick` is called once a second or more."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with (
        log.open("a", encoding="utf-8") as record,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(env), cwd=cwd, text=True, encoding="utf-8", errors="replace",
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        reader = threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            while True:
                try:
                    line = lines.get(timeout=1.0)
                except queue.Empty:
                    on_tick()
                    continue
                if line is None:
                    return process.wait()
                record.write(line)
                on_line(line.rstrip("\n"))
                on_tick()
        except BaseException:  # interrupted: the command must not outlive its tool, nor its output the reader
            process.terminate()
            reader.join()
            raise


def _pump(source: Iterable[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in source:
        lines.put(line)
    lines.put(None)
