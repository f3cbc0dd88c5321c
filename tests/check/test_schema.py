"""The JSON Schema in the package says what the reader accepts: the same keys, at every level."""

from __future__ import annotations

from typing import Any

import idgraph as ig
from idgraph.check.program_json import KEYS, VERSION


def test_the_schema_has_the_keys_that_are_read() -> None:
    s: Any = ig.check.schema()
    parts = {
        "a program": s,
        **{
            f"a {n}": s["$defs"][n]
            for n in ("symbol", "buffer", "nest", "loop", "guard", "load", "place", "write", "read")
        },
    }
    assert parts.keys() == KEYS.keys()
    for kind, part in parts.items():
        assert sorted(part["properties"]) == sorted(KEYS[kind]) and part["additionalProperties"] is False
    assert s["properties"]["version"] == {"const": VERSION}


def test_each_call_makes_a_new_dict() -> None:
    ig.check.schema()["title"] = "changed"
    assert ig.check.schema()["title"] != "changed"
