"""Reviewing a run on the page, on wide and narrow screens: next steps, selected images, edits that survive."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.browser import NEEDED, prefer, resize, start_browser
from helpers.page import Page
from helpers.report_runs import LONG, REVIEW_NAMES, review_result, review_run
from sptnet.cli import main
from sptnet.report.page.write import write_report
from sptnet.results.edits.log import current

selenium = pytest.importorskip("selenium.webdriver", reason=NEEDED)
ActionChains = selenium.ActionChains
RESULT = review_result()
ENTER, ESCAPE, TAB, SHIFT, CONTROL = "\ue007", "\ue00c", "\ue004", "\ue008", "\ue009"
LEFT, UP, RIGHT, DOWN, HOME, END = "\ue012", "\ue013", "\ue014", "\ue015", "\ue011", "\ue010"
WIDTHS = {1400: 900, 390: 844}
RESEARCH = ("cohesion", "class token", "loss", "phase", "silhouette", "epoch", "calibrat", "feature", "cosine", "head")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return review_run(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="module")
def opened(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    downloads = tmp_path_factory.mktemp("downloads")
    browser = start_browser(tmp_path_factory.mktemp("profile"), downloads)
    try:
        prefer(browser, "light")
        yield Page(browser, written(run), downloads)
    finally:
        browser.quit()


def written(run: Path) -> Path:
    page = write_report(run, tell=lambda message: None, model_pictures=False).page
    assert page is not None
    return page


@pytest.fixture
def page(opened: Page) -> Iterator[Page]:
    """The page on a wide screen, as if opened for the first time."""
    resize(opened.browser, 1400, 900)
    opened.load()
    yield opened
    assert opened.browser.get_log("browser") == []


@pytest.fixture(params=WIDTHS)
def sized(opened: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page on a wide and on a narrow screen."""
    resize(opened.browser, request.param, WIDTHS[request.param])
    opened.load()
    yield opened
    assert opened.browser.get_log("browser") == []


def ids(page: Page, gallery: str = "#members") -> list[str]:
    return page.texts(f"{gallery} .tile .name")


def members(name: str) -> list[int]:
    """Return the images of a category, the most certain first."""
    return sorted(RESULT.members(name).tolist(), key=lambda i: -float(RESULT.certainty[i]))


