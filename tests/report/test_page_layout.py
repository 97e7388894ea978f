"""What is in sight on the page: menus, focused images, long names, paper, and words for what was pressed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import NEEDED, prefer, resize, start_browser
from helpers.page import Page
from helpers.report_runs import LONG, review_run
from sptnet.report.page.write import write_report

pytest.importorskip("selenium.webdriver", reason=NEEDED)
WIDTHS = {1400: 900, 390: 844}
ENTER, ESCAPE, UP, DOWN, END = "\ue007", "\ue00c", "\ue013", "\ue015", "\ue010"
WORDS = "Birds that were seen at the feeder behind the old house in the winter of the long snow"
IN_SIGHT = """
const box = arguments[0].getBoundingClientRect();
const reached = (x, y) => arguments[0].contains(document.elementFromPoint(x, y));
const middle = (box.left + box.right) / 2;
return box.width > 0 && reached(middle, box.top + 3) && reached(middle, box.bottom - 3);
"""
LINES = """
const one = document.querySelector(arguments[0]);
return one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight);
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    file = write_report(review_run(tmp_path_factory.mktemp("layout")), tell=lambda _: None, model_pictures=False).page
    assert file is not None
    downloads = tmp_path_factory.mktemp("downloads")
    browser = start_browser(tmp_path_factory.mktemp("profile"), downloads)
    try:
        prefer(browser, "light")
        yield Page(browser, file, downloads)
    finally:
        browser.quit()


