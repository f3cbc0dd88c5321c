"""The process of one graph: reads a request from standard input, answers with one row, ends when its parent does.

``python -m idgraph.sweeps.child``: a line of JSON, then as many bytes of the file as it says.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

from idgraph.sweeps.worker import ExaminationOptions, examine


def main() -> None:
    """Examine one graph; the row goes to standard output, whatever the graph prints to standard error."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stream = sys.stdin.buffer
    asked: dict[str, Any] = json.loads(stream.readline())
    data = stream.read(asked["size"])
    threading.Thread(target=_end_with_parent, args=(stream,), daemon=True).start()
    if asked["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (asked["memory"], asked["memory"]))
    with tempfile.TemporaryDirectory(prefix="idgraph-sweep-") as folder:
        path = Path(asked["path"]) if asked["path"] else Path(folder) / asked["name"]
        if not asked["path"]:
            path.write_bytes(data)
        row = examine(path, asked["graph"], asked["digest"], ExaminationOptions(**asked["options"]))
    answer.write(row.to_json())
    answer.flush()
    os._exit(0)  # threads of compiled kernels need not be waited for


def _end_with_parent(stream: Any) -> None:
    """Standard input ends when the parent does, however that ended."""
    while os.read(stream.fileno(), 1 << 16):  # without the stream's lock, which would hold up the end
        pass
    os._exit(3)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
