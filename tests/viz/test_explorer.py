"""The explorer: its data against the fusion, its folds, and a real browser that walks through small and large ones."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.viz.captions import axes_text
from idgraph.viz.explorer.data import folds_of
from tests.viz.test_page import EVIL, browser, missing

__all__ = ["browser"]


def rope(scheduled: bool = True) -> ig.Fusion:
    f = ig.Fusion("rope")
    q, cos, sin = f.input("q", (2, 8, 128)), f.input("cos", (8, 128)), f.input("sin", (8, 128))
    turned = ig.cat([-q[:, :, 64:], q[:, :, :64]], -1)
    f.output(q * cos + turned * sin)
    if scheduled:
        ig.schedule.auto(f)
    return f


def layers(count: int) -> ig.Fusion:
    """Rounds of a rotation, a norm and a residual: eleven operations each."""
    f = ig.Fusion(f"{count} layers")
    x, w = f.input("x", (8, 128)), f.input("w", (128,))
    for _ in range(count):
        h = ig.cat([x[:, 64:], x[:, :64]], 1) * w
        x = x + h * ig.rsqrt(ig.sum(h * h, 1, keepdim=True) / 128.0 + 1e-5)
    f.output(x)
    return f


def test_data_say_what_the_fusion_is() -> None:
    f = rope()
    data = ig.viz.explore(f).data
    assert json.loads(json.dumps(data)) == data
    assert [o["name"] for o in data["ops"]] == [e.output.name for e in f.exprs]
    for o in data["ops"]:
        t = f[o["name"]]
        assert t.definition is not None
        assert o["reads"] == list(dict.fromkeys(x.name for x in t.definition.inputs))
        assert o["readers"] == list(dict.fromkeys(u.output.name for u in t.uses))
        assert len(o["accesses"]) == 1 + len(t.definition.inputs)
        assert data["lines"][o["line"]]["file"].endswith("test_explorer.py")
    kernel = data["kernels"][0]
    assert "\n".join(kernel["text"]) == ig.emit(f, "cuda").kernel_source(ig.emit(f, "cuda").kernels[0]).rstrip("\n")
    assert {n for line in kernel["ops"] for n in line} <= {o["name"] for o in data["ops"]}
    assert [o["name"] for o in data["ops"] if not o["kernel"]] == []  # each is found in the source
    assert data["passes"][0]["name"] == "lower" and len(data["passes"]) > 2


def test_steps_lead_from_no_schedule_to_this_one() -> None:
    f = rope()
    data = ig.viz.explore(f).data
    now = dict(data["loops"])
    for s in data["steps"]:
        assert now[s["tensor"]].split(", inlined")[0] == s["before"]
        now[s["tensor"]] = s["after"]

    def extents(text: str) -> list[str]:
        return [x[x.index("[") :] for x in text.split(", inlined")[0].split() if "[" in x]

    for t in f.tensors:
        if t.definition is not None:
            assert extents(now[t.name]) == extents(axes_text(t.loop))
    assert len(data["steps"]) == sum(len(t.log) for t in f.tensors)


def test_every_box_hangs_in_the_tree() -> None:
    for f in (rope(), rope(scheduled=False), layers(4)):
        for view in ig.viz.explore(f).data["views"]:
            folds = {x["id"]: x["parent"] for x in view["folds"]}
            ids = {b["id"] for b in view["boxes"]}
            assert len(ids) == len(view["boxes"]) and not ids & folds.keys()
            for x in (*view["boxes"], *view["folds"]):
                seen: list[str] = []
                at = x["parent"]
                while at is not None:
                    assert at in folds and at not in seen
                    seen.append(at)
                    at = folds[at]
            assert {x for e in view["edges"] for x in (e["a"], e["b"])} <= ids


def test_rounds_are_one_branch() -> None:
    (branch,) = [b for b in folds_of(layers(20)) if b.parts]
    assert len(branch.parts) in (19, 20) and branch.title.startswith(f"{len(branch.parts)} x ")
    assert [b for b in folds_of(rope(scheduled=False)) if b.parts] == []


def test_a_fusion_that_is_not_emitted_has_no_kernels() -> None:
    f = rope(scheduled=False)
    t = f["t9"]
    t.parallelize(0, "threadIdx.x")
    data = ig.viz.explore(f).data
    assert data["ops"] and isinstance(data["kernels"], list)
    with pytest.raises(ig.IdGraphError, match=r"not an \.html file"):
        ig.viz.explore(f).save("explorer.txt")
    with pytest.raises(ig.IdGraphError):
        ig.viz.explore("rope")  # type: ignore[arg-type]


def test_hostile_names_stay_text() -> None:
    f = ig.Fusion(EVIL)
    f.output(f.input(EVIL, (4,)) * 2.0)
    page = ig.viz.explore(f).to_html()
    assert EVIL not in page and "<img" not in page.split("<body>")[1].split("<script>")[0]


# A real browser ------------------------------------------------------------------------------------------------------

STATE = """return [...document.querySelectorAll(".ig-box")].map(g => { const r = g.querySelector("rect");
  return [g.dataset.id, ...["x", "y", "width", "height"].map(k => +r.getAttribute(k))]; })"""
LETTER = """const t = document.querySelector(".ig-box text").getBoundingClientRect(); return t.height"""


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Generator[Any]:
    def get(f: ig.Fusion) -> Any:
        browser.get(ig.viz.explore(f).save(tmp_path / "explorer.html").as_uri())
        return browser

    yield get
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def click(b: Any, box: str) -> None:
    b.execute_script(
        "document.querySelector('[data-id=' + JSON.stringify(arguments[0]) + ']')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        box,
    )


def text_of(b: Any, selector: str) -> str:
    return str(b.find_element("css selector", selector).text)


@pytest.mark.slow
def test_from_a_box_to_its_access_its_kernel_and_back(opened: Any) -> None:
    b = opened(rope())
    first = b.execute_script(STATE)
    assert {x[0] for x in first} == {"q", "cos", "sin", *(f"t{n}" for n in range(3, 10))}
    still = b.get_screenshot_as_png()
    click(b, "t6")
    assert text_of(b, ".ig-pane h4").startswith("t6[") and "read t4" in text_of(b, ".ig-pane")
    assert b.get_screenshot_as_png() != still
    b.find_element("css selector", "[data-tab=kernel]").click()
    on = [e.text for e in b.find_elements("css selector", ".ig-code .ig-on")]
    assert on and all("t6" in x for x in on)
    line = next(e for e in b.find_elements("css selector", ".ig-code div") if "neg" in e.text or "-t0" in e.text)
    line.click()
    assert b.find_element("css selector", ".ig-box.ig-on").get_attribute("data-id") != "t6"
    b.find_element("css selector", "[data-tab=source]").click()
    assert "cat" in text_of(b, ".ig-pane")
    b.find_element("css selector", "[data-tab=schedule]").click()
    b.execute_script(
        "const s = document.querySelector('input[type=range]'); s.value = 1; s.dispatchEvent(new Event('input'))"
    )
    assert "1 of " in text_of(b, ".ig-pane") and "split" in text_of(b, ".ig-pane")
    b.find_element("css selector", "[data-tab=passes]").click()
    assert "kernels after" in text_of(b, ".ig-pane")
    b.find_element("css selector", ".ig-canvas svg").click()
    b.find_element("css selector", "[data-tab=operation]").click()
    b.execute_script("document.activeElement.blur()")
    assert b.execute_script(STATE) == first
    b.refresh()
    assert b.execute_script(STATE) == first and b.get_screenshot_as_png() == still  # the same page, the same picture


@pytest.mark.slow
def test_hostile_names_stay_text_in_a_browser(opened: Any) -> None:
    """Every box and every tab of a page whose names, symbols apart, are markup: nothing becomes an element or runs."""
    f = ig.Fusion(EVIL)
    x = f.input(EVIL + "0", shape=(64,))
    f.output(ig.add(x, ig.cat([x[32:], x[:32]], dim=0, name=EVIL + "1"), name=EVIL + "2"))
    ig.schedule.auto(f)
    b = opened(f)
    assert b.title.startswith(EVIL)
    seen = ""
    for box in [row[0] for row in b.execute_script(STATE)]:
        click(b, box)
        for tab in ("operation", "kernel", "source", "schedule", "passes"):
            b.find_element("css selector", f"[data-tab={tab}]").click()
            seen += text_of(b, ".ig-pane")
    b.find_element("css selector", "input[type=search]").send_keys("<img")
    assert EVIL in seen and EVIL in str(b.execute_script("return document.body.textContent"))
    assert b.find_elements("css selector", "img, iframe, object, embed") == []
    assert len(b.find_elements("css selector", "body script")) == len(
        opened(rope()).find_elements("css selector", "body script")
    )


@pytest.mark.slow
def test_search_opens_and_folds_close(opened: Any) -> None:
    b = opened(layers(12))
    b.find_element("xpath", "//button[text()='fold all']").click()
    folded = len(b.execute_script(STATE))
    search = b.find_element("css selector", "input[type=search]")
    search.send_keys("slice")
    assert text_of(b, ".ig-found") == "24 found"
    search.send_keys("\n")
    assert text_of(b, ".ig-found") == "1 of 24" and "slice" in text_of(b, ".ig-pane h4")
    assert len(b.execute_script(STATE)) > folded
    assert b.find_element("css selector", ".ig-box.ig-on").is_displayed()
    b.find_element("xpath", "//button[text()='fold all']").click()
    assert len(b.execute_script(STATE)) == folded
    b.find_element("xpath", "//button[text()='unfold all']").click()
    assert len(b.execute_script(STATE)) == len(layers(12).tensors)


def test_a_widget_has_the_same_data() -> None:
    pytest.importorskip("anywidget", reason="the widget needs anywidget, which the extra viz brings")
    e = ig.viz.explore(rope())
    assert e.widget().data == e.data


assert missing is not None  # the browser's fixture skips with its reason
