"""Headless Chromium for the tests of the report page; without it they are skipped."""

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
    """Start a browser with a new profile, a folder for downloads, and a log of all requests."""
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
    requests(browser)  # drop those of the start page
    return browser


def requests(browser: Any) -> list[str]:
    """URLs requested since the last call, without data URLs."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith("data:")]


def resize(browser: Any, width: int, height: int = 900) -> None:
    """Set the size of the page, which may be narrower than the smallest window."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(browser: Any, scheme: str) -> None:
    """Emulate the preference for a light or dark scheme, and for reduced motion."""
    values = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in values.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
