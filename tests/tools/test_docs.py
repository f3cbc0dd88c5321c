"""The reference has every public name, and the glossary links to classes that exist."""

from __future__ import annotations

import builtins
import inspect
import re
from pathlib import Path

import idgraph as ig

PAGES = Path(__file__).resolve().parents[2] / "tools" / "docs"
DIRECTIVE = re.compile(r"^\.\. auto(?:class|function):: ([\w.]+)$", re.MULTILINE)


def directives() -> set[str]:
    """Every name that has an entry in the reference, without its package."""
    texts = [page.read_text(encoding="utf-8") for page in sorted((PAGES / "reference").glob("*.rst"))]
    return {name.removeprefix("idgraph.") for text in texts for name in DIRECTIVE.findall(text)}


def test_every_public_function_and_class_has_an_entry() -> None:
    known = {name.rsplit(".", 1)[-1] for name in directives()}
    aliases = {"set"}  # of copy
    errors = {name for name in ig.__all__ if name.endswith("Error")}  # errors stand there by their module
    public = [*ig.__all__, *ig.BUILTIN_NAMES]
    missing = [
        name for name in public if not inspect.ismodule(getattr(ig, name)) and name not in known | aliases | errors
    ]
    assert not missing, f"add to a page of tools/docs/reference: {missing}"


def test_a_star_import_leaves_pythons_own_names_alone() -> None:
    rooms = [ig, *(getattr(ig, room) for room in ("check", "frontends", "fuse", "kernel", "layout", "schedule", "viz"))]
    for room in rooms:
        assert not set(room.__all__) & set(dir(builtins)), room.__name__
    assert set(ig.BUILTIN_NAMES) <= set(dir(builtins))
    assert set(ig.BUILTIN_NAMES) <= set(dir(ig))


def test_no_entry_is_of_something_that_is_gone() -> None:
    assert not [name for name in directives() if "." not in name and not hasattr(ig, name)]


def test_the_glossary_is_in_order_and_links_to_classes_that_exist() -> None:
    text = (PAGES / "pages" / "glossary.md").read_text(encoding="utf-8")
    links = re.findall(r"\{class\}`idgraph\.(\w+)`", text)
    assert len(links) > 20
    assert not [name for name in links if not inspect.isclass(getattr(ig, name, None))]
    terms = [line for line in text.splitlines() if line and not line.startswith((" ", "#", "`", "The field"))]
    assert terms == sorted(set(terms), key=str.lower)