def selected(page: Page, gallery: str = "#members") -> list[str]:
    return page.texts(f"{gallery} .tile.selected .name")


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[str, str]:
    """Run `sptnet` and return what it wrote to stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["sptnet", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert stop.value.code == 0, said.err
    return said.out, " ".join(said.err.split())


# --- what to do next --------------------------------------------------------------------------------------------------


def test_the_first_screen_says_what_to_do_next(sized: Page) -> None:
    assert sized.texts("#next li > a") == [
        "Name the 4 new categories",
        "Look at the 37 least sure images",
        "Check one of your labels",
        "Confirm the categories that are right",
        "Save your edits",
    ]
    assert sized.js("return document.getElementById('next').getBoundingClientRect().bottom <= innerHeight")
    assert sized.one("h1").text.startswith("About 62 % (55 to 70) of the 37 unsorted images should be right")
    assert sized.one("#sentence").text == (
        "40 images in 6 categories (3 to 8 are plausible): 2 known and 4 new. 7 images are doubtful."
    )


def test_what_a_practitioner_sees_is_free_of_research_terms(page: Page) -> None:
    for summary in page.all("main > section:not(#research ~ *) summary"):
        page.js("arguments[0].parentElement.open = true", summary)
    seen = page.js(
        """const research = document.getElementById("research");
        const before = [...document.querySelectorAll("header, main > section")].filter((one) =>
          one.compareDocumentPosition(research) & Node.DOCUMENT_POSITION_FOLLOWING);
        return before.map((one) => one.innerText).join(" ").toLowerCase()"""
    )
    assert "name the 4 new categories" in seen and "how many categories" in seen
    assert [word for word in RESEARCH if word in seen] == []
    page.open("new-1")
    page.keys(ENTER)
    for dialog in ("#members", "#light"):
        text = page.one(dialog).text.lower()
        assert [word for word in RESEARCH if word in text] == []


def test_a_term_is_explained_where_it_is_used(sized: Page) -> None:
    summary = sized.one("#unsure .what summary")
    sized.js("arguments[0].focus()", summary)
    assert not sized.one("#unsure .what p").is_displayed()
    sized.keys(ENTER)
    assert sized.one("#unsure .what p").text.startswith("The percentage at an image is its certainty")


def test_the_next_steps_show_what_is_done(page: Page) -> None:
    page.click("[data-step=name] a")
    assert page.names() == ["new-1", "new-2", "new-3", "new-4"]
    page.press("new-1", "Rename")
    page.keys("otter" + ENTER)
    assert page.texts("#next .done") == ["1 of 4 done"]
    page.press("otter", "Confirm")
    assert page.texts("#next .done") == ["1 of 4 done", "9 of 37 done", "1 of 6 done"]
    page.save()
    assert page.texts("[data-step=save] .done") == ["✓ done"]


# --- mended -----------------------------------------------------------------------------------------------------------


def test_long_names_leave_the_buttons_of_dialogs_inside(sized: Page) -> None:
    sized.press("new-4", "Merge into…")
    assert LONG in " ".join(sized.texts("#merge-into option"))
    assert sized.inside("#merge button[type=submit]", "#merge")
    assert sized.inside("#merge select", "#merge")
    sized.js("document.getElementById('merge-into').selectedIndex = 4")
    sized.one("#merge button[type=submit]").click()
    sized.wait(lambda: len(sized.edits()) == 1)
    sized.open(LONG)
    sized.keys("m")
    sized.wait(lambda: sized.one("#move").is_displayed())
    assert sized.inside("#move button[type=submit]", "#move")
    assert sized.inside("#move select", "#move")
    sized.keys(ESCAPE)
    sized.keys(ENTER)
    sized.wait(lambda: sized.one("#light").is_displayed())
    assert sized.inside("#light [data-close]", "#light")
    assert sized.inside("#light-after", "#light")


def touch(page: Page, *paths: list[tuple[int, int]]) -> None:
    """Touch the map with one finger per path; places are offsets from its middle."""
    from selenium.webdriver.common.actions import interaction
    from selenium.webdriver.common.actions.action_builder import ActionBuilder
    from selenium.webdriver.common.actions.pointer_input import PointerInput

    plot = page.one("#plot")
    fingers = [PointerInput(interaction.POINTER_TOUCH, f"finger {i}") for i in range(len(paths))]
    actions = ActionBuilder(page.browser, mouse=fingers[0], duration=0)
    for finger in fingers[1:]:
        actions.devices.append(finger)
    for finger, path in zip(fingers, paths, strict=True):
        finger.create_pointer_move(duration=0, x=path[0][0], y=path[0][1], origin=plot)
        finger.create_pointer_down(button=0)
        for x, y in path[1:]:
            finger.create_pointer_move(duration=0, x=x, y=y, origin=plot)
        finger.create_pointer_up(button=0)
    actions.perform()


def test_the_tip_of_a_touched_point_stays(sized: Page) -> None:
    x, y = sized.point_on_map()
    assert not sized.one("#tip").is_displayed()
    touch(sized, [(x, y)])
    sized.wait(lambda: sized.one("#tip").is_displayed())
    name = sized.one("#tip b").text
    sized.one("#tip button").click()
    sized.wait(lambda: sized.one("#members").is_displayed())
    assert sized.one("#members-title").text == name
    sized.keys(ESCAPE)
    assert sized.one("#tip").is_displayed()
    box = sized.js("const b = document.getElementById('plot').getBoundingClientRect(); return [b.width, b.height]")
    touch(sized, [(round(8 - box[0] / 2), round(box[1] / 2 - 8))])
    sized.wait(lambda: not sized.one("#tip").is_displayed())


def test_the_whole_navigation_can_be_reached(sized: Page) -> None:
    narrow = sized.js("return innerWidth") < 860
    assert sized.one("#menu").is_displayed() == narrow
    if narrow:
        sized.js("document.getElementById('menu').focus()")
        sized.keys(ENTER)
    for link in sized.all(".bar a"):
        assert link.is_displayed()
        assert sized.js(
            "const b = arguments[0].getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth", link
        )
    for selector in ("#keys", "#theme"):
        assert sized.js(
            "return document.querySelector(arguments[0]).getBoundingClientRect().right <= innerWidth", selector
        )
    sized.one(".bar a[href='#map']").click()
    assert sized.browser.current_url.endswith("#map")
    if narrow:
        assert not sized.one(".bar a[href='#map']").is_displayed(), "the menu closes"
    assert sized.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_cards_of_small_categories_are_even_and_full(sized: Page) -> None:
    strips = sized.js(
        """return [...document.querySelectorAll(".card .strip")].map((strip) => {
          const area = (one) => { const b = one.getBoundingClientRect(); return b.width * b.height; };
          const filled = [...strip.children].reduce((sum, one) => sum + area(one), 0);
          return [strip.children.length, Math.round(strip.getBoundingClientRect().height), filled / area(strip)];
        })"""
    )
    assert [count for count, _, _ in strips] == [8, 5, 2, 1, 8, 8]
    assert len({height for _, height, _ in strips}) == 1
    assert all(share > 0.93 for _, _, share in strips), "no empty places"
    rows = sized.js(
        """const rows = {};
        for (const card of document.querySelectorAll(".card")) {
          const box = card.getBoundingClientRect();
          (rows[Math.round(box.top)] ??= new Set()).add(Math.round(box.height));
        }
        return Object.values(rows).map((heights) => heights.size)"""
    )
    assert set(rows) == {1}


# --- images -----------------------------------------------------------------------------------------------------------


def test_doubtful_filters_images_not_cards(sized: Page) -> None:
    sized.click(".check input")
    assert not sized.one("#cards").is_displayed()
    assert sized.one("#showing").text == "7 doubtful images in 6 categories"
    doubtful = np.flatnonzero((RESULT.certainty < 0.5) & (np.array(RESULT.part) != "labelled"))
    expected = [RESULT.ids[i] for i in doubtful[np.argsort(RESULT.certainty[doubtful])]]
    assert ids(sized, "#doubtful-list") == expected
    sized.one("input[value=new]").click()
    assert set(ids(sized, "#doubtful-list")) == {RESULT.ids[i] for i in doubtful if RESULT.category[i] >= 2}
    sized.click(".check input")
    assert sized.names() == ["new-1", "new-2", "new-3", "new-4"]


def test_images_are_sorted_by_certainty_name_and_time(page: Page) -> None:
    page.open("cat")
    cats = members("cat")
    assert ids(page) == [RESULT.ids[i] for i in cats]
    orders: dict[str, list[int]] = {
        "unsure": sorted(cats, key=lambda i: float(RESULT.certainty[i])),
        "name": sorted(cats, key=lambda i: RESULT.ids[i]),
        "newest": sorted(cats, reverse=True),
        "oldest": sorted(cats),
    }
    for order, images in orders.items():
        page.one(f"#members select option[value={order}]").click()
        assert ids(page) == [RESULT.ids[i] for i in images]
    page.one("#members option[value=labels]").click()
    assert ids(page) == [RESULT.ids[i] for i in (0, 1, 2)]


def facts(page: Page) -> dict[str, str]:
    return dict(zip(page.texts("#light-facts dt"), page.texts("#light-facts dd"), strict=True))


def test_the_lightbox_is_walked_by_keys_and_says_why(sized: Page) -> None:
    sized.open("new-1")
    images = members("new-1")
    sized.keys(ENTER)
    sized.wait(lambda: sized.one("#light").is_displayed())
    assert sized.one("#light-title").text == RESULT.ids[images[0]]
    assert sized.one("#light-place").text == "1 of 9 images"
    assert not sized.one("#light-before").is_enabled()
    said = facts(sized)
    certainty = f"{100 * RESULT.certainty[images[0]]:.0f} %"
    assert (said["category"], said["certainty"], said["second choice"]) == ("new-1", certainty, "new-2 (25 %)")
    assert said["why it is here"] == f"It looks most like the other images of new-1, with a certainty of {certainty}."
    assert "time of the file" in said
    sized.keys(RIGHT)
    assert sized.one("#light-title").text == RESULT.ids[images[1]]
    sized.keys(END)
    assert facts(sized)["why it is here"].startswith("No category fits well. new-1 fits best, with a certainty of only")
    assert sized.texts("#light-badges .tag") == ["doubtful"]
    assert not sized.one("#light-after").is_enabled()
    sized.keys(LEFT)
    sized.keys("c")
    assert sized.edits() == [f"confirm {RESULT.ids[images[-2]]}"]
    assert sized.one("#light-right").get_attribute("aria-pressed") == "true"
    sized.keys("c")
    assert sized.edits() == []
    sized.keys(ESCAPE)
    sized.wait(lambda: not sized.one("#light").is_displayed())
    assert sized.one("#members").is_displayed()
    focused = "return document.activeElement.closest('.tile').querySelector('.name').textContent"
    assert sized.js(focused) == RESULT.ids[images[-2]], "the focus returns to the last image"


def test_a_label_that_looks_like_something_else_says_so(page: Page) -> None:
    page.click("#check-list .enlarge")
    page.wait(lambda: page.one("#light").is_displayed())
    certainty = f"{100 * RESULT.guess_certainty[1]:.0f} %"
    assert facts(page)["why it is here"] == f"You labelled it cat. But it looks like new-1 ({certainty})."


def test_images_are_selected_with_the_pointer(sized: Page) -> None:
    sized.open("cat")
    names = ids(sized)
    boxes = sized.all("#members .pick input")
    boxes[1].click()
    assert selected(sized) == [names[1]]
    assert sized.one("#members .count").text == "1 selected"
    pictures = sized.all("#members .enlarge")
    ActionChains(sized.browser).key_down(SHIFT).click(pictures[4]).key_up(SHIFT).perform()
    assert selected(sized) == names[1:5]
    pictures[2].click()  # with a selection, a click adds to it or takes from it
    assert selected(sized) == [names[1], *names[3:5]]
    every = sized.one("#members .every")
    every.click()
    assert (selected(sized), every.text) == (names, "Select none")
    every.click()
    assert (selected(sized), every.text) == ([], "Select all")
    assert not sized.one("#members .act.confirm").is_enabled()
    sized.js("document.querySelector('#members-body').scrollTop = 0")
    ActionChains(sized.browser).key_down(CONTROL).click(pictures[0]).key_up(CONTROL).perform()
    assert selected(sized) == [names[0]]


def test_selected_images_are_confirmed_moved_and_split_off_and_the_command_line_understands(
    page: Page, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page.open("new-1")
    names = ids(page)
    for box in page.all("#members .pick input")[:2]:
        box.click()
    page.one("#members .act.confirm").click()
    assert page.live() == f"Confirmed 2 images ({names[0]}, {names[1]})."
    for box in page.all("#members .pick input")[2:4]:
        box.click()
    page.one("#members .act.move").click()
    assert page.one("#move-title").text == "Move 2 images"
    page.js("document.getElementById('move-to').value = arguments[0]", option(page, "cat"))
    page.one("#move button[type=submit]").click()
    page.wait(lambda: not page.one("#move").is_displayed())
    assert ids(page) == [*names[:2], *names[4:]], "moved images are gone from here"
    for box in page.all("#members .pick input")[2:5]:
        box.click()
    page.one("#members .act.split").click()
    assert page.js("return document.getElementById('move-name').value") == "new-5"
    page.one("#move-name").clear()
    page.one("#move-name").send_keys("cat" + ENTER)
    assert page.one("#move-problem").text == "There is a category of this name. Choose it from the list instead."
    page.one("#move-name").clear()
    page.one("#move-name").send_keys("sea otter" + ENTER)
    page.wait(lambda: not page.one("#move").is_displayed())
    page.all("#members .pick input")[2].click()
    page.one("#members .act.drop").click()
    page.keys(ESCAPE)
    assert page.edits() == [
        f"confirm 2 images ({names[0]}, {names[1]})",
        f"move 2 images ({names[2]}, {names[3]}) to cat",
        f"move 3 images ({names[4]}, {names[5]}, {names[6]}) to sea otter",
        f"drop {names[7]} as wrong",
    ]
    assert "sea otter" in page.names()
    assert "sea otter" in page.texts("#legend span")
    sizes = dict(zip(page.names(), page.texts(".card dd:first-of-type"), strict=True))
    assert (sizes["cat"], sizes["sea otter"], sizes["new-1"]) == ("14", "3", "3")
    file = page.save()
    out, err = command(monkeypatch, capsys, "edit", run, "apply", file)
    try:
        assert out == "applied 4 edits; 2 known and 5 new categories\n"
        assert err == f"{run}/report.html is older than the edits. Renew it with: sptnet report {run}"
        edited = current(run)
        assert edited.names == (*REVIEW_NAMES, "sea otter")
        assert {edited.ids[i] for i in edited.members("sea otter")} == set(names[4:7])
        assert set(names[:7]) == edited.confirmed
        assert edited.category[RESULT.ids.index(names[7])] == -1
        # The page saves all its edits every time: those applied before are skipped.
        page.one("#fold").click()
        page.press("sea otter", "Rename")
        page.keys("otter" + ENTER)
        out, _ = command(monkeypatch, capsys, "edit", run, "apply", page.save())
        assert out == "skipped 4 that were applied before, applied 1 edit; 2 known and 5 new categories\n"
        assert current(run).names[-1] == "otter"
        out, _ = command(monkeypatch, capsys, "edit", run, "apply", file)
        assert out == "skipped 5 that were applied before, applied 0 edits; 2 known and 5 new categories\n"
    finally:
        (run / "edits.jsonl").unlink()
        written(run)


def option(page: Page, name: str) -> str:
    script = (
        "return [...document.querySelectorAll('#move-to option')].find((e) => e.text.startsWith(arguments[0])).value"
    )
    return str(page.js(script, f"{name} ("))


def test_images_are_reviewed_by_keyboard_alone(sized: Page) -> None:
    sized.js("document.getElementById('filter').focus()")
    sized.keys("new-1")
    for _ in range(20):  # on to the card; nothing on the way swallows the focus
        sized.keys(TAB)
        if sized.js("return document.activeElement.classList.contains('open')"):
            break
    sized.keys(ENTER)
    sized.wait(lambda: sized.one("#members").is_displayed())
    names = ids(sized)
    columns = sized.js("return getComputedStyle(document.querySelector('#members .tiles')).gridTemplateColumns")
    sized.keys(RIGHT)
    sized.keys(" ")
    assert selected(sized) == [names[1]]
    ActionChains(sized.browser).key_down(SHIFT).send_keys(RIGHT, RIGHT).key_up(SHIFT).perform()
    assert selected(sized) == names[1:4]
    sized.keys(ESCAPE)
    assert (selected(sized), sized.one("#members").is_displayed()) == ([], True)
    ActionChains(sized.browser).key_down(CONTROL).send_keys("a").key_up(CONTROL).perform()
    assert selected(sized) == names
    sized.keys(ESCAPE)
    sized.keys(HOME)
    sized.keys(DOWN)
    focused = "return document.activeElement.closest('.tile').querySelector('.name').textContent"
    assert sized.js(focused) == names[min(len(columns.split()), len(names) - 1)]
    sized.keys(END)
    sized.keys("w")
    sized.keys(UP)
    sized.keys(HOME)
    sized.keys("c")
    sized.keys("n")
    sized.wait(lambda: sized.one("#move").is_displayed())
    sized.keys("otter" + ENTER)
    sized.wait(lambda: not sized.one("#move").is_displayed())
    assert sized.js(focused) == names[1], "the focus is on the image that took its place"
    sized.keys("m")
    sized.wait(lambda: sized.one("#move").is_displayed())
    assert sized.js("return document.activeElement.id") == "move-to"
    assert sized.js("return document.getElementById('move-to').selectedOptions[0].text") == "new-2 (6 images)"
    for key in (TAB, TAB, ENTER):  # past Cancel to Move
        sized.keys(key)
    sized.wait(lambda: not sized.one("#move").is_displayed())
    assert sized.edits() == [
        f"drop {names[-1]} as wrong",
        f"confirm {names[0]}",
        f"move {names[0]} to otter",
        f"move {names[1]} to new-2",
    ]
    ActionChains(sized.browser).key_down(CONTROL).send_keys("z").key_up(CONTROL).perform()
    assert len(sized.edits()) == 3
    reached = []
    for _ in range(4):
        script = (
            "const e = document.activeElement; return [e.className || e.parentElement.className, getComputedStyle(e)"
        )
        reached.append(sized.js(f"{script}.outlineStyle]"))
        sized.keys(TAB)
    # The controls of one image are in the tab order, those of the others are not; the focus is always visible.
    assert reached == [[control, "solid"] for control in ("enlarge", "pick", "right", "wrong")]
    sized.keys(ESCAPE)
    sized.wait(lambda: not sized.one("#members").is_displayed())


def test_the_keys_are_listed(sized: Page) -> None:
    sized.js("document.querySelector('.card .open').focus()")
    sized.keys("?")
    sized.wait(lambda: sized.one("#help").is_displayed())
    said = sized.one("#help").text
    for word in ("enlarge", "select all", "confirm the selected", "mark as wrong", "move to another", "split off"):
        assert word in said
    assert sized.inside("#help [data-close]", "#help")
    sized.keys(ESCAPE)
    sized.wait(lambda: sized.js("return document.activeElement.classList.contains('open')"))


# --- labels, truth, map -----------------------------------------------------------------------------------------------


def test_labels_are_marked_as_labels(page: Page) -> None:
    page.open("cat")
    labels = {RESULT.ids[i] for i in (0, 1, 2)}
    marked = page.js(
        """return [...document.querySelectorAll("#members .tile")]
          .filter((one) => one.querySelector(".tag")?.innerText === "your label")
          .map((one) => one.querySelector(".name").textContent)"""
    )
    assert set(marked) == labels
    first = page.one("#members .enlarge").get_attribute("aria-label")
    assert first == f"{RESULT.ids[0]}, certainty 100 %, your label: enlarge"
    page.keys(ESCAPE)
    rows = page.js(
        """const cards = [...document.querySelectorAll(".card")];
        const card = cards.find((one) => one.querySelector(".open").innerText === "cat");
        return [...card.querySelectorAll("dt")].map((one) => [one.innerText, one.nextElementSibling.innerText])"""
    )
    assert dict(rows)["your labels"] == "3"


def test_cells_of_the_table_of_truth_open(sized: Page) -> None:
    cell = sized.one(".confusion .cell[data-title=dog]")
    assert cell.get_attribute("innerText").split() == ["dog", "in", "cat:", "2"]
    sized.js("arguments[0].scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'})", cell)
    cell.click()
    sized.wait(lambda: sized.one("#members").is_displayed())
    assert sized.one("#members-title").text == "dog in cat"
    assert set(ids(sized)) == {RESULT.ids[4], RESULT.ids[5]}
    sized.keys(ESCAPE)
    sized.wait(lambda: sized.js("return document.activeElement === arguments[0]", cell))
    sized.keys(ENTER)
    sized.wait(lambda: sized.one("#members").is_displayed())


def pixels(page: Page) -> Any:
    return page.js("return document.getElementById('plot').toDataURL()")


def test_the_map_zooms_and_pans(sized: Page) -> None:
    sized.point_on_map()
    whole, plot, browser = pixels(sized), sized.one("#plot"), sized.browser
    assert not sized.one("#zoom-out").is_enabled()
    origin = selenium.common.actions.wheel_input.ScrollOrigin.from_element(plot)
    ActionChains(browser).key_down(CONTROL).scroll_from_origin(origin, 0, -240).key_up(CONTROL).perform()
    sized.wait(lambda: sized.one("#zoom-out").is_enabled())
    near = pixels(sized)
    assert near != whole
    ActionChains(browser).move_to_element_with_offset(plot, 0, 60).click_and_hold().move_by_offset(40, 10).perform()
    ActionChains(browser).release().perform()
    assert pixels(sized) != near, "dragged"
    assert not sized.one("#members").is_displayed(), "dragging opens nothing"
    sized.one("#zoom-all").click()
    ActionChains(browser).move_to_element(sized.one("#map-title")).perform()
    assert pixels(sized) == whole
    sized.one("#zoom-in").click()
    assert (pixels(sized) != whole, sized.one("#zoom-out").is_enabled()) == (True, True)
    sized.js("arguments[0].focus()", plot)
    plot.send_keys("0")
    assert pixels(sized) == whole
    plot.send_keys("+")
    once = pixels(sized)
    ActionChains(browser).key_down(SHIFT).send_keys(RIGHT).key_up(SHIFT).perform()
    assert pixels(sized) != once, "moved by keys"
    plot.send_keys("0")
    seen = set()
    plot.send_keys("++++")
    for key in (RIGHT, RIGHT, DOWN, LEFT, UP, UP):
        plot.send_keys(key)
        seen.add(sized.one("#tip b").text)
        assert sized.one("#tip").is_displayed(), "the map follows the chosen point"
    assert seen
    plot.send_keys("0", ESCAPE)
    touch(sized, [(-20, 0), (-50, 0), (-80, 0)], [(20, 0), (50, 0), (80, 0)])
    sized.wait(lambda: sized.one("#zoom-out").is_enabled())


def test_the_wheel_alone_scrolls_the_page(page: Page) -> None:
    page.point_on_map()
    page.js("document.activeElement.blur()")
    before = page.js("return scrollY")
    origin = selenium.common.actions.wheel_input.ScrollOrigin.from_element(page.one("#plot"))
    ActionChains(page.browser).scroll_from_origin(origin, 0, 200).perform()
    page.wait(lambda: page.js("return scrollY") > before)
    assert not page.one("#zoom-out").is_enabled()


# --- edits that survive -----------------------------------------------------------------------------------------------


def rename(page: Page, name: str, to: str) -> None:
    page.press(name, "Rename")
    page.keys(to + ENTER)


def test_edits_survive_a_reload_until_they_are_discarded(sized: Page) -> None:
    rename(sized, "new-1", "otter")
    sized.open("otter")
    sized.keys("c")
    sized.keys(RIGHT)
    sized.keys("n")
    sized.keys("seal" + ENTER)
    sized.wait(lambda: not sized.one("#move").is_displayed())
    made = sized.edits()
    assert sized.one("#keeping").get_attribute("textContent").startswith("Kept in this browser")
    keys = sized.js("return Object.keys(localStorage)")
    assert len(keys) == 1 and str(sized.file.parent) not in keys[0] and "/" not in keys[0]
    sized.reload()
    assert sized.edits() == made
    assert {"otter", "seal"} <= set(sized.names())
    assert sized.one("#kept-words").text == (
        "3 edits from your last visit are back. They are kept in this browser until you save them."
    )
    sized.click("#kept-discard")
    sized.wait(lambda: sized.one("#sure").is_displayed())
    sized.one("#sure [data-close]").click()
    assert sized.edits() == made
    sized.click("#kept-discard")
    sized.one("#sure button[type=submit]").click()
    sized.wait(lambda: sized.edits() == [])
    sized.reload()
    assert (sized.edits(), sized.one("#kept").is_displayed()) == ([], False)
    assert sized.js("return localStorage.length") == 0


def test_another_run_has_edits_of_its_own(page: Page, tmp_path: Path) -> None:
    rename(page, "new-1", "otter")
    other = review_run(tmp_path)
    facts_file = other / "run.json"
    facts_file.write_text(json.dumps(json.loads(facts_file.read_text()) | {"started": "2026-01-02T03:04:05+0000"}))
    Page(page.browser, written(other), page.downloads).reload()
    assert page.edits() == []
    page.reload()
    assert page.edits() == ["rename new-1 to otter"]


def test_a_browser_that_keeps_nothing_says_so(page: Page) -> None:
    page.js("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
    rename(page, "new-1", "otter")
    assert page.one("#keeping").text == "This browser keeps nothing: save before you close the page."


def test_the_page_says_that_it_is_older_and_is_renewed(
    page: Page, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rename(page, "new-2", "seal")
    older = f"{run}/report.html is older than the edits. Renew it with: sptnet report {run}"
    try:
        out, err = command(monkeypatch, capsys, "edit", run, "rename", "new-1", "otter")
        assert (out, err) == ("done: rename new-1 to otter; 2 known and 4 new categories\n", older)
        page.reload()
        assert page.one("#older").text.startswith("This page is older than the edits of the run.")
        assert page.one("#older-words").text == "It shows 0 of 1 edit in edits.jsonl."
        assert page.one("#renew-command").text == f"sptnet report {run}"
        assert page.edits() == ["rename new-2 to seal"]
        out, err = command(monkeypatch, capsys, "edit", run, "confirm", "otter", "--report")
        assert out == f"done: confirm otter; 2 known and 4 new categories\nwrote {run}/report.html\n"
        assert "older" not in err
        page.reload()
        assert not page.one("#older").is_displayed()
        assert "otter" in page.names()
        # Edits that were not saved before the page was renewed are offered, not lost.
        assert page.edits() == []
        assert page.one("#kept-words").text == (
            "You made 1 edit on an earlier version of this page and did not save it."
        )
        # Other edits made meanwhile, and taken back, do not replace them.
        rename(page, "new-3", "heron")
        page.reload()
        assert page.edits() == ["rename new-3 to heron"]
        assert page.one("#kept-words").text == (
            "1 edit from your last visit is back. It is kept in this browser until you save it. "
            "You made 1 edit on an earlier version of this page and did not save it."
        )
        page.click("#undo")
        page.reload()
        assert (page.edits(), page.one("#kept-back").is_displayed()) == ([], True)
        rename(page, "new-3", "heron")
        page.click("#kept-back")
        assert page.edits() == ["rename new-2 to seal", "rename new-3 to heron"]
        page.reload()
        assert page.edits() == ["rename new-2 to seal", "rename new-3 to heron"]
        assert not page.one("#kept-back").is_displayed()
        out, err = command(monkeypatch, capsys, "edit", run, "undo")
        assert err == older
    finally:
        (run / "edits.jsonl").unlink()
        written(run)


def test_saved_edits_are_gone_when_the_page_is_renewed(
    page: Page, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rename(page, "new-1", "otter")
    file = page.save()
    page.reload()
    assert "You saved it" in page.one("#kept-words").text
    try:
        command(monkeypatch, capsys, "edit", run, "apply", file, "--report")
        page.reload()
        assert (page.edits(), page.one("#kept").is_displayed()) == ([], False)
        assert "otter" in page.names()
    finally:
        (run / "edits.jsonl").unlink()
        written(run)
