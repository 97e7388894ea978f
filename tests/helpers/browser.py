"""Starts a headless Chromium for the tests of the report page; without one they are skipped, and say so."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb"),
)
NEEDED = "the report page is NOT tested: install Debian's chromium and chromium-driver, and pip install selenium"


def start_browser(profile: Path, downloads: Path, width: int = 1280, height: int = 900) -> Any:
    """A browser with a fresh profile, whose downloads land in a folder and whose every request is logged."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip(NEEDED)
    webdriver = pytest.importorskip("selenium.webdriver", reason=NEEDED)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.get("about:blank")
    requests(browser)  # those of the browser's own first page
    return browser


def requests(browser: Any) -> list[str]:
    """The address of everything that was asked for since the last call; data that lies in the page does not count."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith("data:")]


def resize(browser: Any, width: int, height: int = 900) -> None:
    """The size of the page itself, narrower than any window can be made."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(browser: Any, scheme: str) -> None:
    """What the system prefers: light or dark, and in any case that nothing moves by itself."""
    values = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in values.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
