"""Debian's Chromium through Playwright, watched: what it asks for, what it complains of, how it looks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

SCREENS = Path(__file__).parent.parent / "build" / "screens"
WIDE, NARROW = 1600, 360  # px


def missing() -> str:
    """Why there is no browser here; "" when there is one."""
    if not shutil.which("chromium"):
        return "no chromium (Debian: apt-get install chromium)"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "no playwright (`make setup` brings it)"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. Skips where there is none."""
    if why := missing():
        pytest.skip(f"the page in a browser: {why}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Watched:
    """A page whose requests and complaints are written down. `events`: what it hears instead of the run's stream."""

    def __init__(self, browser: Any, address: str, events: str = "", **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": WIDE, "height": 1000}, **context)
        self.page = self.context.new_page()
        self.address = address
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._console)
        if events:
            self.page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=events))
        self.load()

    def load(self) -> None:
        """Goes to the address, afresh. A document that is on its way while the box gets or loses an address (labs
        beside this one do that to it) is given up by Chromium and, where people look, loaded once more.
        """
        from playwright.sync_api import Error

        while True:
            try:
                self.page.goto(self.address)
                return
            except Error as error:
                if "ERR_NETWORK_CHANGED" not in error.message:
                    raise

    def _console(self, message: Any) -> None:
        # A stream whose run has ended is refused a new connection: the page shows that, Chromium logs it.
        if message.type == "error" and "ERR_" not in message.text:
            self.complaints.append(message.text)

    def phase(self, phase: str, within: float = 40.0) -> None:
        """Waits until the page shows it."""
        self._until("phase => document.getElementById('phase').textContent === phase", phase, within)

    def shows(self, text: str, where: str = "body", within: float = 10.0) -> None:
        """Waits until `where` holds `text`."""
        look = "([where, text]) => document.querySelector(where)?.textContent.includes(text)"
        self._until(look, [where, text], within)

    def _until(self, look: str, arg: Any, within: float) -> None:
        from playwright.sync_api import TimeoutError

        try:
            self.page.wait_for_function(look, arg=arg, timeout=within * 1e3)
        except TimeoutError:
            shown = self.page.inner_text("body")
            heard = f"complaints: {self.complaints}\nasked: {self.asked}\nshown:\n{shown}"
            raise AssertionError(f"{arg!r} not within {within:g} s\n{heard}") from None

    def picture(self, name: str, width: int = WIDE, theme: str = "light") -> Path:
        """A picture of the whole page in build/screens/."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        self.page.set_viewport_size({"width": width, "height": 1000})
        self.page.emulate_media(color_scheme=theme)
        self.page.evaluate("() => new Promise(done => setTimeout(done, 700))")  # the next drawing
        path = SCREENS / f"{name}-{width}-{theme}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def fits(self) -> bool:
        """Nothing sticks out to the right."""
        return bool(self.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"))

    def strangers(self) -> list[str]:
        """Requests that left this box."""
        return [url for url in self.asked if urlsplit(url).hostname not in ("127.0.0.1", "localhost", None)]

    def close(self) -> None:
        self.context.close()
