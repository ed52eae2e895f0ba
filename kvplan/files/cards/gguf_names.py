"""Names of GGUF builds, of Hugging Face repositories, LM Studio and ollama, as doors to llama.cpp's rules.

``bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M`` (llama-server -hf), ``…-GGUF@q4_k_m`` (LM Studio) and
``ollama:llama3.3:70b-instruct-q4_K_M`` say a model and a mixture of types. Without a mixture llama-server
takes Q4_K_M where a repository has it (ggml-org/llama.cpp common/download.cpp, 0.5), and so does ollama's
library for most models. Unsloth's ``UD-`` mixtures choose types by rules that are not public.
"""

from __future__ import annotations

import re

DEFAULT = "q4_k_m"
_TAGGED = re.compile(r"(?P<base>.+?)(?:-i1|-imatrix|-qat)?-gguf(?:[:@](?P<tag>[\w-]+))?", re.ASCII)
_TAG = re.compile(
    r"(?:-?(?:instruct|it|chat|text))?-?(?P<mixture>(?:i?q\d|fp16|f16|bf16|mxfp4)[\w-]*)?", re.ASCII
)

OLLAMA = {
    "llama2": (
        "7b",
        {"7b": "llama-2-7b-chat-hf", "13b": "llama-2-13b-chat-hf", "70b": "llama-2-70b-chat-hf"},
    ),
    "llama3": ("8b", {"8b": "meta-llama-3-8b-instruct", "70b": "meta-llama-3-70b-instruct"}),
    "llama3.1": (
        "8b",
        {"8b": "llama-3.1-8b-instruct", "70b": "llama-3.1-70b-instruct", "405b": "llama-3.1-405b-instruct"},
    ),
    "llama3.2": ("3b", {"1b": "llama-3.2-1b-instruct", "3b": "llama-3.2-3b-instruct"}),
    "llama3.3": ("70b", {"70b": "llama-3.3-70b-instruct"}),
    "qwen2.5": (
        "7b",
        {size: f"qwen2.5-{size}-instruct" for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b")},
    ),
    "qwen3": (
        "8b",
        {
            **{size: f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
            "30b": "qwen3-30b-a3b",
            "30b-a3b": "qwen3-30b-a3b",
            "235b": "qwen3-235b-a22b",
            "235b-a22b": "qwen3-235b-a22b",
        },
    ),
    "gemma2": ("9b", {size: f"gemma-2-{size}-it" for size in ("2b", "9b", "27b")}),
    "gemma3": ("4b", {size: f"gemma-3-{size}-it" for size in ("270m", "1b", "4b", "12b", "27b")}),
    "gpt-oss": ("20b", {size: f"gpt-oss-{size}" for size in ("20b", "120b")}),
    "mistral": ("7b", {"7b": "mistral-7b-instruct-v0.3"}),
    "mistral-nemo": ("12b", {"12b": "mistral-nemo-instruct-2407"}),
    "mistral-small": (
        "24b",
        {"22b": "mistral-small-instruct-2409", "24b": "mistral-small-24b-instruct-2501"},
    ),
    "mixtral": ("8x7b", {size: f"mixtral-{size}-instruct-v0.1" for size in ("8x7b", "8x22b")}),
    "phi3": ("3.8b", {"3.8b": "phi-3-mini-128k-instruct"}),
    "phi4": ("14b", {"14b": "phi-4"}),
    "phi4-mini": ("3.8b", {"3.8b": "phi-4-mini-instruct"}),
    "deepseek-r1": (
        "8b",
        {"8b": "deepseek-r1-0528-qwen3-8b", "70b": "deepseek-r1-distill-llama-70b", "671b": "deepseek-r1"},
    ),
}
"""ollama's library: a model's name → (its size without a tag, size → a card's name)."""
_OLLAMA_OWN = {"gpt-oss": "mxfp4"}
"""What ollama's library holds where it is not Q4_K_M."""


def gguf_name(key: str) -> tuple[str, str] | None:
    """(a card's name, the mixture) that the name of a GGUF build says; None where it is none. Lower case.

    >>> gguf_name("bartowski/llama-3.3-70b-instruct-gguf:q5_k_m")
    ('bartowski/llama-3.3-70b-instruct', 'q5_k_m')
    >>> gguf_name("ollama:llama3.3:70b-instruct-q8_0")
    ('llama-3.3-70b-instruct', 'q8_0')
    >>> gguf_name("ollama:llama3.3")
    ('llama-3.3-70b-instruct', 'q4_k_m')
    """
    if key.startswith("ollama:"):
        return _ollama(key.removeprefix("ollama:").removeprefix("library/"))
    found = _TAGGED.fullmatch(key)
    return None if found is None else (found["base"], _mixture(found["tag"] or DEFAULT))


def _mixture(tag: str) -> str:
    return tag.replace("-", "_").replace("fp16", "f16")


def _ollama(name: str) -> tuple[str, str] | None:
    family, _, tag = name.partition(":")
    if family not in OLLAMA:
        return None
    usual, sizes = OLLAMA[family]
    own = _OLLAMA_OWN.get(family, DEFAULT)
    if tag in ("", "latest"):
        return sizes[usual], own
    for size in sorted(sizes, key=len, reverse=True):
        rest = tag.removeprefix(size)
        found = _TAG.fullmatch(rest) if rest != tag else None
        if found is not None:
            return sizes[size], _mixture(found["mixture"] or own)
    return None
