"""What is fuzzed: configs, Python types, files, command lines, relations between answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any

import kvplan
from kvplan.engines import ENGINES, OWN_OPTIONS
from kvplan.files.cards.find import list_cards
from kvplan.files.gguf.file import read_header
from kvplan.files.gpus.listed import list_slugs
from kvplan.files.logs import parse_log
from kvplan.files.plans.file import read_plan_text
from kvplan.files.plans.fleet import read_fleet
from kvplan.files.plans.lock import read_lock
from kvplan.files.plans.prices import read_prices
from kvplan.files.safetensors_header import parse_header, parse_index
from kvplan.files.yaml.strict import load_yaml
from kvplan.plans.serve import flags_of
from kvplan.settings import MEDIA, Settings
from tests.fuzz import doors
from tests.fuzz.mutate import bent, bent_bytes, bent_lines
from tests.fuzz.traces import simulate
from tests.fuzz.watch import FaultError, asked, command, judged

ROOT = Path(__file__).resolve().parents[2]
ENGINE_NAMES = (*ENGINES, "vllm@0.8", "vllm@0.19", "sglang@0.5", "trtllm@1.0", "llamacpp")
GPUS = ("h100", "h200", "rtx-4090", "a100-80gb", "mi300x", "b200", "l4", "24GiB", "1GiB", "h100x8")
KV = ("auto", "bfloat16", "fp8", "fp8_e4m3", "float16", "q8_0", "nvfp4", "int8", "x")


@lru_cache(maxsize=1)
def configs() -> list[dict[str, Any]]:
    """A card's config of every model type: what is bent."""
    found: list[dict[str, Any]] = []
    seen = set()
    for card in list_cards():
        config = None if card.model_type in seen else kvplan.load_model(card.slug).config
        seen.add(card.model_type)
        if config:
            found.append(json.loads(json.dumps(dict(config))))
    return found


@lru_cache(maxsize=1)
def slugs() -> list[str]:
    return list_slugs()


@lru_cache(maxsize=1)
def plan_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples" / "plans").glob("*.yaml"))]


@lru_cache(maxsize=1)
def card_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((ROOT / "model_cards").glob("*.yaml"))[::8]]


@lru_cache(maxsize=1)
def log_texts() -> list[bytes]:
    return [path.read_bytes()[:20_000] for path in sorted((ROOT / "examples" / "logs").glob("*"))]


def settings(random: Random) -> dict[str, Any]:
    """Keywords of `size`, most of them right."""
    made: dict[str, Any] = {}
    if random.random() < 0.6:
        made["tokens"] = random.choice((0, 1, 15, 16, 17, 4096, 10**5, 10**9, "32k", 10**12))
    if random.random() < 0.3:
        made["requests"] = random.choice((1, 2, 7, 100, 10**6))
    if random.random() < 0.35:
        made["gpu"] = random.choice(GPUS)
    if random.random() < 0.3:
        made["kv_cache_memory"] = random.choice(("1MiB", "1GiB", "60GiB", 0, 10**15))
    for name, values in (
        ("tensor_parallel_size", (2, 3, 8, 64)), ("pipeline_parallel_size", (2, 3, 200)),
        ("data_parallel_size", (2, 8)), ("decode_context_parallel_size", (2, 8)), ("kv_cache_dtype", KV),
        ("max_model_len", (1, 100, 8192, 10**9, "auto")), ("max_num_seqs", (1, 7, 10**6)),
        ("max_num_batched_tokens", (1, 2048, 10**7)), ("block_size", (1, 16, 17, 128, 10**6)),
        ("num_gpu_blocks_override", (1, 100, 10**9)), ("weights", ("1GiB", "70GiB", 0)),
        ("gpu_memory_utilization", (0.01, 0.5, 1)), ("enable_expert_parallel", (True,)),
        ("speculative_method", ("mtp", "ngram", "eagle", "draft_model")), ("num_speculative_tokens", (1, 5,
        10**5)),
        ("quantization", ("fp8", "awq", "x")), ("dtype", ("bfloat16", "float32", "auto", "x")),
        ("cpu_offload_gb", (1, 10**5)), ("enforce_eager", (True,)), ("encoder_tokens", (0, 1500, 10**9)),
        ("enable_prefix_caching", (True, False)), ("attention_backend", ("FLASH_ATTN", "x")),
        ("images", (1, 5, 10**5)), ("image_size", ("1280x720", "1x1", "999999x1")), ("video_frames", (1,
        1000)),
        ("audio_seconds", (1, "12.5", 10**6)), ("answer_tokens", (1, 1000)),
        ("speculative_model", ("llama-3.2-1b", "qwen3-0.6b")), ("async_scheduling", (True, False)),
    ):  # fmt: skip
        if random.random() < 0.06:
            made[name] = random.choice(values)
    if random.random() < 0.1:
        option = random.choice(sorted(OWN_OPTIONS))
        made[option] = random.choice((1, 2, 8, True, "auto", "0.5", 10**9))
    return made


