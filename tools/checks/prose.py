"""Forms of sentences that readers stumbled over do not come back: in docstrings, messages of errors and pages.

Words of `TERMS` are read in every text: docstrings, strings with a space in them, pages and tutorials.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.checks.common import Finding, command, tracked

FIRST = re.compile(r"\s*(?:What|Whatever|Whoever|Who)\b")
SPARED = "longer|more|less|such|one|other|better|obstacle"
NOT_A = re.compile(rf"(?<!here )\b(?:is|are|was|were) no (?!(?:{SPARED})\b)[a-z]")
NOUNS = "array|condition|integer|number|tensor|axis|name|string|text|list|mapping|callable|operation|fusion"
TAIL = re.compile(rf", no (?:{NOUNS})\b")

# Words that a reader of the field takes for another thing, and what to say.
TERMS = {
    r"told": "reported",
    r"rooms?": "package, memory or space",
    r"zoo": "models",
    r"aim(?:s|ed)?": "target",
    r"lessons?": "tutorial",
    r"alone": "only, single or by itself",
    r"hand(?:s|ed|ing)? (?:over|on|out|in)": "pass, return or export",
    r"(?:at|in) (?:the same|one) place": "at the same element, index or address",
}
TERM = re.compile("|".join(rf"(\b(?:{word})\b)" for word in TERMS), re.IGNORECASE)
CODE = re.compile(r"```.*?```|<!--.*?-->|`[^`\n]*`", re.DOTALL)
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "tools/docs/", "notebooks/")


def rule(root: Path) -> list[Finding]:
    """Every docstring that begins with "What", every "is no ..." and ", no integer" in it, every term."""
    names = tracked(root)
    modules = [name for name in names if name.startswith("idgraph/") and name.endswith(".py")]
    pages = [name for name in names if name.startswith(PAGES) and name.endswith((".md", ".rst"))]
    tutorials = [name for name in names if name.startswith("notebooks/") and name.endswith(".py")]
    texts = {name: (root / name).read_text(encoding="utf-8") for name in (*modules, *pages, *tutorials)}
    found = [f for name in modules for f in (*stumbles(name, texts[name]), *terms_of_module(name, texts[name]))]
    found += [f for name in pages for f in terms(name, 1, texts[name])]
    return found + [f for name in tutorials for f in terms(name, 1, _markdown_of(texts[name]))]


def terms(name: str, line: int, text: str) -> Iterator[Finding]:
    """The words of `TERMS` in ``text``, which begins at ``line``; code between backquotes is not read."""
    plain = CODE.sub(lambda m: "\n" * m[0].count("\n"), text)
    for at in TERM.finditer(plain):
        say = list(TERMS.values())[at.lastindex - 1] if at.lastindex else ""
        yield Finding(name, line + plain.count("\n", 0, at.start()), f"`{at[0]}`: say {say}")


def terms_of_module(name: str, source: str) -> Iterator[Finding]:
    """Those in the docstrings of a module and in its strings of several words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from terms(name, node.lineno, node.value)


def _markdown_of(source: str) -> str:
    """The comments of a notebook in percent format, with its code as empty lines."""
    return "\n".join(line if line.startswith("#") else "" for line in source.split("\n"))


def stumbles(name: str, source: str) -> Iterator[Finding]:
    """The findings of one module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            line = node.body[0].lineno if text else 0
            if FIRST.match(text):
                yield Finding(name, line, "a docstring begins with a noun or a verb, not with what or who")
            if NOT_A.search(text):
                yield Finding(name, line, f"say `is not a`: {_found(NOT_A, text)}")
        elif isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    for form in (NOT_A, TAIL):
                        if form.search(part.value):
                            yield Finding(name, part.lineno, f"say `not a`: {_found(form, part.value)}")


def _found(form: re.Pattern[str], text: str) -> str:
    at = form.search(text)
    return "" if at is None else " ".join(text[max(0, at.start() - 20) : at.end() + 12].split())


if __name__ == "__main__":
    command(rule)
