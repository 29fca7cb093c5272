"""Opens pages of `oplus explain --html` in a headless Chromium, and leaves screenshots of them.

    python cli/tests/page.py BROWSER FOLDER PAGE…

A tile says what it holds, in the caption's place, while somebody points at it or has come to it by the keyboard. No page scrolls
sideways, writes to the console or asks for anything but itself. `.ci/page` makes the pages and finds the browser.
"""

import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

SCREENS = {"desk": ({"width": 1280, "height": 900}, "light"), "phone": ({"width": 390, "height": 844}, "dark")}


def point_at(page, tile):
    """Moves the mouse to the middle of a tile."""
    tile.scroll_into_view_if_needed()
    box = tile.locator("rect").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def check_tile(page, figure, place):
    """The words of a tile are hidden until somebody points at it; then they alone stand beneath the picture."""
    tile, words = figure.locator(f".at{place}"), figure.locator(f".of{place}")
    label = tile.get_attribute("aria-label")
    assert label.startswith("tile ") and "computed by" in label, label
    expect(words).to_be_hidden()
    point_at(page, tile)
    expect(words).to_be_visible()
    expect(words).to_have_text(label)
    assert figure.locator("figcaption > :visible").count() == 1
    page.mouse.move(0, 0)
    expect(words).to_be_hidden()
    tile.focus()
    expect(words).to_be_visible()
    tile.blur()
    expect(figure.locator("figcaption > span").first).to_be_visible()


def check(page, path, screen, folder):
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.screenshot(path=folder / f"{path.stem}-{screen}.png")
    figures = page.locator("figure")
    tiles = 0
    for figure in figures.all():
        count = figure.locator(".tile").count()
        assert count > 0 and figure.locator(".holds").count() == count
        for place in range(count):
            check_tile(page, figure, place)
        tiles += count
    for summary in page.locator("summary").all():
        summary.click()
    assert page.locator("pre", has_text=".visible .entry").first.is_visible()
    for element in ["documentElement", "body"]:
        wide, room = page.evaluate(f"[document.{element}.scrollWidth, window.innerWidth]")
        assert wide <= room, f"{path.name} is {wide} pixels wide on a screen of {room}"
    point_at(page, figures.first.locator(".tile").first)
    page.screenshot(path=folder / f"{path.stem}-{screen}-tile.png")
    page.screenshot(path=folder / f"{path.stem}-{screen}-whole.png", full_page=True)
    assert not said, f"{path.name} says {said}"
    assert asked == [path.as_uri()], f"{path.name} asks for {asked}"
    return tiles


def main():
    browser, folder, pages = sys.argv[1], Path(sys.argv[2]), [Path(page).resolve() for page in sys.argv[3:]]
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # In a container there is no user for whom Chromium could build its sandbox; the pages are our own.
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for path in pages:
            for screen, (size, scheme) in SCREENS.items():
                page = chromium.new_page(viewport=size, color_scheme=scheme)
                tiles = check(page, path, screen, folder)
                assert tiles > 0, f"{path.name} has no tile"
                print(f"{path.name} on a {screen}: {tiles} tiles")
                page.close()
        chromium.close()


main()
