"""The report page in a browser, with what tests do to it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPEN = "[...document.querySelectorAll('.card .open')].find((e) => e.textContent === arguments[0]).click()"
INSIDE = """
const [a, b] = [...arguments].map((one) => document.querySelector(one).getBoundingClientRect());
return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom && a.width > 0;
"""
POINT = """
const [plot, tip] = [arguments[0], document.getElementById("tip")];
const box = plot.getBoundingClientRect();
const hits = (x, y) => {
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + x, clientY: box.top + y}));
  return !tip.hidden;
};
for (let y = 60; y < box.height; y += 9) for (let x = 4; x < box.width; x += 9) {
  if (hits(x, y) && hits(x - 3, y) && hits(x + 3, y) && hits(x, y - 3) && hits(x, y + 3))
    return [x - box.width / 2, y - box.height / 2];
}
"""


class Page:
    """The page in the browser, with helpers for the tests."""

    def __init__(self, browser: Any, file: Path, downloads: Path):
        self.browser, self.file, self.downloads = browser, file, downloads

    def load(self) -> None:
        """Open the page as if for the first time."""
        if self.browser.current_url.startswith("file:"):
            self.js("localStorage.clear()")
        self.reload()

    def reload(self) -> None:
        """Open the page again; what the browser kept is still there."""
        self.browser.get(self.file.as_uri())

    def js(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.browser.find_elements("css selector", selector)
        return found

    def one(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return list(self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector))

    def names(self) -> list[str]:
        return self.texts(".card .open")

    def card(self, name: str) -> Any:
        return self.all(".card")[self.names().index(name)]

    def press(self, name: str, word: str) -> None:
        next(one for one in self.card(name).find_elements("css selector", "button") if one.text == word).click()

    def keys(self, *keys: str) -> None:
        self.browser.switch_to.active_element.send_keys(*keys)

    def focused(self) -> str:
        return str(self.browser.switch_to.active_element.text)

    def edits(self) -> list[str]:
        return self.texts("#edit-list li")

    def wait(self, condition: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Scroll to an element and click it with the pointer."""
        element = self.one(selector)
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def open(self, name: str) -> None:
        """Open a category."""
        self.js(OPEN, name)
        self.wait(lambda: self.one("#members").is_displayed())

    def live(self) -> str:
        """Return what was said last to those who cannot see."""
        return str(self.one("#live").get_attribute("textContent"))

    def inside(self, inner: str, outer: str) -> bool:
        """Return True if one element lies inside another."""
        return bool(self.js(INSIDE, inner, outer))

    def point_on_map(self) -> tuple[int, int]:
        """Scroll to the map and return where a point is, as the offset from its middle."""
        plot = self.one("#plot")
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
        x, y = self.js(POINT, plot)
        self.js("arguments[0].dispatchEvent(new PointerEvent('pointerleave'))", plot)
        return round(x), round(y)

    def save(self) -> Path:
        file = self.downloads / "edits.json"
        file.unlink(missing_ok=True)
        self.one("#save").click()
        self.wait(file.is_file)
        return file
