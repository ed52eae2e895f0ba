"""``hf:org/name`` against a stand-in hub on the loopback interface."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub import model as hub
from kvplan.files.hub.model import CONFIG, QUANT, open_hub_model
from kvplan.files.hub.place import Repository
from kvplan.files.sources import open_model
from kvplan.model import Model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_test"
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
FP8_CACHE = {"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": "FP8"}}


@dataclass
class StandIn:
    """What the stand-in serves, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    endpoint: str = ""
    delay: float = 0.0

    def put(self, repository: str, file: str, content: Any, revision: str = "main") -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        for name in (revision, COMMIT):
            self.files[f"/{repository}/resolve/{name}/{file}"] = data


def _handler(hub_data: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
            pass

        def _answer(self, *, body: bool) -> None:
            time.sleep(hub_data.delay)
            hub_data.asked.append(f"{self.command} {self.path}")
            hub_data.tokens.append(self.headers.get("authorization"))
            repository = self.path.split("/resolve/")[0].strip("/")
            if repository == "org/gated" and self.headers.get("authorization") != f"Bearer {TOKEN}":
                self._error(403, "GatedRepo")
            elif repository == "org/limited":
                self._error(429, "")
            elif repository == "org/forbidden":
                self._error(403, "")
            elif repository == "org/broken":
                self._error(503, "")
            elif repository == "org/moved":
                self.send_response(307)
                self.send_header("Location", self.path.replace("org/moved", "org/small"))
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif repository == "org/huge":
                self._send(b"", 200 << 20, body=False)
            elif repository == "org/nohub":
                self._send(b"{}", 2, body=body, commit=False)
            elif self.path in hub_data.files:
                data = hub_data.files[self.path]
                self._send(data, len(data), body=body)
            elif any(path.startswith(f"/{repository}/") for path in hub_data.files):
                known = any(part in self.path for part in ("/main/", f"/{COMMIT}/"))
                self._error(404, "EntryNotFound" if known else "RevisionNotFound")
            else:
                self._error(401, "RepoNotFound")

        def _send(self, data: bytes, size: int, *, body: bool, commit: bool = True) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.send_header("ETag", f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"')
            if commit:
                self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def _error(self, status: int, code: str) -> None:
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            if code == "EntryNotFound":
                self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


@pytest.fixture(name="stand_in")
def _stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    """A running hub, and a cache of its own for the test."""
    served = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served))
    served.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "a" / "b" / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served.put("org/small", CONFIG, LLAMA)
    yield served
    server.shutdown()
    server.server_close()


def ask(stand_in: StandIn, name: str, revision: str | None = None) -> Model:
    return open_hub_model(name, revision, endpoint=stand_in.endpoint)


def refused(stand_in: StandIn, name: str) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        ask(stand_in, name)
    assert all(len(line) <= 200 for line in caught.value.format().splitlines())
    return caught.value


def test_a_config_is_read_and_the_commit_is_named(stand_in: StandIn) -> None:
    model = ask(stand_in, "org/small")
    assert (model.id, model.source) == ("org/small", f"hf:org/small@{COMMIT}")
    assert model.provenance.revision == COMMIT
    assert (model.num_layers, model.max_model_len, model.dtype) == (4, 4096, "bfloat16")
    assert model.warnings == ()


def test_only_config_files_are_asked_for(stand_in: StandIn) -> None:
    ask(stand_in, "org/small")
    assert {path.rsplit("/", 1)[1] for path in stand_in.asked} == {CONFIG, QUANT}


def test_the_quantisation_file_beside_the_config_is_read(stand_in: StandIn) -> None:
    stand_in.put("org/fp8", CONFIG, LLAMA)
    stand_in.put("org/fp8", QUANT, FP8_CACHE)
    assert ask(stand_in, "org/fp8").kv_cache_scheme is not None
    assert ask(stand_in, "org/small").kv_cache_scheme is None


