"""The rule table of the simplifier as a document: ``python -m tools.docs.rule_table`` rewrites ``rules.md``."""

from __future__ import annotations

from pathlib import Path

from idgraph.arith import rules

FILE = Path(__file__).with_name("rules.md")
GROUPS = {
    "integer": "Any integer expression",
    "add": "Sums",
    "mul": "Products",
    "floordiv": "Floor division by a constant",
    "mod": "Modulo by a constant",
    "negative": "Division and modulo by a negative constant",
    "floordiv-sym": "Floor division by an expression",
    "mod-sym": "Modulo by an expression",
    "min": "Minimum and maximum",
    "max": "Minimum and maximum",
    "where": "Selection",
    "xor": "Exclusive or",
    "written": "Sums as written, before their operands",
    "lt": "Order comparisons",
    "le": "Order comparisons",
    "eq": "Equalities",
    "ne": "Equalities",
    "and": "Conjunctions and disjunctions",
    "or": "Conjunctions and disjunctions",
}
HEAD = """\
# Rules of the simplifier

Made from the code by `python -m tools.docs.rule_table`; do not edit.

Rules are tried in this order at each node, operands first, until none applies. `x y z` are sums, `c d e g v` constants
(or expressions where the heading says so), `S` a part of a sum with a known range, `p q` conditions. "It is cheaper"
means: the rewritten expression has fewer operations. Every rule has a property test by its name
in `tests/arith/test_rules.py`.
"""


def document() -> str:
    """The text of the document."""
    sections: dict[str, dict[str, str]] = {title: {} for title in GROUPS.values()}
    for r in rules():
        row = f"| {r.name} | `{r.lhs}` | `{r.rhs}` | {r.when or 'always'} |".replace("p | q", "p \\| q")
        sections[GROUPS[r.op]].setdefault(r.name, row)
    parts = [HEAD]
    for title, rows in sections.items():
        parts.append(f"## {title}\n\n| rule | from | to | if |\n|---|---|---|---|\n" + "\n".join(rows.values()) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
