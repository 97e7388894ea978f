"""Accessibility of the page by axe-core, which `make axe` fetches; skipped without it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import NEEDED, prefer, resize, start_browser
from helpers.page import Page
from helpers.report_runs import hostile_run, review_run
from sptnet.report.page.write import write_report

pytest.importorskip("selenium.webdriver", reason=NEEDED)
AXE = Path(os.environ.get("AXE", Path(__file__).parents[2] / ".axe/node_modules/axe-core/axe.min.js"))
pytestmark = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: run `make axe`")
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then((found) => done(found.violations.map((one) =>
  `${one.impact}: ${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).slice(0, 4).join(" | ")}`)));
"""
OPEN = "document.querySelector('.card .open').click();"
STATES = {
    "first": "",
    "explained": "document.querySelectorAll('details').forEach((one) => { one.open = true; })",
    "doubtful": "document.getElementById('doubtful').click()",
    "renaming": "document.querySelector('.card .actions button').click()",
    "merging": "document.querySelectorAll('.card .actions button')[1].click()",
    "members": f"{OPEN} document.querySelectorAll('#members .pick input')[1].click()",
    "moving": f"{OPEN} document.querySelector('#members .every').click();"
    "document.querySelector('#members .act.split').click()",
    "enlarged": "document.querySelector('#unsure-list .enlarge').click()",
    "edited": "document.querySelector('.card .confirm').click(); document.getElementById('fold').click()",
    "help": "document.getElementById('keys').click()",
    "menu": "document.getElementById('menu').click()",
}


@pytest.fixture(scope="module", params=["review", "hostile"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    run = {"review": review_run, "hostile": hostile_run}[request.param](tmp_path_factory.mktemp("axe"))
    page = write_report(run, tell=lambda message: None, model_pictures=request.param == "hostile").page
    assert page is not None
    browser = start_browser(tmp_path_factory.mktemp("profile"), tmp_path_factory.mktemp("downloads"))
    try:
        yield Page(browser, page, tmp_path_factory.mktemp("saved"))
    finally:
        browser.quit()


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing(opened: Page, state: str, width: int, scheme: str) -> None:
    resize(opened.browser, width, 900)
    prefer(opened.browser, scheme)
    opened.load()
    opened.js(STATES[state])
    opened.js(AXE.read_text(encoding="utf-8"))
    found: Any = opened.browser.execute_async_script(RUN)
    assert found == []
