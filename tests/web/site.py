"""The built site, served on this machine, in the system's own browser."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def built() -> Path:
    """The site. Skips where it was not built."""
    if not (SITE / "sw.js").is_file():
        pytest.skip("the site is not built: make site")
    return SITE


def chromium() -> str:
    """The system's browser. Skips where there is none."""
    named = os.environ.get("KVPLAN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not named or not Path(named).is_file():
        pytest.skip("no Chromium here: apt-get install chromium, or KVPLAN_CHROMIUM=/path")
    return named


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is said of what is fetched."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
