"""Doors that read other people's files or answer others than a terminal: launch files, the page, agents,
reports, receipts; secrets planted in all of them; and the same question asked at two doors."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from kvplan.cli.agents import TOOLS
from kvplan.cli.agents import answered as agent_answered
from kvplan.cli.web import answered as page_answered
from kvplan.plans.receipt import digest_of
from tests.fuzz.mutate import bent, bent_bytes, bent_lines, value
from tests.fuzz.watch import FaultError, asked, command

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "tests" / "launch"
KEYS = "name image args command env model replicas resources metadata spec containers value data on 1".split()
PLAN_KEYS = "model engine gpu gpus serve require workload evidence extends environments name tokens x".split()


@lru_cache(maxsize=1)
def launch_texts() -> list[tuple[str, str]]:
    """Names and texts of launch files of every kind, the small ones."""
    paths = [*sorted((LAUNCH / "kinds").rglob("*.yaml")), *sorted((LAUNCH / "files").glob("*/*"))]
    found = [(one.name, one.read_bytes()) for one in paths if one.is_file() and one.stat().st_size < 8000]
    return [(name, data.decode("utf-8", "replace")) for name, data in found]


@lru_cache(maxsize=1)
def plan_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples" / "plans").glob("*.yaml"))]


@lru_cache(maxsize=1)
def receipts() -> list[dict[str, Any]]:
    folder = ROOT / "examples" / "evidence"
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def launch(random: Random, folder: Path) -> None:
    """A launch file with other lines, through the commands that read one."""
    name, text = random.choice(launch_texts())
    path = folder / name
    text = bent_lines(random, text, KEYS)
    path.write_bytes(bent_bytes(random, text.encode("utf-8", "replace")) if random.random() < 0.2 else
                     text.encode("utf-8", "replace"))  # fmt: skip
    word = random.choice(("import", "import", "size", "check"))
    form = ["--format", random.choice(("json", "github", "sarif", "markdown"))] if word == "check" else []
    command([word, str(path), *form, *(["-g", "h100"] if random.random() < 0.5 else [])])
    path.unlink()


FIELDS = ("model", "gpu", "engine", "tokens", "requests", "kv_cache_dtype", "tp", "max_model_len", "x")
SAID = (
    "llama-3.1-8b", "h100", "vllm", "8k", "64", "fp8", "", "-1", "1e9", "x" * 300, "\x1b[2J", "a\0b",
    "hf:a/b", "../..", "/etc/passwd", "é", "{{}}", "<script>", "@everyone", "9" * 40,
)  # fmt: skip


def page(random: Random) -> None:
    """Questions of the page in a browser: JSON in, JSON out, no bug named in it."""
    what = random.choice(("answer", "answer", "plan", "read", "nothing"))
    fields: Any = {random.choice(FIELDS): random.choice(SAID) for _ in range(random.randrange(4))}
    if random.random() < 0.6:
        fields |= {"model": "llama-3.2-1b"}
    if what == "read":
        text = random.choice(plan_texts()) if random.random() < 0.5 else random.choice(launch_texts())[1]
        fields = bent_lines(random, text, KEYS)
    given = json.dumps([fields if random.random() < 0.9 else value(random)])
    found = json.loads(page_answered(what, given))
    error = found.get("error") if isinstance(found, dict) else None
    if (
        isinstance(error, dict)
        and error["code"] == "bug"
        and what != "nothing"
        and fields in json.loads(given)
    ):
        raise FaultError(error["message"])


def agents(random: Random) -> None:
    """A tool's call with arguments of any type."""
    tool = random.choice(list(TOOLS))
    given = {random.choice([*FIELDS, "plan", "text", "log"]): random.choice((*SAID, value(random)))
             for _ in range(random.randrange(5))}  # fmt: skip
    if random.random() < 0.6:
        given["model"] = "llama-3.2-1b"
    name = tool if isinstance(tool, str) else tool.name
    found = asked(lambda: agent_answered(name, given))
    if found is not None:
        json.dumps(found.data, allow_nan=False)


def report(random: Random, folder: Path) -> None:
    """Reports and exports of a plan with other lines: no markup and no mention out of its words."""
    text = bent_lines(random, random.choice(plan_texts()), PLAN_KEYS)
    if random.random() < 0.4:
        text = text.replace(
            "kvplan: plan/v1", f"kvplan: plan/v1\nname: {json.dumps(random.choice(MENTIONS))}"
        )
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    to = random.choice(("html", "markdown", "markdown", "compose", "kubernetes", "prometheus", "grafana"))
    _, said = command(["export", str(path), "--to", to])
    if to == "markdown":
        mentioned(said)


