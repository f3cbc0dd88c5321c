"""The explorer in a real browser: page and notebook widget draw one picture; sliders, source, sizes."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.viz.explorer.data import Data
from tests.viz.test_explorer import LETTER, STATE, click, layers, rope, text_of
from tests.viz.test_page import browser, started

__all__ = ["browser"]

GOLDEN = Path(__file__).parent / "golden"
GRID = (40, 56)  # cells of a stored picture
# The host that anywidget's front end is, as far as a widget without callbacks can tell: it imports the module
# from its text and calls `render` with a model and an element.
HOST = """<!DOCTYPE html><html><head><meta charset="utf-8"><style>body { margin:8px } %s
.ig-explorer { height:calc(100vh - 18px) }</style></head><body><div id="out"></div>
<script type="application/json" id="data">%s</script><script type="module">
const text = new TextDecoder().decode(Uint8Array.from(atob("%s"), (c) => c.charCodeAt(0)));
const widget = (await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })))).default;
const data = JSON.parse(document.getElementById("data").textContent);
await widget.render({ model: { get: (name) => ({ data })[name] }, el: document.getElementById("out") });
document.body.dataset.ready = "yes";
</script></body></html>"""


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Generator[Any]:
    """Open an explorer as a page, or as a notebook would show its widget."""

    def get(explorer: ig.viz.Explorer, *, widget: bool = False) -> Any:
        path = tmp_path / "explorer.html"
        if widget:
            path.write_text(hosted(explorer), encoding="utf-8")
        else:
            explorer.save(path)
        browser.get(path.as_uri())
        if widget:
            from selenium.webdriver.support.ui import WebDriverWait

            WebDriverWait(browser, 20).until(lambda b: b.execute_script("return document.body.dataset.ready"))
        return browser

    yield get
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def hosted(explorer: ig.viz.Explorer) -> str:
    """A page that shows the widget as a notebook's front end does."""
    pytest.importorskip("anywidget", reason="the widget needs anywidget, which the extra viz brings")
    w = explorer.widget()
    state: Data = w.get_state()
    data = json.dumps(state["data"]).replace("<", "\\u003c")
    return HOST % (state["_css"], data, base64.b64encode(state["_esm"].encode()).decode())


def slide(b: Any, value: int) -> str:
    b.execute_script(
        "const s = document.querySelector('input[type=range]'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        value,
    )
    return text_of(b, ".ig-pane")


def picture(b: Any) -> npt.NDArray[np.float64]:
    """The screenshot as a coarse grid of greys between 0 and 1."""
    from matplotlib.image import imread

    pixels = np.asarray(imread(io.BytesIO(b.get_screenshot_as_png())), dtype=np.float64)[:, :, :3].mean(axis=2)
    rows, columns = GRID
    tall, wide = (pixels.shape[0] // rows, pixels.shape[1] // columns)
    whole = pixels[: tall * rows, : wide * columns]
    return whole.reshape(rows, tall, columns, wide).mean(axis=(1, 3))


@pytest.mark.slow
def test_the_widget_draws_the_picture_of_the_page(shown: Any) -> None:
    e = ig.viz.explore(rope())
    b = shown(e)
    boxes, still = b.execute_script(STATE), picture(b)
    b = shown(e, widget=True)
    assert b.execute_script(STATE) == boxes
    assert np.abs(picture(b) - still).max() < 0.02
    click(b, "t6")
    assert text_of(b, ".ig-pane h4").startswith("t6[")
    search = b.find_element("css selector", "input[type=search]")
    search.send_keys("cat\n")
    assert text_of(b, ".ig-found") == "1 of 4"  # the lines that it was written on count


@pytest.mark.slow
def test_the_sliders_lead_through_every_step_and_pass(shown: Any) -> None:
    e = ig.viz.explore(rope())
    b = shown(e, widget=True)
    b.find_element("css selector", "[data-tab=schedule]").click()
    now = dict(e.data["loops"])
    for n, step in enumerate(e.data["steps"], 1):
        text = slide(b, n)
        now[step["tensor"]] = step["after"]
        assert f"{n} of {len(e.data['steps'])}: {step['tensor']}.{step['text']}" in text
        assert all(axes in text for axes in now.values())
    assert "unscheduled" in slide(b, 0)
    b.find_element("css selector", "[data-tab=passes]").click()
    for n, p in enumerate(e.data["passes"]):
        text = slide(b, n)
        assert f"kernels after {p['name']}" in text
        assert [line.strip() in text for k in p["kernels"] for line in e.data["texts"][k]].count(False) == 0
        assert bool(b.find_elements("css selector", ".ig-added")) == (n > 0)


@pytest.mark.slow
def test_through_to_the_source_and_back(shown: Any) -> None:
    b = shown(ig.viz.explore(rope()), widget=True)
    click(b, "t9")
    b.find_element("css selector", ".ig-pane td a").click()  # the user's line
    assert b.find_element("css selector", "[data-tab=source]").get_attribute("aria-pressed") == "true"
    (on,) = b.find_elements("css selector", ".ig-code .ig-on")
    assert "f.output(q * cos + turned * sin)" in on.text
    other = next(x for x in b.find_elements("css selector", ".ig-code div") if "turned = ig.cat" in x.text)
    other.click()
    box = b.find_element("css selector", ".ig-box.ig-on").get_attribute("data-id")
    b.find_element("css selector", "[data-tab=operation]").click()
    assert text_of(b, ".ig-pane h4").startswith(f"{box}[")
    assert "turned = ig.cat" in text_of(b, ".ig-pane")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "operations"), [(1, 11), (9, 99), (91, 1001)])
def test_legible_and_as_stored_at_every_size(shown: Any, count: int, operations: int) -> None:
    """Look at the picture, then store it: ``python -m tests.viz.test_explorer_widget`` (needs the browser)."""
    f = layers(count)
    assert len(f.exprs) == operations
    b = shown(ig.viz.explore(f, target="python"))
    boxes = b.execute_script(STATE)
    assert 0 < len(boxes) <= 60
    assert b.execute_script(LETTER) >= 7
    for n, (_, x, y, w, h) in enumerate(boxes):
        for _, x2, y2, w2, h2 in boxes[:n]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    stored = np.loadtxt(GOLDEN / f"explorer_{operations}.txt")
    assert np.abs(picture(b) - stored).mean() < 0.01, "another picture than the stored one"


@pytest.mark.slow
def test_titles_stay_in_their_frames_and_all_of_it_in_view(shown: Any) -> None:
    b = shown(ig.viz.explore(rope()))
    for name in b.find_elements("css selector", ".ig-name"):
        inside = b.find_element("css selector", f".ig-frame[data-id='{name.get_attribute('data-id')}'] > rect").rect
        for line in name.find_elements("css selector", "text"):
            assert line.rect["x"] + line.rect["width"] <= inside["x"] + inside["width"] + 1
    canvas, world = (b.find_element("css selector", s).rect for s in (".ig-canvas", ".ig-canvas svg > g"))
    assert canvas["x"] <= world["x"] and world["x"] + world["width"] <= canvas["x"] + canvas["width"]
    assert canvas["y"] <= world["y"] and world["y"] + world["height"] <= canvas["y"] + canvas["height"]


def store() -> None:
    """Draw the stored pictures again."""
    import tempfile

    b = started()
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 9, 91):
            f = layers(count)
            b.get(ig.viz.explore(f, target="python").save(Path(folder) / "explorer.html").as_uri())
            np.savetxt(GOLDEN / f"explorer_{len(f.exprs)}.txt", picture(b), fmt="%.2f")
    b.quit()


if __name__ == "__main__":
    store()
