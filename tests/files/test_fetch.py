"""Asking a server: one host, in time, within limits, and no credentials but those given."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub.fetch import MAX_BODY_BYTES, get, parse_endpoint
from kvplan.files.servers.metrics import observe, sample

Page = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the server's table of pages and notes the requests."""

    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        page = self.server.pages.get(self.path)
        with contextlib.suppress(OSError):
            if page is None:
                self.send(404, b"")
            elif callable(page):
                page(self)
            else:
                self.send(200, page)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, bytes | Page] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield running
        running.shutdown()


def refused(url: str, *, timeout: float = 5.0) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        sample(url, timeout=timeout)
    return caught.value


METRICS = (
    b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="1600"} 1\n'
    b"vllm:num_requests_running 2\n"
)


def test_a_vllm_server(server: Server) -> None:
    server.pages["/metrics"] = METRICS
    server.pages["/v1/models"] = json.dumps(
        {"data": [{"id": "x-lora"}, {"id": "x", "root": "org/x", "max_model_len": 800}]}
    ).encode()
    server.pages["/version"] = b'{"version": "0.32.0"}'
    for path in ("", "/", "/metrics", "/v1", "/v1/"):
        observation = observe(server.url + path)
        assert observation.engine_version == "0.32.0"
        assert observation.setting("model") == "org/x"
        assert observation.setting("max_model_len") == 800
        length = observation.count("max_concurrency_tokens")
        assert length is not None
        assert length.value == 800
    assert sample(server.url).running == 2
    assert all("Authorization" not in headers for _, headers in server.seen)


def test_a_vllm_server_that_wants_a_key(server: Server) -> None:
    server.pages["/metrics"] = METRICS
    server.pages["/v1/models"] = lambda handler: handler.send(401, b"")
    observation = observe(server.url)
    assert observation.setting("model") is None
    assert any("API key" in note.text for note in observation.notes)


def test_an_sglang_server_without_metrics(server: Server) -> None:
    server.pages["/get_server_info"] = (
        b'{"model_path": "m", "internal_states": [{"memory_usage": {"token_capacity": 9}}]}'
    )
    observation = observe(server.url)
    assert (observation.engine, observation.setting("model")) == ("sglang", "m")
    error = refused(server.url)
    assert error.code == "not-an-engine"
    assert "--enable-metrics" in " ".join(error.help)


def test_an_sglang_server_with_metrics_only(server: Server) -> None:
    server.pages["/metrics"] = b"sglang:max_total_num_tokens 77\n"
    found = observe(server.url).get("kv_tokens")
    assert found is not None
    assert found.value == 77


def test_no_engine_at_all(server: Server) -> None:
    server.pages["/metrics"] = b"go_threads 7\n"
    with pytest.raises(KvplanError) as caught:
        observe(server.url)
    assert (caught.value.code, caught.value.exit_code) == ("not-an-engine", 2)


def test_a_redirect_on_the_same_host_is_followed(server: Server) -> None:
    server.pages["/metrics"] = lambda handler: handler.send(307, b"", Location="/metrics/")
    server.pages["/metrics/"] = METRICS
    assert sample(server.url).running == 2


@pytest.mark.parametrize(
    "location",
    [
        "http://localhost:{port}/metrics",
        "http://127.0.0.1:1/metrics",
        "//192.0.2.1/x",
        "https://127.0.0.1:{port}/x",
        "file:///etc/hosts",
        "http://[bad",
    ],
)
def test_a_redirect_to_another_host_is_refused(server: Server, location: str) -> None:
    target = location.format(port=server.server_address[1])
    server.pages["/metrics"] = lambda handler: handler.send(302, b"", Location=target)
    error = refused(server.url.replace("//", "//user:secret@"))
    assert isinstance(error, CannotRunHere)
    assert error.code in ("redirect-refused", "unreachable")
    assert "secret" not in error.format()
    assert len(server.seen) == 1


