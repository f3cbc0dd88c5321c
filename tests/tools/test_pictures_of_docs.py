"""The pictures of README and pages are what the code draws today."""

import pytest

from tools.docs.pictures import FOLDER, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_drawn_as_it_stands(name: str) -> None:
    """Draw again with ``python -m tools.docs.pictures`` where this fails on purpose."""
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == PICTURES[name]()
