"""A child that speaks the protocol and has no engine: what it says stands in a JSON file.

    python fake_engine.py SAYS.json [-m MODULE … --port PORT]      the engine's process, or its server

SAYS.json: {"hello": …, "measured": [[of, values] …], "requests": …, and how it misbehaves}. ``in`` the stage
of one of these: "raise" (type, message), "signal", "exit", "sleep", "print".
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from kvplan.proof.validate.installed.speaker import Speaker

STAGE_OF = {
    "settings": "configure",
    "available": "determine_available_memory",
    "cache": "get_kv_cache_configs",
    "workers": "read",
}


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


def main(path: str) -> int:
    says = json.loads(Path(path).read_text(encoding="utf-8"))
    speaker = Speaker()
    try:
        _stage(speaker, says, "import")
        speaker.say("hello", **says["hello"])
        asked = json.loads(sys.stdin.readline() or "null")
        if "asked" in says:
            Path(says["asked"]).write_text(json.dumps(asked), encoding="utf-8")
        _stage(speaker, says, "load_model")
        for of, values in says["measured"]:
            _stage(speaker, says, STAGE_OF[of])
            speaker.say("measured", of=of, values=values)
        _stage(speaker, says, "admit")
        shape = speaker.answered()
        if shape is not None:
            requests = {"tokens": shape["tokens"], **says["requests"]}
            speaker.say("measured", of="requests", values=requests)
            if shape.get("running") is not None:
                running = says.get("running", shape["running"])
                speaker.say("measured", of="running", values={"running": running})
        speaker.say("done")
    except Exception as error:
        speaker.failed(error)
        return 1
    return 0


SERVER_LOG = (
    "(EngineCore pid=1) INFO 11-23 05:12:00 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config:"
    " model='m', speculative_config=None, dtype=torch.bfloat16, max_seq_len=2048, tensor_parallel_size=1,"
    " pipeline_parallel_size=1, kv_cache_dtype=auto, device_config=cpu, enable_prefix_caching=True\n"
    "(EngineCore pid=1) INFO 11-23 05:12:05 [kv_cache_utils.py:2327] CPU KV cache size: {tokens} tokens,"
    " Maximum concurrency for 2,048 tokens per request: {times}x\n"
)


class Serving(BaseHTTPRequestHandler):
    """A server's health, metrics and answers."""

    says: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[list[list[int]]] = []

    def do_GET(self) -> None:
        preempted = self.says.get("preemptions", 0) if self.asked else 0
        metrics = (
            'vllm:cache_config_info{block_size="128",num_gpu_blocks="256"} 1\n'
            f"vllm:num_requests_running {len(self.asked)}\nvllm:num_requests_waiting 0\n"
            f"vllm:kv_cache_usage_perc 0.5\nvllm:num_preemptions_total {preempted}\n"
        )
        self._send(metrics if self.path == "/metrics" else "", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body["prompt"])
        if "hold" in self.says:  # a request that is answered when the server has been killed
            Path(self.says["hold"]).write_text(str(os.getpid()), encoding="utf-8")
            time.sleep(600)
        if len(self.asked) == self.says.get("refuse"):
            self.send_error(400, "too long")
            return
        answer = body["max_tokens"] - self.says.get("short", 0)
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": answer}
        self._send(json.dumps({"usage": usage}), "application/json")

    def _send(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def serve(says: dict[str, Any], words: list[str]) -> int:
    """The engine's server, until it is asked to stop."""
    if "words" in says:
        Path(says["words"]).write_text(json.dumps(words), encoding="utf-8")
    if says.get("ends"):
        print("ValueError: no such option", flush=True)
        return 1
    log = {"tokens": "32,768", "times": "16.00", **says.get("log", {})}
    print(SERVER_LOG.format(**log), flush=True)
    Serving.says = says
    if says.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    port = int(words[words.index("--port") + 1])
    ThreadingHTTPServer.request_queue_size = 128  # all requests come at once
    ThreadingHTTPServer(("127.0.0.1", port), Serving).serve_forever()
    return 0


def _stage(speaker: Speaker, says: dict[str, Any], stage: str) -> None:
    speaker.begin(stage)
    if says.get("in") != stage:
        return
    if "print" in says:
        print(says["print"], flush=True)
        print("and on the error output", file=sys.stderr, flush=True)
    if "child" in says:  # a process that would outlive it
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(says["child"]).write_text(str(child.pid), encoding="utf-8")
    if "raise" in says:
        kind, message = says["raise"]
        raise {"OutOfMemoryError": OutOfMemoryError, "ValueError": ValueError}[kind](message)
    if "signal" in says:
        os.kill(os.getpid(), says["signal"])
    if "exit" in says:
        os._exit(says["exit"])
    if "sleep" in says:
        time.sleep(says["sleep"])


def interpreter(folder: Path, says: dict[str, Any]) -> Path:
    """An executable that takes the place of an interpreter with an engine: it says what is in the file."""
    told = folder / "says.json"
    told.write_text(json.dumps(says), encoding="utf-8")
    path = folder / "python"
    root = Path(__file__).resolve().parents[2]
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} {Path(__file__).resolve()} {told} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


if __name__ == "__main__":
    if "-m" in sys.argv:
        given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        raise SystemExit(serve(given, sys.argv[2:]))
    raise SystemExit(main(sys.argv[1]))