@pytest.fixture(params=WIDTHS)
def page(opened: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page on a wide and on a narrow screen, as if opened for the first time."""
    resize(opened.browser, request.param, WIDTHS[request.param])
    opened.load()
    yield opened
    assert opened.browser.get_log("browser") == []


@pytest.fixture
def phone(opened: Page) -> Page:
    resize(opened.browser, 390, 844)
    opened.load()
    return opened


def in_sight(page: Page, element: Any) -> bool:
    """Return True if nothing covers the element, and it lies on the screen."""
    return bool(page.js(IN_SIGHT, element))


def rename(page: Page, name: str, to: str) -> None:
    page.press(name, "Rename")
    page.js("document.querySelector('.rename input').select()")
    page.keys(to + ENTER)


def test_the_menu_of_the_first_screen_opens_in_sight(phone: Page) -> None:
    phone.one("#menu").click()
    for link in (phone.all(".bar a")[0], phone.all(".bar a")[-1]):
        phone.wait(lambda link=link: in_sight(phone, link))


def test_the_focused_image_is_in_sight(page: Page) -> None:
    resize(page.browser, page.js("return innerWidth"), 560)
    page.open("cat")
    page.js("document.querySelector('#members .tiles').style.gridTemplateColumns = '100px 100px'")
    page.keys(END)
    for key in (*6 * (UP,), *6 * (DOWN,)):
        page.keys(key)
        page.wait(lambda: in_sight(page, page.browser.switch_to.active_element), 20)
    page.keys(ESCAPE)


def test_the_list_of_edits_does_not_hide_the_focused_image(page: Page) -> None:
    page.click("#unsure-list .more button")
    page.keys("c")
    page.wait(lambda: page.one("#edits").is_displayed())
    for key in (*5 * (DOWN,), *5 * (UP,)):
        page.keys(key)
        page.wait(lambda: in_sight(page, page.browser.switch_to.active_element), 20)


def test_what_can_be_done_with_selected_images_stays_in_sight(page: Page) -> None:
    page.click("#unsure-list .more button")
    page.keys(END)
    page.keys(" ")
    page.wait(lambda: in_sight(page, page.one("#unsure-list .act.confirm")))
    assert page.one("#unsure-list .count").text == "1 selected"


def test_long_names_take_few_lines(page: Page) -> None:
    key = page.card(LONG).get_attribute("data-key")
    assert page.js(LINES, f".card[data-key='{key}'] h3") < 3.5
    assert page.one(f".card[data-key='{key}'] .open").get_attribute("title") == LONG
    assert page.js(LINES, f"#legend [data-key='{key}'] span") < 2.5
    page.open(LONG)
    assert page.js("return document.querySelector('#members .dialog-head').offsetHeight < 0.2 * innerHeight")


def test_a_long_folder_does_not_hide_the_name_of_a_file(page: Page, tmp_path: Path) -> None:
    longer = tmp_path / "report.html"
    longer.write_text(page.file.read_text(encoding="utf-8").replace('"photos/', f'"{LONG}/'), encoding="utf-8")
    Page(page.browser, longer, page.downloads).reload()
    page.open("cat")
    name = page.one("#members .tile .name").get_attribute("textContent")
    file = page.one("#members .tile .name span:last-child")
    assert (name, in_sight(page, file)) == (f"{LONG}/{file.text}", True)
    page.keys(ENTER)
    page.wait(lambda: page.one("#light").is_displayed())
    assert page.one("#light-title").get_attribute("textContent") == name
    assert in_sight(page, page.one("#light-title span:last-child"))
    assert in_sight(page, page.one("#light [data-close]"))
    assert page.js("const light = document.getElementById('light'); return light.scrollWidth <= light.clientWidth")


def test_a_long_label_does_not_hide_what_an_image_looks_like(page: Page) -> None:
    rename(page, "cat", WORDS)
    page.js("document.getElementById('check').scrollIntoView({behavior: 'instant'})")
    guess = page.one("#check-list .words > span:last-child")
    assert guess.text == "looks like: new-1"
    assert in_sight(page, guess)


def test_the_table_of_truth_can_be_read(page: Page) -> None:
    table = page.one(".confusion")
    page.js("arguments[0].scrollIntoView({block: 'start', behavior: 'instant'})", table)
    assert page.js(
        "return document.querySelector('.confusion caption span').getBoundingClientRect().right < innerWidth"
    )
    assert page.js("return document.querySelector('.confusion thead th').clientHeight") < 120
    lines = page.js(
        """const range = document.createRange();
        range.selectNodeContents(document.querySelector(".confusion thead th"));
        return range.getClientRects().length"""
    )
    assert lines == 1, "a word is not cut"


def test_a_step_that_cannot_be_done_yet_says_so(page: Page) -> None:
    page.one("#to-edits").click()
    assert page.texts("[data-step=save] .done") == ["There are no edits yet."]
    rename(page, "new-1", "otter")
    assert page.texts("[data-step=save] .done") == []


def test_a_copied_command_is_acknowledged(page: Page) -> None:
    page.click("[data-copy=count-command]")
    page.wait(lambda: page.one("[data-copy=count-command]").text in ("Copied", "Press Ctrl C"))


def test_paper_has_whole_cards_and_no_buttons(page: Page) -> None:
    try:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        shown = page.js("return [...document.querySelectorAll('button, input')].filter((e) => e.checkVisibility())")
        words = {one.get_attribute("class") for one in shown}
        assert words <= {"enlarge", "open", "cell", "", None}
        assert page.js("return getComputedStyle(document.querySelector('.card')).breakInside") == "avoid"
        assert page.js("return getComputedStyle(document.querySelector('.tile')).breakInside") == "avoid"
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        prefer(page.browser, "light")


def test_a_dark_page_is_printed_in_light_colours(page: Page) -> None:
    picture = "document.getElementById('plot').toDataURL()"
    page.point_on_map()
    light = page.js(f"return {picture}")
    page.js("document.getElementById('theme').click()")
    dark = page.js(f"return {picture}")
    page.js(f"addEventListener('beforeprint', () => {{ window.printed = {picture}; }})")
    page.browser.execute_cdp_cmd("Page.printToPDF", {})
    assert page.js("return window.printed") == light != dark
    page.wait(lambda: page.js(f"return {picture}") == dark)


def test_the_page_holds_no_research_terms_without_an_expectation(tmp_path: Path) -> None:
    run = review_run(tmp_path)
    facts = run / "run.json"
    facts.write_text(facts.read_text(encoding="utf-8").replace('"expected_accuracy"', '"another"'), encoding="utf-8")
    said = write_report(run, tell=lambda _: None, model_pictures=False).expectation
    assert said.endswith("is not known: the certainty of this run is the model's own and was not tested")
