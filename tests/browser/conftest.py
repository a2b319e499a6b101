"""A headless browser."""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture
def browser(tmp_path):
    """The command that starts one with a profile of its own."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop(f"needs a browser, {' or '.join(BROWSERS)} (Debian: apt-get install chromium)")
    return [found, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}"]
