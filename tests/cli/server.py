"""A stand-in for a running engine: pages over HTTP on the loopback address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Pages = Callable[[str], str | None]


@contextmanager
def serving(pages: Pages) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """(address, headers of every request): pages maps a path to a body, None is a 404."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            body = pages(self.path)
            self.send_response(404 if body is None else 200)
            data = (body or "").encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def vllm_pages(
    blocks: int, tokens: int, concurrency: float, *, model: str, length: int, version: str = "0.32.0"
) -> Pages:
    """vLLM's metrics, model list and version."""
    labels = (
        f'block_size="16",cache_dtype="auto",engine="0",enable_prefix_caching="True",num_gpu_blocks="{blocks}",'
        f'kv_cache_size_tokens="{tokens}",kv_cache_max_concurrency="{concurrency}",model_name="{model}",'
        'user_specified_block_size="False"'
    )
    pages = {
        "/metrics": f"vllm:cache_config_info{{{labels}}} 1.0\n",
        "/v1/models": f'{{"data": [{{"id": "{model}", "root": "{model}", "max_model_len": {length}}}]}}',
        "/version": f'{{"version": "{version}"}}',
    }
    return pages.get


def load_page(usage: float, queries: int, hits: int, preemptions: int, running: int, waiting: int) -> str:
    """vLLM's metrics of one moment."""
    gauges = {
        "kv_cache_usage_perc": usage,
        "prefix_cache_queries_total": queries,
        "prefix_cache_hits_total": hits,
        "num_preemptions_total": preemptions,
        "num_requests_running": running,
        "num_requests_waiting": waiting,
    }
    return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in gauges.items())
