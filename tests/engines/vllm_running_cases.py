"""Settings whose answers are held against vLLM's own scheduler: cards, their groups and their pools.

A question is what the scheduler is asked: the pool's usable blocks, the groups, the scheduler's settings,
prompt and answer of each request and how many of them arrive at once. Its groups and blocks come from
kvplan's plan, which other tests hold against vLLM's planner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import kvplan
from kvplan.api import make_settings
from kvplan.engines.budget.sharing import Sharing, Taken, block_of, dropped_of, share_of, taken_of
from kvplan.engines.vllm.cache_layout.plan import Plan, PlanGroup
from kvplan.engines.vllm.compiled import compiled
from kvplan.engines.vllm.concurrency.blocks_over_time import CHUNK, FULL, STATE, WINDOW
from kvplan.engines.vllm.concurrency.concurrent_requests import tables_of
from kvplan.plans.workload import Shape, Workload

VERSION = "0.32"
Options = dict[str, Any]
Question = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One card under one set of options; ``name`` is the key in the recorded file. shapes: (prompt, answer)
    of a mix whose requests come in turn; prefix: tokens at the head of every prompt that are the same."""

    name: str
    card: str
    options: Options
    shapes: tuple[tuple[int, int], ...] = ()
    prefix: int = 0

    @property
    def mixed(self) -> bool:
        return bool(self.shapes)


_KINDS = {FULL: "full", WINDOW: "window", CHUNK: "chunk", STATE: "state"}


def answer_of(setting: Setting) -> kvplan.SizeResult:
    return kvplan.size(setting.card, engine=f"vllm@{VERSION}", **setting.options)


def together(setting: Setting) -> int:
    """Requests of a mix that run at once, as planner and check count them."""
    answers = {shape: answer_of(of_shape(setting, shape)) for shape in setting.shapes}
    first = next(iter(answers.values()))
    sharing = Sharing(block_of(first), setting.prefix, dropped=dropped_of(first))

    def takes(tokens: int, answer: int) -> Taken | None:
        return taken_of(answers[tokens - answer, answer])

    def share(tokens: int) -> Fraction | None:
        return share_of(answer_of(of_shape(setting, (tokens - 1, 1)))) if tokens else None

    def room_for(requests: int) -> bool:
        total, excess = sharing.common(share), Fraction(0)
        for shape, count in Workload(shapes).dealt(requests):
            part = sharing.request(shape.input_tokens, shape.output_tokens, takes, share)
            assert part is not None
            total += part.share * count
            excess = max(excess, part.excess)
        return total + excess <= 1

    shapes = tuple(Shape(*shape) for shape in setting.shapes)
    found = 0
    while room_for(found + 1):
        found += 1
    return found


def of_shape(setting: Setting, shape: tuple[int, int]) -> Setting:
    options = {**setting.options, "tokens": sum(shape), "answer_tokens": shape[1]}
    return replace(setting, options=options)


def question_of(setting: Setting, result: kvplan.SizeResult) -> Question:
    """What the scheduler is asked, without the number of requests."""
    model, settings = kvplan.load_model(setting.card), make_settings(**setting.options)
    plan = compiled(model, VERSION, settings).plan
    assert plan is not None
    assert result.pool is not None
    groups = [_group(plan, group, result.request.encoder_tokens) for group in plan.groups]
    request = result.request
    shown = result.settings
    question: Question = {
        "groups": groups,
        "usable_blocks": result.pool.num_blocks - 1,
        "block_size": groups[0]["block_size"] if len(set(map(str, groups))) == 1 else shown["block_size"],
        "max_num_batched_tokens": shown["max_num_batched_tokens"],
        "max_num_seqs": shown["max_num_seqs"],
        "max_model_len": shown["max_model_len"],
        "enable_prefix_caching": shown["enable_prefix_caching"],
        "async_scheduling": shown["async_scheduling"],
        "mamba_cache_mode": "align" if any(group.aligned for group in plan.groups) else "none",
        "prompt": request.tokens - request.answer_tokens,
        "answer": request.answer_tokens,
    }
    if setting.mixed:
        question.update(shapes=[list(shape) for shape in setting.shapes], prefix=setting.prefix)
        del question["prompt"], question["answer"]
    steps = plan.steps
    if steps.stride > 1:
        question["pp"] = steps.stride
    if steps.drafts:
        modules = 2 if steps.runway else 1
        question["drafts"] = {
            "method": settings.speculative_method, "tokens": steps.drafts, "modules": modules,
        }  # fmt: skip
    if any(group["kind"] == "cross" for group in groups):
        question["encoder"] = {"tokens": request.encoder_tokens, "budget": steps.batch}
    return question


