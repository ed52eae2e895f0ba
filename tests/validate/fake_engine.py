"""A child that speaks the protocol and has no engine: what it says stands in a JSON file.

    python fake_engine.py SAYS.json

SAYS.json: {"hello": …, "measured": [[of, values] …], "requests": …, and how it misbehaves}. ``in`` the stage
of one of these: "raise" (type, message), "signal", "exit", "sleep", "print".
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kvplan.validate.installed.speaker import Speaker

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
        f"#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} {Path(__file__).resolve()} {told}\n",
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
