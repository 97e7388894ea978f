"""The report page in Chromium: no script of a name runs, no element comes from a name, nothing is fetched."""

import json
import shutil
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
STATE = """
const count = (selector) => document.querySelectorAll(selector).length;
return {
  hacked: window.hacked === undefined ? 0 : 1,
  injected: count("x-injected"),
  handlers: count("[onerror],[onload],[onmouseover],[onclick]"),
  scripts: count("script"),
  frames: count("iframe,object,embed,base,link[rel=stylesheet]"),
  cards: count(".card"),
};
"""
OPEN = 'const all = document.querySelectorAll(".card .open"); if (arguments[0] < all.length) all[arguments[0]].click();'


class Browser:
    """A headless Chromium; `missing` says what is not installed."""

    def __init__(self, profile: Path):
        self.missing, self._driver = "", None
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        driver = shutil.which("chromedriver")
        if program is None or driver is None:
            self.missing = "chromium or chromedriver"
            return
        try:
            from selenium import webdriver
        except ImportError:
            self.missing = "selenium"
            return
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        self._driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def visit(self, page: Path) -> dict[str, int]:
        """Load a page, open its first cards, and count what matters; `requests` are those beside the page itself."""
        driver: Any = self._driver
        driver.get_log("performance")
        driver.get(page.as_uri())
        for number in range(3):
            driver.execute_script(OPEN, number)
        state: dict[str, int] = driver.execute_script(STATE)
        messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        strange = [url for url in sent if not url.startswith(("data:", "blob:", page.as_uri()))]
        return {**state, "requests": len(strange)}

    def close(self) -> None:
        """End the browser."""
        if self._driver is not None:
            self._driver.quit()
            self._driver = None


def wrong_page(found: dict[str, int], plain: dict[str, int]) -> str:
    """Compare a page with one that has plain names; returns what a name has brought about."""
    for key in ("hacked", "injected", "handlers", "scripts", "frames", "requests"):
        if found[key] != plain[key]:
            return f"the page has {key} = {found[key]}, a page of plain names {plain[key]}"
    return "" if found["cards"] else "the page shows no category"