def config(random: Random) -> None:
    """A bent config under any engine with any settings."""
    raw = bent(random, random.choice(configs()), configs())
    model = asked(lambda: kvplan.load_model(raw))
    if model is None:
        return
    for _ in range(2):
        result = asked(partial(kvplan.size, model, engine=random.choice(ENGINE_NAMES), **settings(random)))
        if result is not None:
            judged(result)


ODD: tuple[Any, ...] = (
    True, False, 0, 1, -1, 2.5, float("nan"), float("inf"), 10**400, "", "x", "1", b"x", b"", [], [1],
    ["x"], {},
    {"a": 1}, (), (1,), set(), frozenset({1}), object(), int, Fraction(1, 3), date(2026, 1, 1), Path(), 1j,
    ...,
    range(3), lambda: 1, NotImplemented, Exception("x"), [[]], "\x00", "\udcff", bytearray(b"x"),
    memoryview(b"x"),
)  # fmt: skip
_NAMES = (*Settings.__dataclass_fields__, *OWN_OPTIONS, *MEDIA, "tp", "pp", "dp", "no_such_option")
_PLAN_NAMES = (
    "requests tokens workload shared_prefix samples arrival gpu fleet objective quality max_gpus tp pp dp dcp"
    " enable_expert_parallel kv_cache_dtype max_num_seqs max_model_len headroom pool tpot ttft top pareto"
    " depth levers host_memory named engine"
).split()
LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip


def types(random: Random) -> None:
    """Public functions with arguments of any Python type."""
    kind = random.randrange(20)
    odd = random.choice(ODD)
    if kind < 13:
        options = {random.choice(_NAMES): random.choice(ODD) for _ in range(random.choice((1, 1, 1, 2)))}
        engine = random.choice(ENGINE_NAMES) if random.random() < 0.9 else odd
        base = {"gpu": "h100"} if random.random() < 0.2 else {}
        result = asked(lambda: kvplan.size(LLAMA, engine=engine, **{**base, **options}))
        if result is not None:
            judged(result)
    elif kind == 13:
        raw: dict[Any, Any] = {**LLAMA}
        raw[random.choice([*LLAMA, odd] if _hashable(odd) else list(LLAMA))] = odd
        asked(lambda: kvplan.load_model(raw))
    elif kind == 14:
        asked(lambda: kvplan.load_model(odd))
        asked(lambda: kvplan.load_gpu(odd))
        asked(lambda: kvplan.parse_bytes(odd))
    elif kind == 15:
        paths = odd if random.random() < 0.5 else [odd]
        asked(lambda: kvplan.check(paths, baseline=random.choice((None, odd))))
        asked(lambda: kvplan.check([ROOT / "tests"], today=odd, changed_only=odd))
    elif kind == 16:
        asked(lambda: kvplan.load_plans(odd, environment=random.choice((None, "x"))))
    elif kind == 17:
        if not isinstance(odd, str) or not odd.startswith("http"):
            name = random.choice(("log", "url", "token", "engine"))
            asked(lambda: kvplan.observe(**{"log": [b"x\n"], name: odd}))
    elif kind == 18:
        name = random.choice(("tolerance", "engine", "tokens", "gpu", "observation", "log"))
        asked(lambda: kvplan.compare(LLAMA, **{"log": [b"x\n"], name: odd}))
    else:
        given: dict[str, Any] = {"gpu": "l4", "depth": False, "tokens": 64, random.choice(_PLAN_NAMES): odd}
        asked(lambda: kvplan.plan(LLAMA, **given))


def _hashable(odd: Any) -> bool:
    try:
        hash(odd)
    except TypeError:
        return False
    return True


