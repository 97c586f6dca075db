"""Without a browser the tests of the page are skipped, and fail where one must be there."""

import importlib.util
import shutil

import pytest

from helpers.browsers import CHROMIUM, NEEDED, chromium_path


@pytest.fixture(autouse=True)
def a_machine_with_playwright_only(monkeypatch):
    monkeypatch.delenv(NEEDED, raising=False)
    monkeypatch.delenv(CHROMIUM, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


def without_chromium(monkeypatch):
    return r"no Chromium: apt-get install chromium, or name one in BSPML_CHROMIUM"


def without_playwright(monkeypatch):
    monkeypatch.setenv(CHROMIUM, "/opt/chromium")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return r"no playwright: pip install 'bspml\[test\]'"


@pytest.mark.parametrize("lacking", [without_chromium, without_playwright])
@pytest.mark.parametrize(
    ("needed", "outcome"),
    [(None, pytest.skip.Exception), ("0", pytest.skip.Exception), ("1", pytest.fail.Exception)],
)
def test_a_missing_browser_skips_or_fails_and_says_how_to_get_one(
    lacking, needed, outcome, monkeypatch
):
    reason = lacking(monkeypatch)
    if needed is not None:
        monkeypatch.setenv(NEEDED, needed)
    with pytest.raises(outcome, match=reason):
        chromium_path()


def test_the_named_browser_comes_before_the_installed_one(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert chromium_path() == "/usr/bin/chromium"
    monkeypatch.setenv(CHROMIUM, "/opt/chromium")
    assert chromium_path() == "/opt/chromium"
