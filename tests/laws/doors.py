"""Every way of asking kvplan one question, each as the figures that it gives.

A door takes the question and the answer of the library to it, and returns figures under the same names; None
where it cannot be asked that question.
"""

from __future__ import annotations

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import kvplan
from kvplan.cli import agents, web
from kvplan.cli.run import run
from kvplan.results import SizeResult, Verdict
from tests.laws.questions import Asked

Figures = dict[str, Any]


class Ran(NamedTuple):
    """One command line run inside this process."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON that it wrote."""
        assert self.out.startswith("{"), f"rc {self.code}: {self.out}{self.err}"
        found = json.loads(self.out)
        assert "error" not in found, found["error"]
        return found


def ran(*words: str) -> Ran:
    """What ``kvplan WORDS`` writes and returns."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True) for _ in "oe"
    )
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(words))
    texts = []
    for stream in (out, err):
        raw = stream.buffer
        assert isinstance(raw, io.BytesIO)
        texts.append(raw.getvalue().decode())
    return Ran(code, *texts)


def size_of(asked: Asked) -> SizeResult:
    """The library's answer. Raises KvplanError."""
    return kvplan.size(asked.model, engine=asked.engine, **asked.options)


def figures(data: Any) -> Figures:
    """The figures of an answer as JSON."""
    capacity, pool, budget = data["capacity"] or {}, data["pool"] or {}, data["budget"] or {}
    per_gpu, refusal = data["per_gpu"] or {}, data["refusal"] or {}
    return {
        "verdict": data["verdict"],
        "likely": capacity.get("requests"),
        "safe": capacity.get("safe_requests"),
        "each": capacity.get("requests_per_pool"),
        "one request": per_gpu.get("kv_bytes_per_request"),
        "all requests": per_gpu.get("kv_bytes"),
        "likely pool": budget.get("kv_pool_bytes"),
        "safe pool": budget.get("kv_pool_low_bytes"),
        "blocks": pool.get("num_blocks"),
        "refusal": refusal.get("code"),
        "gpus": data["deployment"]["gpus"],
        "idle": data["deployment"]["idle_gpus"],
    }


def code_of(told: SizeResult) -> int:
    """The exit code that belongs to the answer."""
    return {"yes": 0, "likely": 0, "unlikely": 1, "no": 1, None: 2}[told.verdict and told.verdict.value]


