"""``kvplan list models --search`` against a stand-in hub on the loopback interface; hostile answers."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kvplan.cli import main
from kvplan.errors import CannotRunHere
from kvplan.files.hub import search
from kvplan.files.hub.search import HubModel, search_hub

TOKEN = "hf_secret_of_mine"
QWEN = {
    "id": "Qwen/Qwen3-8B", "downloads": 3_400_000, "likes": 500, "gated": False,
    "library_name": "transformers", "safetensors": {"total": 8_190_735_360},
}  # fmt: skip
MINE = {"id": "me/my-qwen3", "downloads": 7, "gated": "manual"}


@dataclass
class Hub:
    """What it answers with, and what it was asked."""

    body: bytes = b"[]"
    status: int = 200
    length: int | None = None
    port: int = 0
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)


@pytest.fixture(name="hub")
def _hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.asked.append(self.path)
            hub.tokens.append(self.headers.get("authorization"))
            self.send_response(hub.status)
            self.send_header("Content-Length", str(len(hub.body) if hub.length is None else hub.length))
            if hub.status == 302:
                self.send_header("Location", f"http://localhost:{hub.port}/elsewhere")
            self.end_headers()
            self.wfile.write(hub.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.port = server.server_address[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    yield hub
    server.shutdown()
    server.server_close()


def put(hub: Hub, value: Any) -> None:
    hub.body = value if isinstance(value, bytes) else json.dumps(value).encode()


def test_the_hub_is_asked_once_for_one_page(hub: Hub) -> None:
    put(hub, [QWEN, MINE])
    found = search_hub("  qwen3   8b ")
    (asked,) = hub.asked
    query = parse_qs(urlsplit(asked).query)
    assert urlsplit(asked).path == "/api/models"
    assert (query["search"], query["limit"], query["sort"]) == (["qwen3 8b"], ["20"], ["downloads"])
    assert hub.tokens == [f"Bearer {TOKEN}"]
    assert found.models == (
        HubModel("Qwen/Qwen3-8B", 8_190_735_360, 3_400_000, 500, False, "transformers", True),
        HubModel("me/my-qwen3", None, 7, None, True, None, False),
    )


def test_the_screen_and_the_json(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    put(hub, [QWEN, MINE])
    assert main(["list", "models", "--search", "qwen3", "8b"]) == 0
    screen = capsys.readouterr().out
    assert "for 'qwen3 8b', the most downloaded first." in " ".join(screen.split())
    assert "Qwen/Qwen3-8B       8.2 B  3,400,000  transformers  card" in screen
    assert "next: kvplan size Qwen/Qwen3-8B; kvplan size hf:me/my-qwen3 (reads the hub)" in " ".join(
        screen.split()
    )
    assert all(len(line) <= 80 for line in screen.splitlines())
    assert main(["list", "models", "--search", "qwen3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema_version"], data["search"]) == (1, "qwen3")
    assert [one["id"] for one in data["models"]] == ["Qwen/Qwen3-8B", "me/my-qwen3"]
    put(hub, [])
    assert main(["list", "models", "--search", "nothing-like-it"]) == 1
    assert capsys.readouterr().out.startswith("No: ")


def test_nothing_is_asked_unless_it_is_asked_for(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "models", "qwen3"]) == 0
    assert main(["size", "Qwen/Qwen3-8B", "-t", "8k"]) == 0
    assert main(["list", "models", "--search", "q", "--family", "mla"]) == 2
    assert main(["list", "models", "--search", " "]) == 2
    assert hub.asked == []
    assert TOKEN not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, b"", "hub-refused"), (403, b"{}", "hub-refused"), (429, b"", "hub-unavailable"),
        (500, b"oops", "hub-unavailable"), (200, b"<html>login</html>", "hub-unavailable"),
        (200, b'{"error": "no"}', "hub-unavailable"), (200, b"", "hub-unavailable"),
        (200, b'[{"id": 5}]', "hub-unavailable"), (200, b'["a/b"]', "hub-unavailable"),
        (200, b"[" * 5000, "hub-unavailable"), (200, b'[{"id": "a/b"', "hub-unavailable"),
        (200, b"\xff\xfe[]", "hub-unavailable"), (200, b'[{"id": "../../etc/passwd"}]', "hub-unavailable"),
        (200, b'[{"id": "a/b", "id": "c/d"}]', "hub-unavailable"), (200, b"[NaN]", "hub-unavailable"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none(
    hub: Hub, capsys: pytest.CaptureFixture[str], status: int, body: bytes, code: str
) -> None:
    hub.status, hub.body = status, body
    assert main(["list", "models", "--search", "qwen3"]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"error[{code}]")
    assert TOKEN not in said


def test_an_answer_without_end_is_not_read(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_BYTES", 1000)
    put(hub, b"[" + b" " * 5000 + b"]")
    with pytest.raises(CannotRunHere, match="does not answer as a Hugging Face hub"):
        search_hub("qwen3")
    hub.body, hub.length = b"[", 500
    with pytest.raises(CannotRunHere):
        search_hub("qwen3")


def test_a_redirect_takes_no_token_along(hub: Hub) -> None:
    hub.status = 302
    with pytest.raises(CannotRunHere):
        search_hub("qwen3")
    assert hub.tokens[0] == f"Bearer {TOKEN}"
    assert hub.tokens[1:]
    assert set(hub.tokens[1:]) == {None}


def test_offline_and_without_a_network_are_exit_3(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["list", "models", "--search", "qwen3"]) == 3
    assert capsys.readouterr().err.startswith("error[offline]")
    assert hub.asked == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://name:pa55word@127.0.0.1:{taken.getsockname()[1]}")
        assert main(["list", "models", "--search", "qwen3"]) == 3
        assert main(["size", "hf:org/none"]) == 3
    said = capsys.readouterr().err
    assert said.count("error[no-network]") == 2
    assert "pa55word" not in said
    assert TOKEN not in said


_STRANGE: tuple[Any, ...] = (
    None, True, -1, 10**30, 1.5, "", "a/b", "\x1b[31mred", "a" * 300, [], {}, [[]], {"total": "8"},
    {"total": -5}, {"total": 10**40}, "\u202egnp.exe", "org/name\n", "--", "..",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_bent_entries_never_reach_a_screen(hub: Hub, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    """Whatever an entry has: ids are ids, and numbers numbers, or there is no answer."""
    bent = random.Random(seed)
    for _ in range(12):
        entries: list[Any] = []
        for _ in range(bent.randrange(1, 5)):
            entry = dict(bent.choice((QWEN, MINE)))
            for name in bent.sample([*QWEN], 2):
                entry[name] = bent.choice(_STRANGE)
            entries.append(bent.choice((entry, entry, bent.choice(_STRANGE))))
        put(hub, entries)
        try:
            found = search_hub("qwen3")
        except CannotRunHere:
            continue
        for one in found.models:
            assert all(part for part in one.id.split("/"))
            assert one.id.isascii()
            assert all(
                number is None or 0 <= number < 10**18
                for number in (one.parameters, one.downloads, one.likes)
            )
        main(["list", "models", "--search", "qwen3"])
        assert "\x1b" not in capsys.readouterr().out