def test_a_broken_quantisation_file_is_named(stand_in: StandIn) -> None:
    stand_in.put("org/bad", CONFIG, LLAMA)
    stand_in.put("org/bad", QUANT, b"{broken")
    error = refused(stand_in, "org/bad")
    assert (error.code, error.exit_code) == ("bad-json", 2)
    assert f"org/bad/{QUANT}" in error.message


def test_a_revision_is_asked_for(stand_in: StandIn) -> None:
    stand_in.put("org/tagged", CONFIG, LLAMA, revision="v2.0")
    assert ask(stand_in, "org/tagged@v2.0").provenance.revision == COMMIT
    assert ask(stand_in, "org/tagged", "v2.0").provenance.revision == COMMIT
    error = refused(stand_in, "org/tagged@v3")
    assert (error.code, error.exit_code) == ("unknown-revision", 2)


def test_a_redirect_inside_the_hub_is_followed(stand_in: StandIn) -> None:
    assert ask(stand_in, "org/moved").num_layers == 4


def test_a_gated_model_says_where_to_accept(stand_in: StandIn) -> None:
    error = refused(stand_in, "org/gated")
    assert (error.code, error.exit_code) == ("gated-model", 3)
    assert f"{stand_in.endpoint}/org/gated" in error.help[0]
    assert "HF_TOKEN" in error.help[1]


def test_the_token_is_sent(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.put("org/gated", CONFIG, LLAMA)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert ask(stand_in, "org/gated").num_layers == 4


@pytest.mark.parametrize(
    ("name", "code", "exit_code"),
    [
        ("org/nothing", "unknown-model", 2),
        ("org/limited", "hub-unavailable", 3),
        ("org/broken", "hub-unavailable", 3),
        ("org/forbidden", "hub-refused", 3),
        ("org/nohub", "hub-unavailable", 3),
        ("org/huge", "file-too-large", 2),
    ],
)
def test_refusals(stand_in: StandIn, name: str, code: str, exit_code: int) -> None:
    error = refused(stand_in, name)
    assert (error.code, error.exit_code) == (code, exit_code)


def test_a_repository_without_a_config_is_said(stand_in: StandIn) -> None:
    stand_in.put("org/gguf", "model.gguf", b"GGUF")
    error = refused(stand_in, "org/gguf")
    assert (error.code, error.exit_code) == ("no-config", 2)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"not json", b"\xff\xfe{", b'{"model_type": "llama"', b'{"a":1,"a":2}']
)
def test_a_config_that_is_no_json_object(stand_in: StandIn, content: bytes) -> None:
    stand_in.put("org/odd", CONFIG, content)
    assert refused(stand_in, "org/odd").exit_code == 2


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b/c",
        "org/",
        "/name",
        "org name/x",
        "org/na--me",
        "org/../etc",
        "-x/y",
        "x" * 200,
        "org/a@",
        "org/a@b..c",
    ],
)
def test_an_id_that_cannot_be_is_not_sent(stand_in: StandIn, name: str) -> None:
    assert refused(stand_in, name).code == "bad-model-id"
    assert not stand_in.asked


def test_two_different_revisions_are_refused(stand_in: StandIn) -> None:
    with pytest.raises(KvplanError, match="two revisions"):
        ask(stand_in, "org/small@a", "b")


def test_no_network_is_exit_3_and_quick(stand_in: StandIn) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(CannotRunHere) as caught:
        open_hub_model("org/small", endpoint=f"http://127.0.0.1:{port}")
    assert (caught.value.code, caught.value.exit_code) == ("no-network", 3)


