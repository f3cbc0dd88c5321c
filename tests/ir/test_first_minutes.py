"""Words that a person meets in a prompt: short forms of objects, names that are taken, names that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

import idgraph as ig


def scaled() -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    return f, f.output(f.input("x", shape=(8, 6)).T * 2.0)


def test_a_prompt_shows_what_print_does() -> None:
    f, y = scaled()
    m = ig.IdModel(f)
    assert y.definition is not None
    a, p = m.write(y.definition), ig.emit(f, target="cuda")
    shown = [a, a.inverse(), m, m.index_map(y.definition), ig.cost(p), ig.validate(f, target="numpy")]
    assert [repr(x) for x in shown] == [str(x) for x in shown]
    assert repr(a) == "mul writes t2[i0, i1] at i0*8 + i1"


def test_a_name_that_nobody_chose() -> None:
    f, y = scaled()
    with pytest.raises(ig.OperationError, match="already has a tensor 't2', which was named automatically") as caught:
        ig.exp(y, name="t2")
    assert caught.value.hint
    with pytest.raises(ig.OperationError, match="already has a tensor 't2', which was named automatically"):
        f.input("t2", shape=(4,))
    mine = ig.exp(y, name="t9")
    with pytest.raises(ig.OperationError, match=r"already has a tensor 't9'(?!,)"):
        ig.exp(mine, name="t9")


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'softmx'; did you mean 'softmax'\?"):
        getattr(ig, "softmx")  # noqa: B009 - as a user writes it
    with pytest.raises(AttributeError, match=r"a function of torch: ig\.from_torch\(fn, args\)"):
        getattr(ig, "bilinear_interpolation")  # noqa: B009


def test_a_missing_folder_is_named_as_it_was_given(tmp_path: Path) -> None:
    f, _ = scaled()
    page = tmp_path / "nowhere" / "page.html"
    with pytest.raises(OSError, match="nowhere") as caught:
        ig.viz.explore(f).save(page)
    assert caught.value.filename == str(page)