def _group(plan: Plan, group: PlanGroup, encoder_tokens: int) -> dict[str, Any]:
    (table,) = tables_of(replace(plan, groups=(group,)), encoder_tokens)
    kind = "cross" if group.cross else _KINDS.get(table.rule, "state")
    found: dict[str, Any] = {"kind": kind, "block_size": table.block}
    if table.rule == WINDOW:
        found["window"] = table.span + 1
    elif table.rule == CHUNK:
        found["window"] = table.span
    if table.checkpoint:
        found["checkpoint"] = 16
    return found


def beyond(running: int) -> int:
    """The burst that must be too large: one request more, or two in a hundred."""
    return max(running + 1, -(-running * 102 // 100))


_MODELS: tuple[tuple[str, str, Options], ...] = (
    ("full", "llama-3.1-8b", {"kv_cache_memory": "8GiB", "max_model_len": 32768}),
    ("full-small", "qwen3-0.6b", {"kv_cache_memory": "6GiB", "max_model_len": 16384}),
    ("latent", "deepseek-v2-lite", {"kv_cache_memory": "4GiB", "max_model_len": 32768}),
    ("windows", "gemma-3-27b", {"kv_cache_memory": "24GiB", "max_model_len": 32768}),
    ("windows-small", "gemma-3-4b", {"kv_cache_memory": "6GiB", "max_model_len": 32768}),
    ("windows-sinks", "gpt-oss-20b", {"kv_cache_memory": "12GiB", "max_model_len": 32768}),
    ("windows-olmo", "olmo-3-7b", {"kv_cache_memory": "24GiB", "max_model_len": 32768}),
    ("windows-alone", "mistral-7b-v0.1", {"kv_cache_memory": "12GiB", "max_model_len": 32768}),
    ("windows-mimo", "mimo-v2-flash", {"kv_cache_memory": "8GiB", "max_model_len": 32768, "tp": 8}),
    ("chunks", "llama-4-scout", {"kv_cache_memory": "12GiB", "max_model_len": 32768, "tp": 8}),
    ("compressed", "deepseek-v4-flash", {"kv_cache_memory": "14GiB", "max_model_len": 65536, "tp": 4}),
    ("states-deltas", "qwen3-next-80b-a3b", {"kv_cache_memory": "8GiB", "max_model_len": 32768, "tp": 2}),
    ("states-mamba2", "nemotron-h-8b", {"kv_cache_memory": "8GiB", "max_model_len": 8192}),
    ("states-only", "falcon-mamba-7b", {"kv_cache_memory": "4GiB", "max_model_len": 32768}),
    ("states-jamba", "jamba-1.5-mini", {"kv_cache_memory": "8GiB", "max_model_len": 32768}),
)
_LOADS: tuple[tuple[str, Options], ...] = (
    ("8k", {"tokens": 8192}),
    ("8k-batch-2k", {"tokens": 8191, "answer_tokens": 1023, "max_num_batched_tokens": 2048}),
    ("4k-long-answers", {"tokens": 4096, "answer_tokens": 2048}),
    ("7k-sync", {"tokens": 7000, "async_scheduling": False}),
    ("2k-batch-16k", {"tokens": 2500, "max_num_batched_tokens": 16384}),
)
_LONG: tuple[tuple[str, Options], ...] = (
    ("32k", {"tokens": 32768}),
    ("32k-batch-2k", {"tokens": 32768, "answer_tokens": 512, "max_num_batched_tokens": 2048}),
    ("20k-no-prefixes", {"tokens": 20000, "answer_tokens": 5000, "enable_prefix_caching": False}),
    ("8k-few", {"tokens": 8192, "max_num_seqs": 8}),
)
_ON_GPUS: tuple[tuple[str, Options], ...] = (
    # The pool that the record was asked with: 13,740 blocks; the budget's own moves with what is learnt.
    (
        "gemma-3-27b",
        {
            "gpu": "h100",
            "tokens": 8191,
            "answer_tokens": 1023,
            "max_model_len": 8192,
            "kv_cache_memory": f"{13_740 * 1_310_720}B",
        },
    ),
    ("gpt-oss-20b", {"gpu": "h100", "tokens": 8191, "answer_tokens": 1023}),
    ("gpt-oss-120b", {"gpu": "h100x2", "tokens": 8191, "answer_tokens": 1023, "max_num_seqs": 256}),
    ("llama-3.1-8b", {"gpu": "h100", "tokens": 8191, "answer_tokens": 1023}),
)
_LONG_ONES = ("full", "windows", "windows-small", "windows-sinks", "chunks", "compressed", "states-deltas")


_SHORT: Options = {"kv_cache_memory": "4GiB", "max_model_len": 16384, "tokens": 4096,
                   "max_num_batched_tokens": 4096}  # fmt: skip
_STAGES: tuple[tuple[str, str, Options], ...] = (
    ("full", "llama-3.1-8b", {"pp": 2}),
    ("full-4", "llama-3.1-8b", {"pp": 4, "tokens": 3000, "kv_cache_memory": "2GiB"}),
    ("full-sync", "llama-3.1-8b", {"pp": 2, "async_scheduling": False}),
    ("windows", "gemma-3-27b", {"pp": 2, "kv_cache_memory": "6GiB"}),
    ("windows-4", "gemma-3-27b", {"pp": 4, "tokens": 8191, "max_num_batched_tokens": 2048}),
    ("sinks", "gpt-oss-20b", {"pp": 2, "kv_cache_memory": "2GiB"}),
    ("states", "qwen3-next-80b-a3b", {"pp": 2}),
    ("chunks", "llama-4-scout", {"pp": 2, "kv_cache_memory": "6GiB"}),
)
_DRAFTS: tuple[tuple[str, str, str, int, Options], ...] = (
    ("eagle", "llama-3.1-8b", "eagle3", 3, {}),
    ("eagle-sync", "llama-3.1-8b", "eagle", 5, {"async_scheduling": False, "tokens": 2000}),
    ("eagle-longest", "llama-3.1-8b", "eagle3", 7, {"max_model_len": 4096}),
    ("eagle-stages", "llama-3.1-8b", "eagle3", 3, {"pp": 2}),
    ("eagle-sinks", "gpt-oss-20b", "eagle3", 3, {"kv_cache_memory": "2GiB"}),
    ("ngram", "llama-3.1-8b", "ngram", 8, {"tokens": 1500}),
    ("ngram-windows", "gemma-3-27b", "ngram", 4, {"kv_cache_memory": "6GiB"}),
    ("ngram-chunks", "llama-4-scout", "ngram", 4, {"tp": 8}),
    ("model", "llama-3.1-8b", "draft_model", 4, {"speculative_model": "llama-3.2-1b", "tokens": 3001}),
    ("dflash", "llama-3.1-8b", "dflash", 8, {"speculative_model": "llama-3.2-1b", "tokens": 1000}),
    ("mtp-states", "qwen3-next-80b-a3b", "mtp", 2, {}),
    ("mtp-states-bare", "qwen3-next-80b-a3b", "mtp", 1, {"enable_prefix_caching": False}),
    ("mtp-modules", "mimo-v2-flash", "mtp", 2, {"tp": 8, "kv_cache_memory": "2GiB"}),
    ("mtp-latent", "deepseek-v3", "mtp", 1, {"tp": 8, "kv_cache_memory": "2GiB"}),
)
_SPEECH: tuple[tuple[str, Options], ...] = (
    ("", {"kv_cache_memory": "8GiB", "tokens": 448}),
    ("-answers", {"kv_cache_memory": "24GiB", "tokens": 440, "answer_tokens": 420}),
    ("-batch-2k", {"kv_cache_memory": "24GiB", "answer_tokens": 224, "max_num_batched_tokens": 2048}),
    ("-sync", {"kv_cache_memory": "12GiB", "tokens": 300, "answer_tokens": 290, "async_scheduling": False}),
)
_EAGLE: Options = {"speculative_method": "eagle3", "num_speculative_tokens": 3}
_MIXES: tuple[tuple[str, str, Options, tuple[tuple[int, int], ...], int], ...] = (
    ("full", "llama-3.1-8b", {}, ((2000, 300), (500, 100), (100, 900)), 0),
    ("stages", "llama-3.1-8b", {"pp": 2}, ((2000, 300), (500, 100)), 0),
    ("drafts", "llama-3.1-8b", _EAGLE, ((2000, 300), (500, 100)), 0),
    ("sinks", "gpt-oss-20b", {}, ((6000, 300), (500, 1000)), 0),
    ("windows", "gemma-3-27b", {"kv_cache_memory": "24GiB"}, ((6000, 300), (500, 1000)), 0),
    ("chunks", "llama-4-scout", {"tp": 8}, ((9000, 800), (500, 1000)), 0),
    ("states", "qwen3-next-80b-a3b", {"tp": 2}, ((6000, 300), (500, 1000)), 0),
    ("prefix", "llama-3.1-8b", {}, ((2000, 300),), 1607),
    ("prefix-whole", "llama-3.1-8b", {}, ((1600, 300),), 1600),
    ("prefix-drafts", "llama-3.1-8b", _EAGLE, ((2000, 300),), 1600),
    ("prefix-latent", "deepseek-v2-lite", {}, ((3000, 500), (2500, 100)), 2048),
    ("prefix-windows", "gemma-3-27b", {"kv_cache_memory": "24GiB"}, ((6000, 300),), 4096),
)


def beside() -> list[Setting]:
    """Pipelines, drafts, encoder-decoders, mixes and shared prefixes."""
    found = [Setting(f"stages-{name}", card, {**_SHORT, **more}) for name, card, more in _STAGES]
    for name, card, method, drafts, more in _DRAFTS:
        speculation = {"speculative_method": method, "num_speculative_tokens": drafts}
        found.append(Setting(f"drafts-{name}", card, {**_SHORT, **speculation, **more}))
    found += [
        Setting(f"speech{name}", "whisper-large-v3", {"tokens": 448, "max_model_len": 448, **more})
        for name, more in _SPEECH
    ]
    for name, card, more, shapes, prefix in _MIXES:
        options = {**_SHORT, "max_num_batched_tokens": 8192, **more}
        found.append(Setting(f"mix-{name}", card, options, shapes, prefix))
    return found


def settings() -> list[Setting]:
    """All settings, in a fixed order."""
    found = [
        Setting(f"{name}-{load}", card, {**options, **more})
        for name, card, options in _MODELS
        for load, more in _LOADS
    ]
    found += [
        Setting(f"{name}-{load}", card, {**options, **more})
        for name, card, options in _MODELS
        if name in _LONG_ONES
        for load, more in _LONG
    ]
    found += [Setting(f"gpu-{card}", card, options) for card, options in _ON_GPUS]
    return [*found, *beside()]
