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
import threading
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
    "others": "read",
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
    """A server's health, metrics and answers: ``slots`` requests run at a time, the others wait. Those that
    run end together, when the metrics were looked at ``looks`` times after the last request came."""

    says: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[list[list[int]]] = []
    sent_to: ClassVar[list[dict[str, str]]] = []
    """headers of the requests"""
    turn: ClassVar[threading.Condition] = threading.Condition()
    running: ClassVar[int] = 0
    waiting: ClassVar[int] = 0
    looked: ClassVar[int] = 0

    @classmethod
    def begin(cls, says: dict[str, Any]) -> None:
        cls.says, cls.running, cls.waiting, cls.looked = says, 0, 0, 0
        cls.asked.clear()
        cls.sent_to.clear()

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(json.dumps({"data": [{"id": "m", "root": "m", **self.says.get("list", {})}]}), "")
        elif self.path == "/version":
            self._send(json.dumps({"version": self.says.get("version", "0.32.0")}), "")
        elif self.path == "/metrics":
            self._send(self._metrics(), "text/plain")
        else:
            self._send("", "text/plain", 200 if self.path == "/health" else 404)

    def _metrics(self) -> str:
        says, cls = self.says, type(self)
        labels = {"block_size": "128", "num_gpu_blocks": "256", **says.get("cache", {})}
        shown = ",".join(f'{name}="{value}"' for name, value in labels.items())
        with self.turn:
            cls.looked += 1
            running, waiting = cls.running + says.get("others", 0), cls.waiting
            self.turn.notify_all()
        if says.get("blind"):
            running = min(running, says["blind"])
        return (
            f"vllm:cache_config_info{{{shown}}} 1\n"
            f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
            f"vllm:kv_cache_usage_perc 0.5\n"
            f"vllm:num_preemptions_total {says.get('preemptions', 0) if self.asked else 0}\n"
        )

    def do_POST(self) -> None:
        if "away" in self.says:  # another host is named
            self.send_response(307)
            self.send_header("Location", self.says["away"])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body["prompt"])
        self.sent_to.append(dict(self.headers))
        if "hold" in self.says:  # a request that is answered when the server has been killed
            with self.turn:  # all requests come at once, and one of them writes
                if not Path(self.says["hold"]).exists():
                    _say_alive(self.says["hold"], os.getpid())
            time.sleep(600)
        if len(self.asked) == self.says.get("refuse"):
            self.send_error(400, "too long")
            return
        self._run()
        answer = body["max_tokens"] - self.says.get("short", 0)
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": answer}
        self._send(json.dumps({"usage": usage}), "application/json")

    def _run(self) -> None:
        cls, slots = type(self), self.says.get("slots", 31)
        with self.turn:
            cls.looked, cls.waiting = 0, cls.waiting + 1
            self.turn.wait_for(lambda: cls.running < slots, 30)
            cls.waiting, cls.running = cls.waiting - 1, cls.running + 1
            self.turn.wait_for(lambda: cls.looked > self.says.get("looks", 6), 30)
            cls.running -= 1
            self.turn.notify_all()

    def log_message(self, *_: object) -> None:
        return

    def _send(self, text: str, kind: str, status: int = 200) -> None:
        self.send_response(status)
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
    Serving.begin(says)
    if says.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    port = int(words[words.index("--port") + 1])
    ThreadingHTTPServer.request_queue_size = 128  # all requests come at once
    ThreadingHTTPServer(("127.0.0.1", port), Serving).serve_forever()
    return 0


def _say_alive(path: str, pid: int) -> None:
    """Whole or not at all: whoever reads it may end this process at once."""
    Path(f"{path}.part").write_text(str(pid), encoding="utf-8")
    Path(f"{path}.part").replace(path)


def _stage(speaker: Speaker, says: dict[str, Any], stage: str) -> None:
    speaker.begin(stage)
    if says.get("in") != stage:
        return
    if "print" in says:
        print(says["print"], flush=True)
        print("and on the error output", file=sys.stderr, flush=True)
    if "child" in says:  # a process that would outlive it
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        _say_alive(says["child"], child.pid)
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
