"""The report page in a browser: display, search, editing, and applying its edits on the command line."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.browser import NEEDED, prefer, requests, resize, start_browser
from helpers.page import Page
from helpers.report_runs import HOSTILE, assessed_result, assessed_run, hostile_result, hostile_run
from sptnet.cli import main
from sptnet.inference.attention import last_block_attention, most_attended
from sptnet.model.model_folder import load_model
from sptnet.report.page.write import write_report
from sptnet.results.categories import describe_categories
from sptnet.results.edits.log import current
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.text import printable

ActionChains = pytest.importorskip("selenium.webdriver", reason=NEEDED).ActionChains
RESULT = hostile_result()
CATEGORIES = describe_categories(RESULT)
SENTENCE = "40 images in 5 categories (4 to 6 are plausible): 3 known and 2 new. 10 images are doubtful."
ORDER = ["new-2", "new-1", "cat", "<b>dog</b>", "constructor"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def opened(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    downloads = tmp_path_factory.mktemp("downloads")
    browser = start_browser(tmp_path_factory.mktemp("profile"), downloads)
    try:
        resize(browser, 1280)
        prefer(browser, "light")
        yield Page(browser, write_report(run, tell=lambda message: None).page, downloads)
    finally:
        browser.quit()


@pytest.fixture
def page(opened: Page) -> Page:
    opened.load()
    return opened


def test_the_page_opens_from_disk_without_any_request(page: Page) -> None:
    requests(page.browser)
    page.browser.get_log("browser")
    page.load()
    page.wait(lambda: page.all("#heads canvas"))
    for place in ("#map", "#attention", "#facts"):
        page.js("document.querySelector(arguments[0]).scrollIntoView()", place)
    assert requests(page.browser) == [page.file.as_uri()]
    assert page.browser.get_log("browser") == []
    assert page.one("#sentence").text == SENTENCE
    blocked = "return fetch('https://example.org').then(() => 'sent', () => 'blocked')"
    assert page.js(blocked) == "blocked"
    assert page.js("return fetch(location.href).then(() => 'read', () => 'blocked')") == "blocked"
    page.browser.get_log("browser")


def test_cards_show_every_category_new_ones_first(page: Page) -> None:
    assert page.names() == ORDER
    first = page.card("new-2")
    rows = dict(
        zip(
            [one.text for one in first.find_elements("css selector", "dt")],
            [one.text for one in first.find_elements("css selector", "dd")],
            strict=True,
        )
    )
    category = CATEGORIES[RESULT.names.index("new-2")]
    assert rows == {
        "images": "12",
        "certainty": f"{100 * (category.mean_certainty or 0):.0f} %",
        "looks most like": category.nearest_known,
        "doubtful": "2",
    }
    assert first.find_element("css selector", ".tag").text == "new"
    assert page.card("cat").find_element("css selector", ".tag").text == "known"
    pictures = first.find_elements("css selector", "img")
    assert len(pictures) == 8
    assert all(picture.get_attribute("src").startswith("data:image/webp;base64,") for picture in pictures)
    page.wait(lambda: page.js("return [...document.images].every((one) => one.complete && one.naturalWidth > 0)"))


def test_the_cards_can_be_filtered(page: Page) -> None:
    page.one("#filter").send_keys("NEW")
    assert page.names() == ["new-2", "new-1"]
    assert page.one("#showing").text == "2 of 5 categories"
    page.one("#filter").clear()
    page.one("#filter").send_keys("b>d")
    assert page.names() == ["<b>dog</b>"]
    page.js("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    for kind, names in {"known": ORDER[2:], "new": ORDER[:2], "all": ORDER}.items():
        page.one(f"input[value={kind}]").click()
        assert page.names() == names
    assert page.one("#showing").text == "5 categories"


def test_a_category_opens_with_the_doubtful_images_last(page: Page) -> None:
    page.card("new-2").find_element("css selector", ".strip").click()
    page.wait(lambda: page.one("#members").is_displayed())
    category = CATEGORIES[RESULT.names.index("new-2")]
    members = RESULT.members("new-2")
    sure = sorted((i for i in members if RESULT.ids[i] not in category.doubtful), key=lambda i: -RESULT.certainty[i])
    doubtful = sorted((i for i in members if RESULT.ids[i] in category.doubtful), key=lambda i: -RESULT.certainty[i])
    assert page.one("#members-title").text == "new-2"
    assert page.one("#members .count").text == "12 images"
    assert page.texts("#members .tile p") == [RESULT.ids[i] for i in [*sure, *doubtful]]
    assert page.texts("#members .tile .tag") == ["doubtful"] * 2
    assert page.texts("#members .tile:nth-last-child(-n + 2) .tag") == ["doubtful"] * 2
    page.keys("\ue00c")  # Escape
    assert not page.one("#members").is_displayed()


def test_the_keyboard_opens_a_category_and_comes_back(page: Page) -> None:
    page.js("document.querySelector('.card .open').focus()")
    page.keys("\ue007")  # Enter
    page.wait(lambda: page.one("#members").is_displayed())
    assert page.js("return document.getElementById('members').contains(document.activeElement)")
    page.keys("\ue00c")
    page.wait(lambda: page.focused() == "new-2")


def test_the_map_names_what_it_shows(page: Page) -> None:
    plot = page.one("#plot")
    found = page.point_on_map()
    assert not page.one("#tip").is_displayed()
    ActionChains(page.browser).move_to_element_with_offset(plot, *found).perform()
    page.wait(lambda: page.one("#tip").is_displayed())
    category, image, certainty = page.texts("#tip b, #tip span:not(.picture)")
    position = [printable(id_) for id_ in RESULT.ids].index(image)
    assert category == RESULT.names[RESULT.category[position]]
    assert certainty == f"certainty {100 * RESULT.certainty[position]:.0f} %"
    assert page.one("#tip img").get_attribute("src").startswith("data:image/webp")


def test_the_map_can_be_walked_with_the_keyboard_and_one_category_lit(page: Page) -> None:
    pixels = "const c = document.getElementById('plot'); return c.toDataURL()"
    plot = page.one("#plot")
    page.js("arguments[0].focus()", plot)
    seen = set()
    for key in ("\ue014", "\ue014", "\ue012", "\ue013", "\ue015"):
        plot.send_keys(key)
        seen.add(page.one("#tip-words").get_attribute("textContent"))
    assert len(seen) >= 2
    assert all(text.split(": ")[0] in ORDER for text in seen)
    name = page.one("#tip b").text
    plot.send_keys("\ue007")
    page.wait(lambda: page.one("#members").is_displayed())
    assert page.one("#members-title").text == name
    page.keys("\ue00c")
    page.wait(lambda: not page.one("#members").is_displayed())
    assert page.texts("#legend span") == ORDER
    before = page.js(pixels)
    page.js("document.getElementById('legend').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.all("#legend button")[1].click()
    assert page.js(pixels) != before
    assert [one.get_attribute("aria-pressed") for one in page.all("#legend button")].count("true") == 1


def test_renaming_in_place(page: Page) -> None:
    page.press("new-1", "Rename")
    for name, problem in {
        "": "Give 1 to 100 characters.",
        "a/b": "Names become folders: no slashes, no control characters, no dot at the beginning.",
        ".a": "Names become folders: no slashes, no control characters, no dot at the beginning.",
        "cat": "Another category has this name. To put both together, merge them.",
        101 * "x": "Give 1 to 100 characters.",
    }.items():
        page.js("document.querySelector('.rename input').value = arguments[0]", name)
        page.one(".rename button[type=submit]").click()
        assert page.one(".rename .error").text == problem
    page.keys("\ue00c")
    assert page.names() == ORDER
    assert page.focused() == "new-1"
    assert not page.one("#edits").is_displayed()
    page.press("new-1", "Rename")
    page.js("document.querySelector('.rename input').select()")
    page.keys(" sea otter \ue007")
    assert page.names() == ["new-2", "sea otter", *ORDER[2:]]
    assert page.edits() == ["rename new-1 to sea otter"]
    assert page.focused() == "sea otter"
    assert page.one("#live").get_attribute("textContent") == "Renamed new-1 to sea otter."
    assert "sea otter" in page.texts("#legend span")
    assert "sea otter" in page.texts(".confusion thead [data-category]")


def test_merging_by_dragging_one_card_on_another(page: Page) -> None:
    page.js("document.getElementById('cards').scrollIntoView({behavior: 'instant'})")
    source, target = (page.card(name).find_element("css selector", ".card-head") for name in ("new-1", "cat"))
    ActionChains(page.browser).drag_and_drop(source, target).perform()
    page.wait(lambda: page.edits() == ["merge new-1 into cat"])
    assert page.names() == ["new-2", "cat", "<b>dog</b>", "constructor"]
    assert page.one("#sentence").text == SENTENCE.replace("5 categories", "4 categories").replace("2 new", "1 new")
    assert page.focused() == "cat"
    page.one("#undo").click()
    assert page.names() == ORDER
    assert page.one("#sentence").text == SENTENCE
    assert not page.one("#edits").is_displayed()


def test_merging_by_keyboard(page: Page) -> None:
    buttons = page.card("cat").find_elements("css selector", ".actions button")
    buttons[1].send_keys("\ue007")
    page.wait(lambda: page.one("#merge").is_displayed())
    assert page.one("#merge-title").text == "Merge cat"
    assert page.texts("#merge-into option") == [
        "new-2 (12 images)",
        "new-1 (10 images)",
        "<b>dog</b> (6 images)",
        "constructor (6 images)",
    ]
    page.keys("<b>d")
    for key in ("\ue004", "\ue004", "\ue007"):  # past Cancel to Merge, and Enter
        page.keys(key)
    page.wait(lambda: page.edits() == ["merge cat into <b>dog</b>"])
    assert page.focused() == "<b>dog</b>"
    assert dict(zip(page.names(), page.texts(".card dd:first-of-type"), strict=True))["<b>dog</b>"] == "12"


def test_a_merge_can_be_cancelled(page: Page) -> None:
    page.press("cat", "Merge into…")
    page.one("#merge [data-close]").click()
    assert page.edits() == []
    assert page.names() == ORDER


def mark(page: Page, name: str, image: str, button: str) -> None:
    """Open a category and press a button of one of its images."""
    page.js("[...document.querySelectorAll('.card .open')].find((e) => e.textContent === arguments[0]).click()", name)
    page.wait(lambda: page.one("#members").is_displayed())
    tiles = page.texts("#members .tile p")
    page.all(f"#members .tile .{button}")[tiles.index(printable(image))].click()
    page.keys("\ue00c")


def mark_wrong(page: Page, name: str, image: str) -> None:
    mark(page, name, image, "wrong")


def test_edits_are_saved_and_taken_over_by_the_command_line(
    page: Page, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of later edits are those after earlier ones; an image whose name is no text keeps it exactly."""
    odd = HOSTILE[-1]
    home = RESULT.names[RESULT.category[RESULT.ids.index(odd)]]
    mark_wrong(page, home, odd)
    mark_wrong(page, "new-2", RESULT.ids[-1])
    mark_wrong(page, "new-2", RESULT.ids[-2])
    mark_wrong(page, "new-2", RESULT.ids[-2])  # and it is right again
    page.press("new-1", "Rename")
    page.js("document.querySelector('.rename input').select()")
    page.keys("otter\ue007")
    page.press("otter", "Merge into…")
    page.js("document.getElementById('merge-into').selectedIndex = 0")
    page.one("#merge button[type=submit]").click()
    page.wait(lambda: "otter" not in page.names())
    page.press("new-2", "Rename")
    page.js("document.querySelector('.rename input').select()")
    page.keys("mammal\ue007")
    assert page.edits() == [
        f"drop {printable(odd)} as wrong",
        f"drop {RESULT.ids[-1]} as wrong",
        "rename new-1 to otter",
        "merge otter into new-2",
        "rename new-2 to mammal",
    ]
    said = page.one("#sentence").text
    assert said == (
        "38 images in 4 categories (4 to 6 are plausible): 3 known and 1 new. 9 images are doubtful. "
        "2 were marked as wrong."
    )
    file = page.save()
    assert json.loads(file.read_text(encoding="utf-8"))["edits"][0] == {"verb": "drop", "images": [odd]}
    assert page.one("#edit-command").text == f"sptnet edit {run} apply edits.json"
    monkeypatch.setattr(sys, "argv", ["sptnet", "edit", str(run), "apply", str(file)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert capsys.readouterr().out == "applied 5 edits; 3 known and 1 new categories\n"
    edited = current(run)
    (run / "edits.jsonl").unlink()
    assert edited.names == ("cat", "<b>dog</b>", "constructor", "mammal")
    assert edited.category[[RESULT.ids.index(odd), -1]].tolist() == [-1, -1]
    assert len(edited.members("mammal")) == 21
    assert page.texts(".card dd:first-of-type")[0] == "21"


def test_the_number_in_force_and_the_command_for_another(page: Page, run: Path) -> None:
    assert page.texts("#counts li") == ["5 in force"]
    command = page.one("#count-command")
    assert command.text == f"sptnet edit {run} count N"
    page.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", command)
    page.one("button[data-copy=count-command]").click()
    live = page.one("#live")
    page.wait(lambda: live.get_attribute("textContent") in ("Copied the command.", "The command is selected."))


def rows_of(page: Page, name: str) -> dict[str, str]:
    """Read the rows of a card in one script, so that the page cannot draw it anew in between."""
    script = """
        const card = document.querySelectorAll(".card")[arguments[0]];
        const texts = (tag) => [...card.querySelectorAll(tag)].map((one) => one.innerText);
        return [texts("dt"), texts("dd")];
    """
    words, values = page.js(script, page.names().index(name))
    return dict(zip(words, values, strict=True))


def test_categories_and_images_are_confirmed(
    page: Page, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(name: str) -> tuple[str, bool]:
        button = page.card(name).find_element("css selector", ".confirm")
        return button.get_attribute("aria-pressed"), button.is_enabled()

    odd, cats = HOSTILE[-1], RESULT.members("cat")
    home = RESULT.names[RESULT.category[RESULT.ids.index(odd)]]
    assert "confirmed" not in rows_of(page, "new-2")
    mark_wrong(page, "new-2", RESULT.ids[-1])
    page.press("new-2", "Confirm")
    assert page.focused() == "Confirm"
    assert page.one("#live").get_attribute("textContent") == "Confirmed new-2."
    assert (rows_of(page, "new-2")["confirmed"], pressed("new-2")) == ("11", ("true", True))
    page.press("new-1", "Confirm")
    page.press("new-1", "Confirm")
    assert pressed("new-1") == ("false", True), "taken back"
    mark(page, home, odd, "right")
    mark(page, "cat", RESULT.ids[cats[1]], "right")
    mark(page, "cat", RESULT.ids[cats[2]], "right")
    mark(page, "cat", RESULT.ids[cats[2]], "right")
    assert (rows_of(page, "cat")["confirmed"], pressed("cat")) == ("1", ("false", True))
    mark_wrong(page, "cat", RESULT.ids[cats[1]])
    assert "confirmed" not in rows_of(page, "cat")
    page.press("new-1", "Merge into…")
    page.js("document.getElementById('merge-into').selectedIndex = 0")
    page.one("#merge button[type=submit]").click()
    page.wait(lambda: "new-1" not in page.names())
    assert (rows_of(page, "new-2")["confirmed"], pressed("new-2")) == ("11", ("false", True))
    assert page.edits() == [
        f"drop {RESULT.ids[-1]} as wrong",
        "confirm new-2",
        f"confirm {printable(odd)}",
        f"confirm {printable(RESULT.ids[cats[1]])}",
        f"drop {printable(RESULT.ids[cats[1]])} as wrong",
        "merge new-1 into new-2",
    ]
    file = page.save()
    saved = json.loads(file.read_text(encoding="utf-8"))["edits"]
    assert saved[1:3] == [{"verb": "confirm", "targets": ["new-2"]}, {"verb": "confirm", "targets": [odd]}]
    monkeypatch.setattr(sys, "argv", ["sptnet", "edit", str(run), "apply", str(file)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0, capsys.readouterr().err
    edited = current(run)
    assert edited.confirmed == {odd, *(RESULT.ids[i] for i in RESULT.members("new-2")[:-1])}
    try:
        write_report(run, tell=lambda message: None)
        page.load()
        assert (rows_of(page, "new-2")["confirmed"], pressed("new-2")) == ("11", ("false", True))
        page.press("new-2", "Confirm")
        assert (rows_of(page, "new-2")["confirmed"], pressed("new-2")) == ("21", ("true", True))
        page.js("document.querySelector('.card .open').click()")
        assert {one.is_enabled() for one in page.all("#members .right")} == {False}
        assert {one.get_attribute("aria-pressed") for one in page.all("#members .right")} == {"true"}
        assert page.js(CONTRAST) == []
    finally:
        (run / "edits.jsonl").unlink()
        write_report(run, tell=lambda message: None)


def test_hostile_names_are_shown_as_texts_and_do_nothing(page: Page) -> None:
    shown = set()
    for name in ORDER:
        page.js(
            "[...document.querySelectorAll('.card .open')].find((e) => e.textContent === arguments[0]).click()", name
        )
        shown.update(page.texts("#members .tile p"))
        page.keys("\ue00c")
    assert {printable(id_) for id_ in HOSTILE} <= shown
    assert page.js("return window.hacked") is None
    assert page.js("return document.querySelectorAll('script').length") == 3
    assert page.all("main b b, img[src=x], .card b") == []
    assert "<pets>" in page.browser.title
    assert page.browser.get_log("browser") == []


def background(page: Page) -> int:
    return sum(page.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")[:3])


def test_light_and_dark(page: Page) -> None:
    prefer(page.browser, "light")
    page.load()
    light, plot = background(page), page.js("return document.getElementById('plot').toDataURL()")
    assert (light > 700, page.one("#theme").text) == (True, "Dark")
    page.one("#theme").click()
    assert (background(page) < 120, page.one("#theme").text) == (True, "Light")
    assert page.js("return document.getElementById('plot').toDataURL()") != plot
    prefer(page.browser, "dark")
    page.load()
    assert background(page) < 120
    page.one("#theme").click()
    assert background(page) == light
    prefer(page.browser, "light")


CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgb(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data;
}
function light(colour) {
  const part = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = rgb(colour);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
}
function ground(e) {
  for (let one = e; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (rgb(colour)[3] === 255) return colour;
  }
}
const weak = [];
for (const e of document.querySelectorAll("body *")) {
  if (e.closest("script, style, svg, noscript, [hidden], .hidden, dialog:not([open]), :disabled")) continue;
  if (![...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
  const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(e.tagName + "." + e.className + " " + e.textContent.slice(0, 30));
}
return weak;
"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_text_stands_out(page: Page, scheme: str) -> None:
    prefer(page.browser, scheme)
    page.load()
    page.press("cat", "Rename")
    assert page.js(CONTRAST) == []
    prefer(page.browser, "light")


def test_everything_has_a_name_for_those_who_cannot_see(page: Page) -> None:
    page.press("cat", "Rename")
    nameless = page.js(
        """return [...document.querySelectorAll("button, input, select, canvas, a, dialog, section")].filter((e) =>
          !e.getAttribute("aria-label") && !e.textContent.trim() && !e.labels?.length
          && !document.getElementById(e.getAttribute("aria-labelledby") ?? "") && !e.hidden
        ).map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert page.js("return [...document.images].filter((e) => !e.hasAttribute('alt')).length") == 0
    assert [len(page.all(landmark)) for landmark in ("main", "header", "nav", "aside", "h1")] == [1] * 5
    assert page.one("html").get_attribute("lang") == "en"


def test_a_narrow_window_needs_no_sideways_scrolling(page: Page) -> None:
    try:
        resize(page.browser, 400, 800)
        page.load()
        assert page.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.press("new-1", "Merge into…")
        page.one("#merge button[type=submit]").click()
        page.wait(lambda: "new-1" not in page.names())
        page.js("document.querySelector('.card .open').click()")
        for dialog in ("#members", "#edits"):
            box = page.js(
                "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.left, b.right]",
                dialog,
            )
            assert box[0] >= 0
            assert box[1] <= 400
        assert page.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    finally:
        resize(page.browser, 1280)


RED = """
const [canvas, grid] = arguments, step = canvas.width / grid, red = [];
const context = canvas.getContext("2d");
for (let i = 0; i < grid * grid; i += 1) {
  const [r, g] = context.getImageData((i % grid + 0.5) * step, (Math.floor(i / grid) + 0.5) * step, 1, 1).data;
  red.push(r > g + 40);
}
return red;
"""


def test_attention_paints_the_most_attended_patches(page: Page, run: Path) -> None:
    model, card = load_model(run)
    page.wait(lambda: len(page.all("#heads canvas")) > 0)
    first = next(
        i
        for i, id_ in enumerate(RESULT.ids)
        if f"Look at {printable(id_)}" == page.one("#samples button").get_attribute("aria-label")
    )
    source = [run.parent / "data" / RESULT.ids[first]]
    compute = choose_compute("cpu", "float32")
    views = [last_block_attention(model, source, card.crop_ratio, compute, prompted)[0] for prompted in (True, False)]
    n_heads, grid = len(views[0].heads), views[0].grid
    assert page.texts("#heads h3") == ["with prompts", "without prompts"]

    def check(row: int, share: float) -> None:
        canvases = page.all("#heads canvas")
        assert len(canvases) == 2 * n_heads
        for number, canvas in enumerate(canvases):
            expected = most_attended(views[number // n_heads].heads[number % n_heads, row], share)
            assert np.array_equal(page.js(RED, canvas, grid), expected)

    assert page.one("#look-words").text == "Looking from the class token."
    check(0, 0.1)
    page.one("input[name=share][value='6']").click()
    page.wait(lambda: "60 %" in page.one("#heads canvas").get_attribute("aria-label"))
    check(0, 0.6)
    ActionChains(page.browser).move_to_element_with_offset(page.one("#look"), 20, 20).click().perform()
    page.wait(lambda: page.one("#look-words").text == "Looking from the patch in row 4, column 4.")
    check(1 + 3 * grid + 3, 0.6)
    page.js("document.getElementById('look').focus()")
    page.keys("\ue012", "\ue013")
    page.wait(lambda: page.one("#look-words").text == "Looking from the patch in row 3, column 3.")
    page.keys("\ue00c")
    page.wait(lambda: page.one("#look-words").text == "Looking from the class token.")
    page.all("#samples button")[1].click()
    page.wait(lambda: page.all("#samples button")[1].get_attribute("aria-pressed") == "true")


def test_the_other_sections_are_there(page: Page) -> None:
    titles = [
        "Least sure",
        "Categories",
        "Map",
        "How many categories",
        "For researchers",
        "Against the truth",
        "Training",
        "Learned prompts",
    ]
    assert page.texts("main > section > h2") == [*titles, "Attention", "Facts"]
    assert page.texts(".scores b") == ["71.5 %", "90.0 %", "\N{EN DASH}"]
    assert page.texts(".confusion tbody th") == ["cat", "<b>dog</b>", "constructor", "fish 3", "fish 4"]
    assert page.texts(".confusion .wrong b") == ["1", "1"]
    assert len(page.all(".confusion img")) == 7
    assert page.texts("#training figcaption") == ["SPTNet: accuracy", "SPTNet: loss of the model phase"]
    assert page.texts("#facts summary") == ["1 unreadable image was left out"]
    category = CATEGORIES[RESULT.names.index("new-2")]
    row = [f"{category.mean_certainty:.2f}", f"{category.cohesion:.2f}", category.nearest_known]
    assert page.texts("#numbers tbody tr:first-child > *") == ["new-2", "12", *row]
    assert page.texts("#reliability figcaption") == ["Reliability: certainty against the share of right images"]
    assert "Expected calibration error: " in page.one("#reliability .note").text


# --- certainty --------------------------------------------------------------------------------------------------------

ASSESSED = assessed_result()
SHARES = {"cat": 0.9, "<b>dog</b>": 0.5, "constructor": 0.75, "new-1": 0.25, "new-2": 0.125}


@pytest.fixture
def assessed(opened: Page, tmp_path: Path) -> Iterator[Page]:
    """A run with labels that knows its expected accuracy."""
    run = assessed_run(tmp_path, ExpectedAccuracy(0.62, 0.55, 0.7, SHARES))
    file = write_report(run, tell=lambda message: None, model_pictures=False).page
    opened.browser.get_log("browser")
    shown = Page(opened.browser, file, opened.downloads)
    shown.load()
    yield shown
    assert opened.browser.get_log("browser") == []


def test_the_first_sentence_leads_to_the_least_sure_images(assessed: Page) -> None:
    wanted = "About 62 % (55 to 70) of the 35 unsorted images should be right; these 35 are the least sure."
    assert assessed.one("h1").text == wanted
    assert assessed.one("#sentence").text == "40 images in 5 categories: 3 known and 2 new. 10 images are doubtful."
    assessed.one("h1 a").click()
    assert assessed.browser.current_url.endswith("#unsure")
    columns = assessed.js("return getComputedStyle(document.querySelector('#unsure-list .tiles')).gridTemplateColumns")
    assert len(assessed.all("#unsure-list .tile")) == 2 * len(columns.split()), "two full rows"
    more = assessed.one("#unsure-list .more button")
    assert more.text == "Show all 35 images"
    assessed.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", more)
    more.click()
    certainties = [int(text.removesuffix(" %")) for text in assessed.texts("#unsure-list .certainty")]
    assert len(certainties) == 35
    assert certainties == sorted(certainties)
    certainty = assessed.one("#unsure .what p").get_attribute("textContent")
    assert "the probability that its category is right" in certainty


def test_labels_to_check_name_label_and_guess(assessed: Page) -> None:
    contradicted = np.flatnonzero(ASSESSED.guess != ASSESSED.category)[::-1]
    assert assessed.texts("#check-list .tile p:first-of-type") == [printable(ASSESSED.ids[i]) for i in contradicted]
    assert assessed.texts("#check-list .words") == [
        "your label: cat, looks like: new-1",
        "your label: cat, looks like: <b>dog</b>",
    ]
    assert assessed.texts("#check-list .certainty") == ["88 %", "40 %"]
    assessed.press("new-1", "Rename")
    assessed.js("document.querySelector('.rename input').select()")
    assessed.keys("otter\ue007")
    assert assessed.texts("#check-list .words")[0] == "your label: cat, looks like: otter"
    wrong = next(one for one in assessed.all("#check-list .tile:first-child button") if one.text == "Wrong")
    assessed.js("arguments[0].click()", wrong)
    assert wrong.get_attribute("aria-pressed") == "true"
    assert assessed.edits() == ["rename new-1 to otter", f"drop {printable(ASSESSED.ids[contradicted[0]])} as wrong"]
    while assessed.edits():
        assessed.js("document.getElementById('undo').click()")
    assert wrong.get_attribute("aria-pressed") == "false"


def test_cards_show_the_expected_share_and_merge_it(assessed: Page) -> None:
    expected = {name: f"{int(100 * share + 0.5)} %" for name, share in SHARES.items()}
    assert {name: rows_of(assessed, name)["should be right"] for name in SHARES} == expected
    sizes = [int(((ASSESSED.category == c) & (np.array(ASSESSED.part) == "unlabelled")).sum()) for c in (3, 4)]
    assessed.press("new-1", "Merge into…")
    assessed.js("document.getElementById('merge-into').selectedIndex = 0")
    assessed.one("#merge button[type=submit]").click()
    assessed.wait(lambda: "new-1" not in assessed.names())
    share = (sizes[0] * 0.25 + sizes[1] * 0.125) / sum(sizes)
    assert rows_of(assessed, "new-2")["should be right"] == f"{round(100 * share)} %"
    assessed.js("document.getElementById('undo').click()")


def test_a_run_without_an_expectation_has_no_such_row(page: Page) -> None:
    assert "should be right" not in rows_of(page, "new-1")
    assert page.one("h1").text == (
        "How many of the 40 unsorted images are right is not known: the certainty of this run is the model's own "
        "and was not tested; these 40 are the least sure."
    )
    assert page.all("#check") == []


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_lists_stand_out_and_fit(assessed: Page, scheme: str) -> None:
    try:
        prefer(assessed.browser, scheme)
        resize(assessed.browser, 400, 800)
        assessed.load()
        assert assessed.js(CONTRAST) == []
        assert assessed.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    finally:
        resize(assessed.browser, 1280)
        prefer(assessed.browser, "light")