def test_redirects_without_end(server: Server) -> None:
    server.pages["/metrics"] = lambda handler: handler.send(302, b"", Location="/metrics")
    assert refused(server.url).code == "redirect-refused"
    assert len(server.seen) == 4


def test_credentials_are_sent_where_given_and_only_there(server: Server) -> None:
    server.pages["/metrics"] = METRICS
    sample(server.url.replace("//", "//me:p%40ss@"))
    assert server.seen[-1][1]["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    sample(server.url, token="t0ken")
    assert server.seen[-1][1]["Authorization"] == "Bearer t0ken"
    sample(server.url)
    assert "Authorization" not in server.seen[-1][1]
    assert "p%40ss" not in repr(parse_endpoint("http://me:p%40ss@h"))
    assert "p@ss" not in repr(parse_endpoint("http://me:p%40ss@h"))


def test_the_environment_has_no_say(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.pages["/metrics"] = METRICS
    assert sample(server.url).running == 2


def slow_body(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b"# still here\n")
        time.sleep(0.05)


def slow_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for count in range(90):
        handler.wfile.write(b"X-%d: y\r\n" % count)
        time.sleep(0.1)


@pytest.mark.parametrize(
    "page", [slow_body, slow_headers, lambda handler: time.sleep(5)], ids=["body", "headers", "all"]
)
def test_a_slow_server_times_out(server: Server, page: Page) -> None:
    server.pages["/metrics"] = page
    error = refused(server.url, timeout=0.6)
    assert (error.code, error.exit_code) == ("unreachable", 3)
    assert "0.6 seconds" in error.message


def test_nobody_there() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        error = refused(f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert (error.code, error.exit_code) == ("unreachable", 3)


def test_a_server_that_speaks_something_else() -> None:
    def speak(listening: socket.socket) -> None:
        client, _ = listening.accept()
        client.sendall(b"SSH-2.0-nothing\r\n")
        client.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=speak, args=(listening,), daemon=True).start()
        assert refused(f"http://127.0.0.1:{listening.getsockname()[1]}").code == "unreachable"


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"vllm:x 1\n" * 10_000)


def test_a_huge_answer_is_cut_off(server: Server) -> None:
    server.pages["/metrics"] = endless
    error = refused(server.url, timeout=20)
    assert (error.code, error.exit_code) == ("answer-too-large", 3)
    server.pages["/metrics"] = b"#" * (MAX_BODY_BYTES + 1)
    assert refused(server.url, timeout=20).code == "answer-too-large"
    assert len(get(parse_endpoint(server.url), "/none").body) == 0


def test_a_cut_short_or_packed_answer(server: Server) -> None:
    server.pages["/metrics"] = lambda handler: handler.send(200, b"x", Content_Length="10")
    assert refused(server.url, timeout=1).code == "unreachable"
    server.pages["/metrics"] = lambda handler: handler.send(200, b"x", Content_Encoding="gzip")
    assert refused(server.url).code == "unreachable"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://h/",
        "file:///etc/hosts",
        "http://",
        "http://h:99999",
        "http://h:0",
        "http://h:x",
        "http://a b",
        "http://h\n",
        "http://[::1",
        "http://exämple",
        "unix:///x",
    ],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(KvplanError) as caught:
        parse_endpoint(url)
    assert (caught.value.code, caught.value.exit_code) == ("bad-url", 2)


def test_bad_urls_do_not_repeat_a_password() -> None:
    with pytest.raises(KvplanError) as caught:
        parse_endpoint("http://me:secret@h:99999")
    assert "secret" not in caught.value.format()
    with pytest.raises(KvplanError, match="header"):
        parse_endpoint("http://h", token="a\r\nX: y")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h", "http://h:80"),
        ("HTTPS://H.example/base/metrics", "https://h.example:443/base"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
    ],
)
def test_good_urls(url: str, shown: str) -> None:
    assert parse_endpoint(url).shown == shown