def test_a_slow_hub_is_not_waited_for(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TOTAL_SECONDS", 0.2)
    stand_in.delay = 1.0
    with pytest.raises(CannotRunHere) as caught:
        ask(stand_in, "org/small")
    assert caught.value.code == "no-network"
    for thread in threading.enumerate():
        if thread.name == "kvplan-hub":
            thread.join(30)


def test_the_cache_answers_when_the_hub_does_not(stand_in: StandIn) -> None:
    ask(stand_in, "org/small")
    model = open_hub_model("org/small", endpoint="http://127.0.0.1:9")
    assert model.provenance.revision == COMMIT
    assert len(model.warnings) == 1
    assert "read from the local cache" in model.warnings[0]
    assert "cannot be reached" in model.warnings[0]


def test_offline_the_cache_answers_without_a_request(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.put("org/fp8", CONFIG, LLAMA)
    stand_in.put("org/fp8", QUANT, FP8_CACHE)
    online = [ask(stand_in, "org/small"), ask(stand_in, "org/fp8")]
    stand_in.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = [ask(stand_in, "org/small"), ask(stand_in, "org/fp8")]
    assert not stand_in.asked
    assert [(model.runs, model.kv_cache_scheme, model.source, model.warnings) for model in offline] == [
        (model.runs, model.kv_cache_scheme, model.source, model.warnings) for model in online
    ]
    with pytest.raises(CannotRunHere) as caught:
        ask(stand_in, "org/other")
    assert (caught.value.code, caught.value.exit_code) == ("offline", 3)


def test_offline_an_unknown_quantisation_is_said(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub", reason="the extra hf is not installed")
    library.hf_hub_download(
        "org/small", CONFIG, endpoint=stand_in.endpoint, cache_dir=os.environ["HF_HUB_CACHE"]
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert QUANT in " ".join(ask(stand_in, "org/small").warnings)


def test_code_in_a_repository_is_neither_fetched_nor_run(stand_in: StandIn) -> None:
    stand_in.put("org/code", CONFIG, {**LLAMA, "auto_map": {"AutoConfig": "configuration_x.X"}})
    stand_in.put("org/code", "configuration_x.py", b"raise SystemExit('run')")
    assert ask(stand_in, "org/code").num_layers == 4
    assert not any(path.endswith(".py") for path in stand_in.asked)


def test_the_prefix_leads_here(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hub, "repository_of", lambda name, revision, _: Repository(name, revision, stand_in.endpoint)
    )
    assert open_model("hf:org/small").id == "org/small"


def test_no_extra_is_needed(stand_in: StandIn, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from kvplan.files.sources import open_model\n"
        "print(open_model('hf:org/small').num_layers)\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": stand_in.endpoint, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "4\n"


def test_the_environment_decides_where_to_ask(stand_in: StandIn, tmp_path: Path) -> None:
    script = (
        "from kvplan.files.sources import open_model\n"
        "model = open_model('hf:org/small')\n"
        "print(model.source, model.num_layers)\n"
    )
    environment = {
        "HF_ENDPOINT": stand_in.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-c", script]
    online = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert online.stdout == f"hf:org/small@{COMMIT} 4\n"
    asked = len(stand_in.asked)
    offline = subprocess.run(
        command,
        env={**environment, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert offline.stdout == online.stdout
    assert len(stand_in.asked) == asked


# A hub that lies


SEND_HEADER = BaseHTTPRequestHandler.send_header


def serve(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, **lies: str) -> None:
    """Every header of the stand-in's answers can be replaced."""

    def send_header(self: BaseHTTPRequestHandler, keyword: str, value: str) -> None:
        SEND_HEADER(self, keyword, lies.get(keyword.replace("-", "_").lower(), value))

    monkeypatch.setattr(BaseHTTPRequestHandler, "send_header", send_header)


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


KEPT = {
    "a/b/cache/models--org--small/refs/main",
    f"a/b/cache/models--org--small/snapshots/{COMMIT}/config.json",
    f"a/b/cache/models--org--small/.no_exist/{COMMIT}/{QUANT}",
}


@pytest.mark.parametrize("etag", ["../../../../PWNED", "a/b", "", "..", "x" * 300])
def test_no_header_of_a_hub_names_a_file(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, etag: str
) -> None:
    serve(stand_in, monkeypatch, etag=etag)
    assert ask(stand_in, "org/small").num_layers == 4
    assert files_below(tmp_path) == KEPT


@pytest.mark.parametrize(
    "commit", ["../../x", "../" + "a" * 37, COMMIT.upper(), COMMIT + "0", "main", "0" * 39, " ", "." * 40]
)
def test_a_commit_is_a_commit(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, commit: str
) -> None:
    serve(stand_in, monkeypatch, x_repo_commit=commit)
    error = refused(stand_in, "org/small")
    assert (error.code, error.exit_code) == ("hub-unavailable", 3)
    assert files_below(tmp_path) == set()


def test_another_commit_than_the_one_asked_for(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(stand_in, monkeypatch, x_repo_commit="f" * 40)
    assert refused(stand_in, f"org/small@{COMMIT}").code == "hub-unavailable"


@pytest.mark.parametrize(
    "revision", ["../../x", "/etc/x", "a/../b", "a//b", "a/", ".x", "a\\b/..", "x" * 201]
)
def test_a_revision_is_no_way_out(stand_in: StandIn, revision: str) -> None:
    assert refused(stand_in, f"org/small@{revision}").code == "bad-model-id"


@pytest.mark.parametrize("text", ["../../x", "f" * 39, "", "a" * 300, "\0"])
def test_a_ref_that_is_no_commit_is_not_followed(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    ask(stand_in, "org/small")
    (tmp_path / "a" / "b" / "cache" / "models--org--small" / "refs" / "main").write_text(text)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert refused(stand_in, "org/small").code == "offline"


def test_the_disk_is_not_filled(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What comes is bounded, and what was bounded away is not kept."""
    stand_in.files[f"/org/small/resolve/main/{CONFIG}"] = b" " * (17 << 20)
    for length in ("10000000000", str(17 << 20)):
        serve(stand_in, monkeypatch, content_length=length)
        assert refused(stand_in, "org/small").code == "file-too-large"
    serve(stand_in, monkeypatch, content_length="500")  # states less than it sends
    assert refused(stand_in, "org/small").code == "bad-json"
    serve(stand_in, monkeypatch, content_length="1e9")  # states nothing that can be read
    assert refused(stand_in, "org/small").exit_code in (2, 3)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1000


def test_the_library_finds_what_is_kept(stand_in: StandIn, tmp_path: Path) -> None:
    library = pytest.importorskip("huggingface_hub", reason="the extra hf is not installed")
    stand_in.put("org/tagged", CONFIG, LLAMA, revision="v2%2Frc")
    ask(stand_in, "org/tagged@v2/rc")
    cache = os.environ["HF_HUB_CACHE"]
    for revision in ("v2/rc", COMMIT):
        found = library.hf_hub_download(
            "org/tagged", CONFIG, revision=revision, cache_dir=cache, local_files_only=True
        )
        assert json.loads(Path(found).read_bytes()) == LLAMA
    gone = library.try_to_load_from_cache("org/tagged", QUANT, revision=COMMIT, cache_dir=cache)
    assert gone is not None
    assert not isinstance(gone, str)


def test_a_cache_that_cannot_be_written(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/dev/null/cache")
    assert ask(stand_in, "org/small").warnings == ()


def test_the_token_stays_with_a_repository_that_moved(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    ask(stand_in, "org/moved")
    assert set(stand_in.tokens) == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("endpoint", ["file:///etc", "nothing", "http://", "http://a b", "http://x:y", "//h"])
def test_an_endpoint_that_is_none(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(KvplanError) as caught:
        open_hub_model("org/small")
    assert (caught.value.code, caught.value.exit_code) == ("bad-url", 2)


def test_a_token_that_no_header_can_hold(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a\x1bé")
    error = refused(stand_in, "org/small")
    assert error.code == "bad-token"
    assert "\x1b" not in error.format()
