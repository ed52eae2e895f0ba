"""Headers from a stand-in hub on loopback: ranges only, credentials kept at home."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub.ranged import each, read_range
from kvplan.files.hub.weights import hub_checkpoint
from tests.weights.checkpoints import TINY_LLAMA, llama_tensors, write_checkpoint


@dataclass
class StandIn:
    """Serves the files of a folder under /org/name/resolve/main/, and notes what was asked."""

    folder: Path
    storage: str = ""
    endpoint: str = ""
    ranges: bool = True
    drip: bool = False
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    sent: int = 0


def _serve(stand_in: StandIn) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stand_in.asked.append((self.path, self.headers.get("range"), self.headers.get("authorization")))
            file = stand_in.folder / self.path.rsplit("/", 1)[1]
            if "/org/secret/" in self.path:
                self._end(401)
            elif not file.is_file():
                self._end(404)
            elif stand_in.storage and file.suffix == ".safetensors":
                self.send_response(302)
                self.send_header("Location", f"{stand_in.storage}/data/{file.name}")
                self.end_headers()
            else:
                self._part(file.read_bytes())

        def _part(self, data: bytes) -> None:
            start, end = (int(word) for word in self.headers["range"].removeprefix("bytes=").split("-"))
            if stand_in.ranges:
                data = data[start : end + 1]
            self.send_response(206 if stand_in.ranges else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            while stand_in.drip:
                self.wfile.write(b" ")
                time.sleep(0.05)
            stand_in.sent += len(data)
            self.wfile.write(data)

        def _end(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    made = StandIn(tmp_path)
    server = _serve(made)
    yield made
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("shards", [1, 3])
def test_only_headers_are_fetched(stand_in: StandIn, shards: int) -> None:
    config = {**TINY_LLAMA, "vocab_size": 100_000}
    tensors = llama_tensors(config)
    write_checkpoint(stand_in.folder, config, tensors, shards=shards)
    found = hub_checkpoint("org/name", endpoint=stand_in.endpoint)
    assert found is not None
    assert sorted(found.tensors, key=str) == sorted(tensors, key=str)
    assert stand_in.sent < 100_000 * (shards + 1) < found.bytes
    assert all(entry[1] for entry in stand_in.asked)


def test_a_long_header_takes_a_second_range(stand_in: StandIn) -> None:
    config = {**TINY_LLAMA, "num_hidden_layers": 200}
    tensors = llama_tensors(config)
    write_checkpoint(stand_in.folder, config, tensors)
    found = hub_checkpoint("org/name", endpoint=stand_in.endpoint)
    assert found is not None
    assert len(found.tensors) == len(tensors)
    assert len([entry for entry in stand_in.asked if entry[0].endswith("model.safetensors")]) == 2


def test_credentials_are_not_sent_to_the_storage_host(stand_in: StandIn) -> None:
    write_checkpoint(stand_in.folder, TINY_LLAMA, llama_tensors(TINY_LLAMA))
    storage = StandIn(stand_in.folder)
    server = _serve(storage)
    stand_in.storage = storage.endpoint.replace("127.0.0.1", "localhost")
    assert hub_checkpoint("org/name", endpoint=stand_in.endpoint) is not None
    server.shutdown()
    server.server_close()
    assert {entry[2] for entry in stand_in.asked} == {"Bearer hf_test"}
    assert {entry[2] for entry in storage.asked} == {None}


def test_very_many_shards_are_not_asked_for(stand_in: StandIn) -> None:
    shards = {f"w{at}": f"model-{at:05}.safetensors" for at in range(5000)}
    index = {"metadata": {"total_size": 10**9}, "weight_map": shards}
    (stand_in.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(KvplanError, match="5,000 files") as caught:
        hub_checkpoint("org/name", endpoint=stand_in.endpoint)
    assert caught.value.code == "too-many-files"
    assert len(stand_in.asked) == 1


def test_a_repository_without_safetensors(stand_in: StandIn) -> None:
    assert hub_checkpoint("org/name", endpoint=stand_in.endpoint) is None


def test_a_refusal_says_so(stand_in: StandIn) -> None:
    with pytest.raises(CannotRunHere) as caught:
        hub_checkpoint("org/secret", endpoint=stand_in.endpoint)
    assert caught.value.code == "hub-refused"


def test_a_server_that_ignores_ranges_is_cut_off(stand_in: StandIn) -> None:
    (stand_in.folder / "model.bin").write_bytes(bytes(1_000_000))
    stand_in.ranges = False
    assert len(read_range(f"{stand_in.endpoint}/model.bin", 0, 100)) == 100
    with pytest.raises(CannotRunHere, match="does not answer requests for a part"):
        read_range(f"{stand_in.endpoint}/model.bin", 10, 100)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(KvplanError) as caught:
        read_range(url, 0, 10)
    assert caught.value.code == "bad-url"


def test_nobody_listens() -> None:
    with pytest.raises(CannotRunHere) as caught:
        read_range("http://127.0.0.1:9/x", 0, 10)
    assert caught.value.code == "no-network"


def test_a_hub_that_drips_is_not_waited_for(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then: every read is in time, the whole never ends. No thread of ours outlives it."""
    write_checkpoint(stand_in.folder, TINY_LLAMA, llama_tensors(TINY_LLAMA), shards=3)
    assert hub_checkpoint("org/name", endpoint=stand_in.endpoint) is not None
    monkeypatch.setattr("kvplan.files.hub.weights.TOTAL_SECONDS", 0.5)
    stand_in.drip = True
    before = set(threading.enumerate())
    with pytest.raises(CannotRunHere) as caught:
        hub_checkpoint("org/name", endpoint=stand_in.endpoint)
    assert caught.value.code == "no-network"
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    stand_in.drip = False


def test_the_process_ends_before_its_workers() -> None:
    """Eight workers that never come back: the interpreter does not wait for them."""
    script = (
        "import threading\n"
        "from kvplan.files.hub.ranged import each\n"
        "from kvplan.files.hub.place import within\n"
        "for_ever = threading.Event()\n"
        "try: within(0.1, lambda: each(lambda _: for_ever.wait(), range(8), workers=8))\n"
        "except Exception as error: print(error.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "no-network\n"


def test_the_answers_of_workers_are_in_order() -> None:
    assert each(lambda number: number * 2, range(50), workers=8) == [number * 2 for number in range(50)]
    with pytest.raises(ZeroDivisionError):
        each(lambda number: 1 // number, [1, 1, 0, 1], workers=2)
    assert each(str, [], workers=8) == []
