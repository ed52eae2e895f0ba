"""The traces of recorded scenarios as rows {at_ns, input, output, ids, priority}, in order of arrival."""

from __future__ import annotations

import csv
import json
import random
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows_of(folder: Path, said: dict[str, Any]) -> list[Row]:
    if said["kind"] == "explicit":
        rows: list[Row] = said["rows"]
        return rows
    rows = {"mooncake": _mooncake, "azure": _azure, "generated": _generated}[said["kind"]](folder, said)
    rows.sort(key=lambda row: row["at_ns"])
    rows = rows[said.get("skip", 0) :]
    rows = rows[: said.get("count", len(rows))]
    first = rows[0]["at_ns"]
    times, over = said.get("time_scale", (1, 1))
    for place, row in enumerate(rows):
        row["at_ns"] = (row["at_ns"] - first) * times // over
        row["priority"] = place % said["priorities"] if said.get("priorities") else 0
    return rows


def _mooncake(folder: Path, said: dict[str, Any]) -> list[Row]:
    with (folder / said["file"]).open() as stream:
        lines = [json.loads(line) for line in stream]
    return [
        {
            "at_ns": int(line["timestamp"]) * 1_000_000,
            "input": line["input_length"],
            "output": max(1, line["output_length"]),
            "ids": line["hash_ids"],
        }
        for line in lines
    ]


def _azure(folder: Path, said: dict[str, Any]) -> list[Row]:
    rows = []
    with (folder / said["file"]).open() as stream:
        for line in csv.DictReader(stream):
            stamp = line["TIMESTAMP"]
            whole = datetime.fromisoformat(stamp[:19]) - datetime(2023, 1, 1)
            part = int(stamp[20:].ljust(9, "0")[:9] or 0)
            rows.append({
                "at_ns": (whole.days * 86_400 + whole.seconds) * 10**9 + part,
                "input": int(line["ContextTokens"]),
                "output": max(1, int(line["GeneratedTokens"])),
                "ids": [],
            })  # fmt: skip
    return rows


def _generated(folder: Path, said: dict[str, Any]) -> list[Row]:
    """Sessions over shared system prompts: a turn's prompt is all of the turn before with its answer, and
    more."""
    chance, size, fresh = random.Random(said["seed"]), said["block_tokens"], count(10**6)
    systems = [
        [next(fresh) for _ in range(chance.randint(*said["system_blocks"]))] for _ in range(said["systems"])
    ]
    rows = []
    for _ in range(said["sessions"]):
        at = int(chance.random() * said["seconds"] * 1e9)
        ids = list(chance.choice(systems))
        for _ in range(chance.randint(*said["turns"])):
            ids += [next(fresh) for _ in range(chance.randint(*said["user_blocks"]))]
            prompt = len(ids) * size - chance.randrange(size)
            answer = chance.randint(*said["output"])
            whole = prompt + answer
            ids = ids + [next(fresh) for _ in range(-(-whole // size) - len(ids))]
            rows.append({"at_ns": at, "input": prompt, "output": answer, "ids": ids})
            ids = ids[: whole // size]
            at += int(chance.expovariate(1 / said["think"]) * 1e9)
    return rows