MENTIONS = ("@everyone", "<b>x", "a|b", "`@x`", "x](http://a)", "@a\\|@b", "@octo-cat says")


def mentioned(text: str) -> None:
    """Raises FaultError for a name that a host would call by: @name outside of code spans and fences."""
    import re
    from html import unescape

    bare = re.sub(r"(`{3,})[a-z]*\n.*?\n\1", "", text, flags=re.DOTALL)
    bare = re.sub(r"<code>.*?</code>", "", bare, flags=re.DOTALL)
    bare = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", bare)
    found = re.search(r"(?<![\w@/])@[A-Za-z0-9][\w-]*", unescape(bare))
    if found:
        raise FaultError(f"{found[0]} is mentioned")


def proofs(random: Random, folder: Path) -> None:
    """Receipts bent, with their digest and with a new one: read or refused."""
    made = bent(random, random.choice(receipts()), receipts())
    if random.random() < 0.5:
        try:
            made["digest"] = digest_of(made)
        except (TypeError, ValueError):
            return
    path = folder / "receipt.json"
    data = json.dumps(made).encode()
    path.write_bytes(bent_bytes(random, data) if random.random() < 0.1 else data)
    command(["list", "receipts", str(path), *(["--json"] if random.random() < 0.5 else [])])
    text = random.choice(plan_texts())
    if random.random() < 0.2 and "evidence: " in text:
        plan = folder / "plan.yaml"
        plan.write_text(text[: text.index("evidence: ")] + "evidence: {path: receipt.json, max_age: 36500d}")
        command(["check", str(plan)])


_SECRET_LINES = (
    "{pad}command: vllm serve Qwen/Qwen3-8B --api-key {token} {{", "{pad}- --api-key\n{pad}- {token}: {{",
    "{pad}HF_TOKEN: {token} [", "{pad}- name: HF_TOKEN\n{pad}  value: {token} {{", "export HF_TOKEN={token}",
    "{pad}api_key: \"{token}", "vllm serve Qwen/Qwen3-8B --api-key={token} --no-such-flag 3",
    "{pad}env: [{{name: OPENAI_API_KEY, value: {token}}}", "ARG DB_PASSWORD={token}",
    "{pad}hf_token: {token}",
)  # fmt: skip


def secrets(random: Random, folder: Path) -> None:
    """A token in a line of any file, and none in anything that is written."""
    token = "".join(random.choice("abcdefghkmnpqrstuvwxyz23456789") for _ in range(20))
    name, text = random.choice([*launch_texts(), *(("plan.yaml", one) for one in plan_texts()[:8])])
    lines = text.split("\n")
    planted = random.choice(_SECRET_LINES).format(pad=" " * random.choice((0, 2, 4, 8)), token=token)
    lines[(at := random.randrange(len(lines))) : at] = planted.split("\n")
    path = folder / name
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    word = random.choice(("import", "size", "check", "compare --log"))
    form = ["--format", random.choice(("json", "github", "sarif", "markdown"))] if word == "check" else []
    form = ["--json"] if word in ("import", "size") and random.random() < 0.5 else form
    _, said = command([*word.split(), str(path), *form, *(["-g", "h100"] if word == "size" else [])])
    path.unlink()
    if token in said:
        shown = next(line for line in said.split("\n") if token in line)
        raise FaultError(f"a secret is shown: {planted.strip()[:40]!r} under {word}: {shown.strip()[:80]}")


def agreement(random: Random, folder: Path) -> None:
    """One question at two of its doors, and two easier ones, of any model that has a card."""
    from tests.laws.agreement import DOORS, differences, easier, edged, told_to, worse
    from tests.laws.questions import question

    found = edged(question(random, card_slugs()), random)
    if found is None:
        return
    asked, told = found
    wrong: list[str] = []
    for name in random.sample(sorted(DOORS), 2):
        wrong += differences(name, asked, told, folder) or []
    others = list(easier(asked, told, random)) if told.verdict is not None else []
    for what, other in random.sample(others, min(2, len(others))):
        less = told_to(other)
        if less is not None and less.verdict is not None:
            wrong += worse(what, asked, told, other, less)
    if wrong:
        raise FaultError(wrong[0])


@lru_cache(maxsize=1)
def card_slugs() -> list[str]:
    from kvplan.files.cards.find import list_cards

    return [card.slug for card in list_cards()]
