"""The list that waits for a GPU, in order of worth: the engine, safety, other engines, kvplan's own runs.

Models are cards and plans of this repository, so that nothing is fetched. The plans of examples/ name their
GPU: on another one a step ends with 3 and its reason.
"""

from __future__ import annotations

from typing import NamedTuple

CONFIRMED, REFUTED, IN_USE, KILLED, RECORDED = "confirmed", "refuted", "in use", "killed", "recorded"
"""How a step is to end: by its receipt's verdict, refused for a neighbour, with nothing left, with a file."""
RELEASES = ("0.32", "0.31", "0.29", "0.28")


class Step(NamedTuple):
    """One run. words: behind ``kvplan validate``, of RECORDED the model; engine: whose interpreter it needs
    (``vllm``, ``sglang``, ``vllm@0.32``); beside: bytes that a neighbour holds meanwhile; nine_tenths: the
    pool is as large as the card allows; why: the question that it answers."""

    name: str
    words: tuple[str, ...]
    seconds: int
    why: str
    engine: str = ""
    ends: str = CONFIRMED
    beside: int = 0
    nine_tenths: bool = False


def _vllm(name: str, words: str, why: str, seconds: int = 150, ends: str = CONFIRMED) -> Step:
    return Step(name, (*words.split(), "--with", "vllm"), seconds, why, "vllm", ends)


def _own(name: str, words: str, why: str = "a kind of cache", seconds: int = 50) -> Step:
    return Step(name, (*words.split(), "--weights", "0B"), seconds, why, nine_tenths=True)


_SMALL = "llama-3.1-8b --weights 0B --kv-cache-memory 4GiB"
GIB = 1 << 30

STEPS: tuple[Step, ...] = (
    Step("smoke", tuple(_SMALL.split()), 60, "does it run at all"),
    _vllm(
        "control",
        "llama-3.1-8b --max-model-len 8192 --weights 20GiB",
        "weights said wrong: can it say no",
        ends=REFUTED,
    ),
    _vllm("window", "gemma-3-12b --max-model-len 32768 --serve", "windows: requests at once", 240),
    _vllm("latent", "deepseek-v2-lite --max-model-len 32768", "latents and experts"),
    _vllm("states", "qwen3.5-9b --max-model-len 32768", "states beside attention: large blocks"),
    _vllm(
        "eight-bit",
        "qwen3-32b --quantization fp8 --kv-cache-dtype fp8 --max-model-len 16384",
        "8-bit weights and cache",
    ),
    _vllm(
        "chat",
        "examples/plans/chat-llama-3.1-8b-h100.yaml --serve",
        "the plan again, and one request more",
        240,
    ),
    _vllm("rag", "examples/plans/rag-llama-3.1-8b-128k-h200.yaml --serve", "the same on the other GPU", 240),
    _vllm("experts", "qwen3-30b-a3b --max-model-len 16384", "experts' kernels"),
    _vllm("draft", "mimo-7b --speculative mtp:1 --max-model-len 8192", "graphs and batches of a draft"),
    _vllm(
        "adapters",
        "qwen3-4b --enable-lora --max-loras 4 --max-lora-rank 32 --max-model-len 8192",
        "adapters beside the weights",
    ),
    *(
        Step(
            f"kernels-{model}",
            (model, "--weights", "0B", "--kv-cache-memory", "8GiB", "--kernels", "auto"),
            80,
            "vLLM's own kernels over latents and states",
            "vllm",
        )
        for model in ("deepseek-v2-lite", "falcon-h1-7b", "qwen3-next-80b-a3b")
    ),
    Step(
        "busy",
        tuple(_SMALL.split()),
        40,
        "a neighbour is seen on the real driver",
        ends=IN_USE,
        beside=10 * GIB,
    ),
    Step("shared", (*_SMALL.split(), "--shared"), 60, "a neighbour's memory is told apart", beside=10 * GIB),
    Step(
        "killed",
        ("llama-3.1-8b", "--max-model-len", "8192", "--with", "vllm", "--serve"),
        200,
        "SIGKILL leaves nothing on the GPU",
        "vllm",
        KILLED,
    ),
    Step(
        "sglang-dense",
        ("llama-3.1-8b", "--engine", "sglang", "--context-length", "8192", "--with", "sglang"),
        200,
        "SGLang's worker, never tried on a GPU",
        "sglang",
    ),
    Step(
        "sglang-latent",
        ("deepseek-v2-lite", "--engine", "sglang", "--context-length", "32768", "--with", "sglang"),
        200,
        "the same over latents",
        "sglang",
    ),
    *(
        Step(
            f"vllm-{release}-{model}",
            (model,),
            100,
            "a release that nobody measured, to its pool",
            f"vllm@{release}",
            RECORDED,
        )
        for release in RELEASES
        for model in ("qwen3-8b", "gemma-3-12b", "qwen3.5-9b")
    ),
    Step(
        "limit",
        ("examples/plans/chat-llama-3.1-8b-h100.yaml", "--find-limit"),
        90,
        "how far above the plan's pool",
    ),
    Step(
        "agents",
        ("examples/plans/agents-qwen3-32b-h200.yaml",),
        60,
        "weights, and the pool that the budget leaves",
    ),
    _own("gqa", "llama-3.1-8b"),
    _own("mha", "llama-2-7b"),
    _own("mla", "deepseek-v2-lite"),
    _own("windows", "gemma-3-27b"),
    _own("state-space", "falcon-h1-7b"),
    _own("delta-net", "qwen3-next-80b-a3b"),
    _own("moe", "qwen3-30b-a3b"),
    _own("gqa-fp8", "llama-3.1-8b --kv-cache-dtype fp8"),
    _own("mqa", "falcon-7b", "thousands of requests: it takes longest"),
)
