"""Where the browser is for the tests of the page, and what happens on a machine without one."""

import importlib.util
import os
import shutil

import pytest

NEEDED = "BSPML_NEED_BROWSER"  # environment variable: 1 where a missing browser is a failure
CHROMIUM = "BSPML_CHROMIUM"  # environment variable: path of the browser


def chromium_path():
    """Path of a Chromium that playwright can drive; without one the test that asks is skipped."""
    path = os.environ.get(CHROMIUM) or shutil.which("chromium")
    if not path:
        without_browser(f"no Chromium: apt-get install chromium, or name one in {CHROMIUM}")
    if importlib.util.find_spec("playwright") is None:
        without_browser("no playwright: pip install 'bspml[test]'")
    return path


def without_browser(reason):
    """Skip the test, or fail where BSPML_NEED_BROWSER=1 says that a browser must be there."""
    if os.environ.get(NEEDED) == "1":
        pytest.fail(f"{reason} ({NEEDED}=1 makes this a failure)")
    pytest.skip(reason)