GGUF = (
    b"GGUF\x03\x00\x00\x00" + (0).to_bytes(8, "little") + (3).to_bytes(8, "little")
    + b"".join(
        len(key).to_bytes(8, "little") + key + kind.to_bytes(4, "little") + body
        for key, kind, body in (
            (b"general.architecture", 8, (5).to_bytes(8, "little") + b"llama"),
            (b"llama.block_count", 4, (4).to_bytes(4, "little")),
            (b"tokenizer.ggml.tokens", 9, (8).to_bytes(4, "little") + (1).to_bytes(8, "little")
             + (1).to_bytes(8, "little") + b"a"),
        )
    )
)  # fmt: skip
SAFETENSORS = json.dumps(
    {f"model.layers.{at}.mlp.up.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [at, at + 12]}
     for at in range(0, 36, 12)}
).encode()  # fmt: skip
INDEX = json.dumps(
    {"metadata": {"total_size": 100}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
)
PRICES = "kvplan: prices/v1\ncurrency: USD\nprices:\n  - {gpu: h100, price_per_gpu_hour: 2.5, where: a}\n"
PRICE_ROWS = "gpu,price_per_gpu_hour,where,date\nh100,2.50,a,2026-09-01\nl40s,0.90,b,\n"
LOCK = """{
  "kvplan": "lock/v1",
  "version": "0.1.0",
  "plans": [{"path": "a.yaml", "name": "a", "environment": null, "passed": true, "engine": "vllm@0.33",
             "plan": "sha256:0", "card": "sha256:1", "gpu": "",
             "facts": [{"name": "gpus", "value": 1, "unit": "gpus"}]}]
}
"""
FLEET = "kvplan: fleet/v1\ncurrency: USD\noffers:\n  - {gpu: h100, count: 8, price_per_gpu_hour: 2.5}\n"
KEYS = "model engine gpu gpus serve require workload evidence extends environments name tokens x".split()


def files(random: Random, folder: Path) -> None:
    """Bytes through the readers, and some of them through the command line."""
    kind = random.randrange(12)
    if kind < 3:
        text = bent_lines(random, random.choice(plan_texts()), KEYS)
        if random.random() < 0.12:
            path = folder / "plan.yaml"
            path.write_text(text, encoding="utf-8", errors="replace")
            form = random.choice(("text", "json", "github", "markdown", "junit", "sarif"))
            command(["check", str(path), "--format", form])
            return
        for reading in read_plan_text(text, engine_of=flags_of):
            if reading.plan is None and not reading.errors:
                raise FaultError("neither a plan nor a mistake")
    elif kind < 5:
        data = bent_bytes(random, GGUF)
        path = folder / "model.gguf"
        path.write_bytes(data)
        if random.random() < 0.1:
            command(["size", str(path)])
        else:
            asked(lambda: read_header(path, tensors=True))
    elif kind == 5:
        data = bent_bytes(random, SAFETENSORS)
        asked(lambda: parse_header(data, "x"))
        asked(lambda: parse_index(bent_bytes(random, INDEX.encode()), name="x"))
    elif kind == 6:
        text = bent_lines(random, FLEET, ["offers", "gpu", "count", "price_per_gpu_hour"])
        path = folder / "fleet.yaml"
        path.write_text(text, encoding="utf-8", errors="replace")
        asked(lambda: read_fleet(path))
        text = bent_lines(random, PRICES, ["prices", "gpu", "date", "price_per_gpu_hour"])
        for name in ("prices.yaml", "prices.csv", "plans.lock"):
            hostile = folder / name
            source = {"prices.yaml": text, "prices.csv": PRICE_ROWS}.get(name, LOCK)
            hostile.write_bytes(bent_bytes(random, source.encode("utf-8", "replace")))
        asked(lambda: read_prices(folder / "prices.yaml"))
        asked(lambda: read_prices(folder / "prices.csv"))
        asked(lambda: read_lock(folder / "plans.lock"))
    elif kind == 7:
        data = bent_bytes(random, random.choice(log_texts()))
        asked(lambda: parse_log([data]))
    elif kind == 8:
        data = bent_bytes(random, random.choice(plan_texts()).encode())
        asked(lambda: load_yaml(data, name="x"))
    elif kind == 9:
        path = folder / "card.yaml"
        path.write_text(
            bent_lines(random, random.choice(card_texts()), KEYS), encoding="utf-8", errors="replace"
        )
        asked(lambda: kvplan.load_model(path))
    elif kind == 10:
        path = folder / "config.json"
        path.write_bytes(bent_bytes(random, json.dumps(random.choice(configs())).encode()))
        asked(lambda: kvplan.load_model(path))
    else:
        raw = bent(random, random.choice(configs()), configs())
        words = ["size", "-", *(["--gpu", "h100"] if random.random() < 0.3 else [])]
        command(words, json.dumps(raw).encode())


COMMANDS = (
    "size", "explain", "plan", "check", "export", "list models", "list gpus", "gpu", "schema",
    "list receipts", "cards lint", "compare", "validate", "doctor", "cards new", "help", "no-such",
)  # fmt: skip
FLAGS = (
    "--tokens", "-t", "-n", "--requests", "--gpu", "-g", "--engine", "--tp", "--pp", "--dp", "--dcp",
    "--json",
    "--kv-cache-dtype", "--kv-cache-memory", "--show=lengths", "--show", "--weights", "--max-model-len",
    "--color=always", "--env",
    "--speculative", "--dry-run", "--format", "--to", "--objective", "--top", "--pool", "--tpot", "--fleet",
    "--block-size", "--images", "--image-size", "--output", "--no-such", "-v", "--help", "--version", "--",
    "-",
)  # fmt: skip
WORDS = (
    "llama-3.1-8b", "gpt2", "mamba-130m", "h100", "h100x8", "l4", "vllm", "all", "sglang@0.5", "1k",
    "32,768", "0",
    "-1", "9" * 30, "", "\x1b[2J", "\u202e", "a\0b", "\udcff", "x" * 300, "hf:", "hf:../x", "/", ".",
    "/dev/null",
    "80GiB", "1e9", "auto", "fp8", "1,2,3", "0.5", "--", "é", "💥", "\n", "plan.yaml", "%s", "$(id)", "'\"",
)  # fmt: skip
_WRITES = ("--output", "validate", "receipts", "/", ".")


def arguments(random: Random) -> None:
    """Command lines of words that fit or do not."""
    head = random.choice(COMMANDS).split()
    rest = [random.choice(FLAGS if random.random() < 0.45 else WORDS) for _ in range(random.randrange(1, 6))]
    if "--output" in rest or (head[0] == "validate" and "--dry-run" not in rest):
        head, rest = ["size"], [word for word in rest if word != "--output"]
    if head[-1] in ("receipts", "check", "lint", "new", "export"):
        rest = [word for word in rest if word not in ("/", ".")]
        rest = rest if any(not word.startswith("-") for word in rest) else [*rest, "x"]
    command([*head, *rest])


def relations(random: Random) -> None:
    """More tokens never take less, more memory never holds fewer, the same question has the same answer."""
    raw = random.choice(configs())
    if random.random() < 0.3:
        raw = bent(random, raw, configs())
    model = asked(lambda: kvplan.load_model(raw))
    if model is None:
        return
    engine = random.choice(ENGINE_NAMES)
    strided = any(term.stride > 1 for entry in _terms(model) for term in entry.terms)
    tokens = random.randrange(1, 9000)
    options: dict[str, Any] = {"engine": engine, "tensor_parallel_size": random.choice((1, 1, 2, 4))}
    one = asked(lambda: kvplan.size(model, tokens=tokens, **options))
    if one is None or one.refusal is not None:
        return
    again = asked(lambda: kvplan.size(replace(model), tokens=tokens, **options))
    if again is None or again.model_dump() != one.model_dump():
        raise FaultError("the same question, another answer")
    more = asked(lambda: kvplan.size(model, tokens=tokens + random.randrange(1, 5000), **options))
    grew = more is None or more.per_gpu.kv_bytes_per_request >= one.per_gpu.kv_bytes_per_request
    if more is not None and more.refusal is None and not strided and not grew:
        raise FaultError("more tokens take fewer bytes")
    memory = random.choice((2**28, 2**30, 2**33, 2**36))
    small, large = (
        asked(partial(kvplan.size, model, tokens=tokens, kv_cache_memory=amount, **options))
        for amount in (memory, memory * random.choice((2, 3, 10)))
    )
    if small is not None and small.refusal is None and small.pool is not None:
        if large is None or large.refusal is not None or large.pool is None:
            raise FaultError("more memory, and no answer any more")
        if large.pool.max_requests < small.pool.max_requests:
            raise FaultError("more memory holds fewer requests")


def _terms(model: Any) -> Any:
    result = asked(lambda: kvplan.size(model, engine="generic", tokens=16))
    return () if result is None else result.layers


TARGETS: dict[str, tuple[Callable[..., None], int]] = {
    "configs": (config, 26),
    "types": (types, 36),
    "files": (files, 28),
    "arguments": (arguments, 1),
    "relations": (relations, 9),
    "simulate": (simulate, 4),
    "launch": (doors.launch, 2),
    "page": (doors.page, 1),
    "agents": (doors.agents, 2),
    "report": (doors.report, 1),
    "receipts": (doors.proofs, 2),
    "secrets": (doors.secrets, 3),
    "agreement": (doors.agreement, 3),
}
"""Name → the function of one input, and its share."""
ANSWERS = {"configs": 2, "report": 3, "agreement": 6}
"""Of those that ask several: two engines; the plan, the least that would do and what else there is; a
question at two doors, and easier ones."""
NEEDS_FOLDER = frozenset({"files", "simulate", "launch", "report", "receipts", "secrets", "agreement"})