def by_command(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """``kvplan size … --json``: the library's answer to the letter."""
    found = ran("size", *asked.words, "--json")
    assert found.data == json.loads(json.dumps(told.model_dump())), "not the library's answer"
    return {**figures(found.data), "code": found.code}


def by_agent(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """The tool of an agent."""
    found = agents.answered(
        "size",
        {"model": asked.model, "options": {"engine": asked.engine, **asked.options}, "detail": "full"},
    )
    return {**figures(found.data), "code": found.code}


def fields_of(asked: Asked) -> dict[str, str]:
    """The question as the page's form."""
    known = {name: str(value) for name, value in asked.options.items() if name in web.FIELDS}
    more = asked._replace(options={n: v for n, v in asked.options.items() if n not in web.FIELDS})
    return {"model": asked.model, "engine": asked.engine, **known, "more": shlex.join(more.flags()[2:])}


def on_the_page(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """The page's answer."""
    found = json.loads(web.answered("answer", json.dumps([fields_of(asked)])))
    assert "error" not in found, found
    said = found["figures"]
    held = {True: 0, False: 1, None: 2}[found["ok"]]
    counted = told.capacity is not None or told.refusal is not None
    word = {"Yes": "yes", "Likely": "likely", "Unlikely": "unlikely", "No": "no"}.get(
        found["verdict"].partition(",")[0]
    )
    return {
        "code": held, "one request": said["kv_bytes_per_request"], "likely pool": said["kv_pool_bytes"],
        "safe pool": said["kv_pool_low_bytes"], "blocks": said["num_blocks"], "likely": said["max_requests"],
        "verdict": word if counted else None,
    }  # fmt: skip


def by_screen(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """The word with which the screen begins."""
    found = ran("size", *asked.words)
    first = found.out.split(None, 1)[0]
    word = {"Yes:": "yes", "Likely:": "likely", "Unlikely:": "unlikely", "No:": "no"}.get(
        f"{first.rstrip(':,')}:"
    )
    return {"verdict": word, "code": found.code}


def in_a_table(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """The row of a table of two machines."""
    other = "h200" if "h200" not in asked.options["gpu"] else "h100"
    count = max(1, told.deployment.gpus if told.deployment else 1)
    found = ran("size", *asked.asking(gpu=f"{asked.options['gpu']},{count}x{other}").words, "--json")
    row = found.data["machines"][0]
    if not row["requests"]:
        assert told.verdict in (None, Verdict.NO), row["why_not"]
        return None
    cell = row["requests"][0]
    return {
        "likely": cell["likely"], "safe": cell["safe"], "one request": cell["kv_bytes_per_request"],
        "gpus": row["gpus"],
    }  # fmt: skip


def among_lengths(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """The first of two lengths for the same server."""
    tokens = asked.options["tokens"]
    half = tokens // 2
    shorter = half if half >= 1000 else min(half, 99)  # 512,256 is one number
    too_long = told.refusal is not None and told.refusal.code == "request-too-long"
    if not shorter or (too_long and "max_model_len" not in asked.options):
        return None  # the server of both lengths is started for the one that the model takes
    found = ran("size", *asked.asking(tokens=f"{tokens},{shorter}").words, "--json")
    return figures(found.data["results"][0])


def beside_another_number(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """The first row of two numbers of requests."""
    found = ran("size", *asked.asking(requests=f"{asked.options['requests']},1").words, "--json")
    return figures(found.data["results"][0])


def on_the_ladder(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """The rung of ``--show lengths`` for the length."""
    found = ran("size", *asked.asking(requests=None).words, "--show", "lengths", "--json")
    if told.deployment is None or (asked.engine == "llamacpp" and told.deployment.requests > 1):
        return None  # its context is as long as its requests together, and a ladder asks for one
    if told.verdict is None:
        return {"code": found.code}
    rungs = [rung for rung in found.data["rungs"] if rung["tokens"] == told.request.tokens]
    if not rungs:
        return None if told.refusal is not None else {"likely": "no rung"}
    (rung,) = rungs
    return {"likely": rung["likely"], "safe": rung["safe"], "one request": rung["kv_bytes_per_request"]}


def as_a_mix(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """A mix of one part: ``-t 8192:32``."""
    mix = f"{asked.options['tokens']}:{asked.options['requests']}"
    found = ran("size", *asked.asking(tokens=mix, requests=None).words, "--json")
    if told.verdict is None:
        return {"code": found.code}
    if told.refusal is not None and told.capacity is None:
        return {"code": found.code}
    likely, safe = found.data["likely"], found.data["safe"]
    assert safe["fits"] is (told.verdict is Verdict.YES), "the safe pool"
    return {
        "likely": likely["most_requests"], "safe": safe["most_requests"],
        "one request": figures(found.data["result"])["one request"],
        "code": 0 if likely["fits"] else 1,
    }  # fmt: skip


def by_explain(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """The bytes of ``kvplan explain --json``."""
    found = ran("explain", *asked.words, "--json")
    per_gpu = found.data["per_gpu"] or {}
    return {"one request": per_gpu.get("kv_bytes_per_request"), "all requests": per_gpu.get("kv_bytes")}


def plan_file(asked: Asked, folder: Path) -> Path:
    """The plan file that the page writes for the deployment."""
    made = json.loads(web.answered("plan", json.dumps([fields_of(asked)])))
    assert "error" not in made, made
    path = folder / "plan.yaml"
    path.write_text(made["plan"], encoding="utf-8")
    return path


def as_a_plan(asked: Asked, told: SizeResult, folder: Path) -> Figures:
    """``kvplan size PLAN`` of the file that the page writes."""
    found = ran("size", str(plan_file(asked, folder)), "--json")
    return {**figures(found.data), "code": found.code}


def by_check(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """``kvplan check PLAN`` of the file that the page writes."""
    found = ran("check", str(plan_file(asked, folder)), "--json")
    if found.code == 2 and told.budget is None:
        return None  # it judges a pool first, and none is known
    (plan,) = found.data["plans"]
    facts = (
        {fact["name"]: fact["value"] for fact in plan["facts"]}
        if isinstance(plan["facts"], list)
        else plan["facts"]
    )
    codes = [one["code"] for one in plan["findings"] if one["severity"] == "error"]
    said = {
        "likely": facts.get("max_requests"), "safe": facts.get("safe_max_requests"),
        "one request": facts.get("kv_bytes_per_request"), "likely pool": facts.get("kv_pool_bytes"),
        "safe pool": facts.get("kv_pool_low_bytes"), "blocks": facts.get("num_blocks"),
        "code": found.code,
    }  # fmt: skip
    if told.verdict is None:
        return {"code": found.code}
    if told.refusal is not None:
        assert facts.get("max_requests") is None
        said = {name: said[name] for name in ("code",)}
    if "gpus-left-over" in codes:
        del said["code"]
    return said
