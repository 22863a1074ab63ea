"""A headless Chromium for the tests of the report's page."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser of playwright's; skips, saying why, where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is there, and CHROMIUM names none")
    with api.sync_playwright() as playwright:
        # A container's root has no sandbox.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


class Visit:
    """A page opened from disk, with its requests and error messages."""

    def __init__(self, browser: Any, path: Any, *, width: int = 1280, dark: bool = False):
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light")
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"file://{path}")
        # By an attribute: what waits for a function evaluates strings in the page, which its own policy forbids.
        self.page.wait_for_selector("html[data-plots=drawn]", state="attached")

    def until(self, expression: str) -> None:
        """Waits until the expression is true in the page; TimeoutError after ten seconds."""
        ends = time.monotonic() + 10
        while not self.page.evaluate(expression):
            if time.monotonic() > ends:
                raise TimeoutError(f"{expression}: not true after ten seconds")
            self.page.wait_for_timeout(50)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: Any) -> None:
        self.page.close()
