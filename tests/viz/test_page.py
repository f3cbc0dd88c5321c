"""The report page: its structure, that it is self-contained and escaped, and how a real browser shows it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import shutil
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.reports.program_report import IndexReport
from idgraph.viz.report_page_parts import access_pictures

GRAPHS = Path(__file__).parents[1] / "frontends" / "graphs"
EVIL = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>&\'`'
VOID = {"br", "meta", "input"}


def evil_report() -> IndexReport:
    """Every name and line is hostile; there are cycles, gathers, reshapes, self mappings and symbols."""
    f = ig.Fusion(EVIL)
    n = f.symbol("n", min=1)
    t0 = f.input(EVIL + "0", shape=(64,))
    i = f.input(EVIL + "i", shape=(n,), dtype="int64")
    s = f.input("s", shape=(8, 8))
    f.output(t0 + ig.cat([t0[32:], t0[:32]], dim=0))
    f.output(ig.index_select(t0, 0, i), s + s.T, ig.sum(s[:, ::2].T, 0))
    f.tensors[-1].name = EVIL + "last"
    return ig.report(f)


def imported(name: str) -> IndexReport:
    return ig.frontends.fx.from_json(GRAPHS / f"{name}.core.json").report()


class Page(HTMLParser):
    """Reads a page: every tag is closed in order; ids, links, and what could load something are noted."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.scripts: list[str] = []
        self.data = False
        self.policy = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        if tag == "script":
            self.data = given.get("type") == "application/json"  # read by the script, never run
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        assert not {"src", "srcset", "data", "action", "background"} & given.keys(), (tag, given)
        assert not [a for a in given if a.startswith("on")], given
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script" and not self.data:
            self.scripts.append(data)


REPORTS = {
    "hostile names": evil_report,
    "rope with residual": lambda: imported("rope_half_residual"),
    "segments and opaque calls": lambda: imported("sort_gather"),
    "gathers": lambda: imported("gather_logsoftmax"),
    "scheduled": lambda: ig.frontends.fx.from_json(GRAPHS / "rope_half.core.json").report(auto=True),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_whole_and_alone(name: str) -> None:
    html = REPORTS[name]().to_html()
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    assert page.links and {x[1:] for x in page.links} <= set(page.ids)  # every link leads to a place on the page
    assert {"overview", "s0", "reading"} <= set(page.ids)
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & page.tags
    assert not re.search(r"url\((?!#)|@import", html)
    names = {"2000/svg", "1999/xhtml", "1999/xlink", "XML/1998/namespace", "2000/xmlns/"}  # names, never fetched
    assert set(re.findall(r"https?://[^\"'\s<]*", html)) <= {f"http://www.w3.org/{x}" for x in names}
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy and "default-src 'none'" in page.policy


def test_every_operation_has_its_place() -> None:
    r = imported("rope_half_residual")
    html = r.to_html()
    ids = set(Page(html).ids)
    for s in r.segments:
        assert {f"s{s.number}-op-{n}" for n in range(len(s.operations))} <= ids
        assert {f"s{s.number}-cycle{n}" for n in range(len(s.cycles))} <= ids
    drawn = sum(len(access_pictures(s)) for s in r.segments)
    assert drawn and html.count("<svg") == len(r.cycles) + drawn and html.count("<div data-explorer=") == 1


def test_only_a_report_has_a_page() -> None:
    from idgraph.display import render

    with pytest.raises(ig.IdGraphError, match="no page of a Fusion"):
        render("html", ig.Fusion("f"))


# A real browser ------------------------------------------------------------------------------------------------------


def missing() -> str:
    """Why no browser can be asked; empty where one can."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed"
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        return "Debian's chromium and chromium-driver are not installed"
    return ""


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    if missing():
        pytest.skip(missing())
    driver = started()
    yield driver
    driver.quit()


def started() -> Any:
    """A browser without a window, 1400 x 1000 pixels."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1400,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(60)
    return driver


def opened(browser: Any, report: IndexReport, folder: Path) -> Any:
    browser.get(report.save(folder / "report.html").as_uri())
    return browser


def visible(browser: Any, selector: str) -> list[Any]:
    return [e for e in browser.find_elements("css selector", selector) if e.is_displayed()]


@pytest.mark.slow
def test_in_a_browser(browser: Any, tmp_path: Path) -> None:
    r = imported("rope_half_residual")
    b = opened(browser, r, tmp_path)
    assert b.title == f"{r.name} - index report"
    for section in ("overview", "s0", "s0-cycles", "s0-memory", "s0-operations", "imported", "reading"):
        assert b.find_element("id", section).is_displayed(), section
    picture = visible(b, ".ig-canvas svg")[0]
    assert picture.size["width"] > 300 and picture.size["height"] > 300
    width = b.execute_script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1]  # the page itself never scrolls sideways

    # fold and unfold
    b.find_element("id", "unfold").click()
    assert all(d.get_attribute("open") for d in b.find_elements("css selector", "main details"))
    assert "i3 + 4" in b.find_element("id", "s0-operations").find_element("xpath", "..").text
    b.find_element("id", "fold").click()
    assert not any(d.get_attribute("open") for d in b.find_elements("css selector", "main details"))

    # filter, and a link that unfolds where it leads
    b.find_element("id", "filter").send_keys("cat neg")
    kept = visible(b, ".op")
    assert 0 < len(kept) < len(r.segments[0].operations)
    assert b.find_element("id", "shown").text == f"{len(kept)} operations"
    b.execute_script("location.hash = '#s0-op-0'")
    b.execute_async_script("setTimeout(arguments[0], 100)")
    assert b.find_element("id", "s0-op-0").get_attribute("open")

    # light and dark
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = b.execute_script(paper)
    b.find_element("id", "theme").click()
    assert b.execute_script(paper) != before
    b.find_element("id", "theme").click()
    assert b.execute_script(paper) == before
    assert [entry for entry in b.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_hostile_names_in_a_browser(browser: Any, tmp_path: Path) -> None:
    r = evil_report()
    b = opened(browser, r, tmp_path)
    b.find_element("id", "unfold").click()
    assert b.title == f"{EVIL} - index report"  # shown, not run
    assert b.find_elements("css selector", "img") == []
    assert EVIL in b.find_element("css selector", "h1").text
    assert [entry for entry in b.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_nothing_is_fetched_and_no_other_script_runs(browser: Any, tmp_path: Path) -> None:
    page = evil_report().save(tmp_path / "report.html")
    planted = page.read_text().replace("<main>", '<main><script>document.title="owned"</script>')
    page.write_text(planted)
    browser.get_log("performance")
    browser.get(page.as_uri())
    assert "owned" not in browser.title.split(" - ")[-1]
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
    fetched = [e["message"] for e in browser.get_log("performance") if "requestWillBeSent" in e["message"]]
    urls = set(re.findall(r'"request":\{[^}]*?"url":"([^"]+)"', "".join(fetched)))
    assert {u for u in urls if not u.startswith(("file:", "chrome"))} == set()
