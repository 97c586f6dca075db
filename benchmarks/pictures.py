"""The picture of an audit's page that the README and the site show, made anew.

    python benchmarks/pictures.py --out docs

Printed characters with one label in ten moved to another class stand in for photos, so nothing of
anybody's data is shown.  Needs a Chromium and playwright (the extra `test`).
"""

from __future__ import annotations

import argparse
import string
import tempfile
from pathlib import Path

from command import end
from PIL import Image
from playwright.sync_api import sync_playwright

import bspml
from bspml.cli import main as bspml_command
from bspml.data.sets.glyphs import Glyphs

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]


def make_audit(folder: Path) -> Path:
    """A folder of audited characters; its report.html is the page."""
    halves = [Glyphs(split, image_size=64) for split in ("train", "test")]
    letters = [
        (half.classes[label], image)
        for half in halves
        for image, label in zip(half.images, half.labels.tolist(), strict=True)
        if half.classes[label] in string.ascii_uppercase
    ]
    noisy = bspml.noise.symmetric([letter for letter, _ in letters], rate=0.1, seed=1).labels
    for number, ((letter, image), label) in enumerate(zip(letters, noisy, strict=True)):
        place = folder / "photos" / label
        place.mkdir(parents=True, exist_ok=True)
        pixels = (255 * (1 - image[0])).byte().numpy()
        Image.fromarray(pixels).save(place / f"{letter}-{number:03}.png")
    where = ["--backbone", "efficientnet-lite0", "--output", str(folder / "found")]
    bspml_command(["audit", str(folder / "photos"), *where, "--quiet"])
    return folder / "found" / "report.html"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = make_audit(Path(folder))
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        tab = browser.new_page(viewport={"width": 1100, "height": 760})
        tab.goto(page.as_uri())
        tab.locator("#suspects").scroll_into_view_if_needed()
        tab.evaluate("document.querySelector('#suspects').scrollIntoView()")
        tab.screenshot(path=options.out / "audit-page.png")
        browser.close()
    print(options.out / "audit-page.png")


if __name__ == "__main__":
    end(main)
