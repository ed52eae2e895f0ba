"""Names of Ollama's library: ``deepseek-r1:32b``, ``qwen3:8b-q4_K_M``, ``gpt-oss:20b``.

A tag says a size, a kind and a mixture of types. Without a mixture the library's file is Q4_K_M, but for
older models (Q4_0) and the smallest ones (Q8_0): the sizes that ollama/ollama's README.md listed up to
2025-09, and those that ``ollama list`` prints, say which; gpt-oss is as OpenAI published it, the rest of its
tensors bfloat16. What the library calls by a size was replaced now and then (``qwen3:4b``): its newest known
file is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kvplan.errors import KvplanError, did_you_mean
from kvplan.later import regex
from kvplan.named import NamedTuple

USUAL = "q4_k_m"


class Family(NamedTuple):
    """usual: the size without a tag. sizes: size → a card's name. mixture: of its files, where a size has no
    other (own)."""

    usual: str
    sizes: Mapping[str, str]
    mixture: str = USUAL
    own: Mapping[str, str] = MappingProxyType({})


def _each(pattern: str, sizes: str) -> dict[str, str]:
    """``_each("qwen3-{}", "8b 14b")``: every size by the same pattern."""
    return {size: pattern.format(size) for size in sizes.split()}


OLLAMA: dict[str, Family] = {
    "llama2": Family("7b", _each("llama-2-{}-chat-hf", "7b 13b 70b"), "q4_0"),
    "llama3": Family("8b", _each("meta-llama-3-{}-instruct", "8b 70b"), "q4_0"),
    "llama3.1": Family("8b", _each("llama-3.1-{}-instruct", "8b 70b 405b")),
    "llama3.2": Family("3b", _each("llama-3.2-{}-instruct", "1b 3b"), own={"1b": "q8_0"}),
    "llama3.2-vision": Family("11b", _each("llama-3.2-{}-vision-instruct", "11b 90b")),
    "llama3.3": Family("70b", {"70b": "llama-3.3-70b-instruct"}),
    "llama4": Family(
        "scout",
        {
            **dict.fromkeys(("scout", "16x17b"), "llama-4-scout-17b-16e-instruct"),
            **dict.fromkeys(("maverick", "128x17b"), "llama-4-maverick-17b-128e-instruct"),
        },
    ),
    "codellama": Family("7b", _each("codellama-{}-instruct-hf", "7b 13b 34b"), "q4_0"),
    "tinyllama": Family("1.1b", {"1.1b": "tinyllama-1.1b-chat-v1.0"}, "q4_0"),
    "qwen2": Family("7b", _each("qwen2-{}-instruct", "0.5b 1.5b 7b 72b"), "q4_0"),
    "qwen2.5": Family("7b", _each("qwen2.5-{}-instruct", "0.5b 1.5b 3b 7b 14b 32b 72b")),
    "qwen2.5-coder": Family("7b", _each("qwen2.5-coder-{}-instruct", "0.5b 1.5b 3b 7b 14b 32b")),
    "qwen2.5vl": Family("7b", _each("qwen2.5-vl-{}-instruct", "3b 7b 72b")),
    "qwen3": Family(
        "8b",
        {
            **_each("qwen3-{}", "0.6b 1.7b 8b 14b 32b"),
            "4b": "qwen3-4b-thinking-2507",
            "4b-thinking-2507": "qwen3-4b-thinking-2507",
            "4b-instruct-2507": "qwen3-4b-instruct-2507",
            **dict.fromkeys(("30b", "30b-a3b"), "qwen3-30b-a3b-thinking-2507"),
            "30b-a3b-thinking-2507": "qwen3-30b-a3b-thinking-2507",
            "30b-a3b-instruct-2507": "qwen3-30b-a3b-instruct-2507",
            **dict.fromkeys(("235b", "235b-a22b"), "qwen3-235b-a22b-thinking-2507"),
            "235b-a22b-thinking-2507": "qwen3-235b-a22b-thinking-2507",
            "235b-a22b-instruct-2507": "qwen3-235b-a22b-instruct-2507",
        },
    ),
    "qwen3-coder": Family(
        "30b",
        {
            **dict.fromkeys(("30b", "30b-a3b"), "qwen3-coder-30b-a3b-instruct"),
            **dict.fromkeys(("480b", "480b-a35b"), "qwen3-coder-480b-a35b-instruct"),
        },
    ),
    "qwen3-vl": Family(
        "8b",
        {
            **_each("qwen3-vl-{}-instruct", "2b 4b 8b 32b"),
            **dict.fromkeys(("30b", "30b-a3b"), "qwen3-vl-30b-a3b-instruct"),
            **dict.fromkeys(("235b", "235b-a22b"), "qwen3-vl-235b-a22b-instruct"),
        },
    ),
    "qwen3-next": Family("80b", dict.fromkeys(("80b", "80b-a3b"), "qwen3-next-80b-a3b-instruct")),
    "qwen3.5": Family(
        "9b",
        {
            **_each("qwen3.5-{}", "0.8b 2b 4b 9b 27b"),
            **dict.fromkeys(("35b", "35b-a3b"), "qwen3.5-35b-a3b"),
            **dict.fromkeys(("122b", "122b-a10b"), "qwen3.5-122b-a10b"),
            **dict.fromkeys(("397b", "397b-a17b"), "qwen3.5-397b-a17b"),
        },
        own={"0.8b": "q8_0", "2b": "q8_0"},
    ),
    "qwen3-embedding": Family("8b", _each("qwen3-embedding-{}", "0.6b 4b 8b"), own={"0.6b": "q8_0"}),
    "qwen3.6": Family("27b", {"27b": "qwen3.6-27b", **dict.fromkeys(("35b", "35b-a3b"), "qwen3.6-35b-a3b")}),
    "qwen3.8": Family("27b", {"27b": "qwen3.8-27b"}),
    "qwq": Family("32b", {"32b": "qwq-32b"}),
    "gemma": Family("7b", _each("gemma-{}-it", "2b 7b"), "q4_0"),
    "gemma2": Family("9b", _each("gemma-2-{}-it", "2b 9b 27b"), "q4_0"),
    "gemma3": Family("4b", _each("gemma-3-{}-it", "270m 1b 4b 12b 27b"), own={"270m": "q8_0"}),
    "gemma3n": Family("e4b", _each("gemma-3n-{}-it", "e2b e4b")),
    "gemma4": Family("e4b", {**_each("gemma-4-{}-it", "e2b e4b 12b 31b"), "26b": "gemma-4-26b-a4b-it"}),
    "gpt-oss": Family("20b", _each("gpt-oss-{}", "20b 120b"), "bf16"),
    "mistral": Family("7b", {"7b": "mistral-7b-instruct-v0.3"}),
    "mistral-nemo": Family("12b", {"12b": "mistral-nemo-instruct-2407"}, "q4_0"),
    "mistral-small": Family(
        "24b", {"22b": "mistral-small-instruct-2409", "24b": "mistral-small-24b-instruct-2501"}
    ),
    "mistral-small3.1": Family("24b", {"24b": "mistral-small-3.1-24b-instruct-2503"}),
    "mistral-small3.2": Family("24b", {"24b": "mistral-small-3.2-24b-instruct-2506"}),
    "mistral-large": Family("123b", {"123b": "mistral-large-instruct-2407"}),
    "ministral-3": Family("8b", _each("ministral-3-{}-instruct-2512", "3b 8b 14b")),
    "mixtral": Family("8x7b", _each("mixtral-{}-instruct-v0.1", "8x7b 8x22b"), "q4_0"),
    "magistral": Family("24b", {"24b": "magistral-small-2506"}),
    "devstral": Family("24b", {"24b": "devstral-small-2507"}),
    "codestral": Family("22b", {"22b": "codestral-22b-v0.1"}, "q4_0"),
    "devstral-small-2": Family("24b", {"24b": "devstral-small-2-24b-instruct-2512"}),
    "devstral-2": Family("123b", {"123b": "devstral-2-123b-instruct-2512"}),
    "phi3": Family("3.8b", dict.fromkeys(("3.8b", "mini"), "phi-3-mini-128k-instruct"), "q4_0"),
    "phi3.5": Family("3.8b", {"3.8b": "phi-3.5-mini-instruct"}, "q4_0"),
    "phi4": Family("14b", {"14b": "phi-4"}),
    "phi4-mini": Family("3.8b", {"3.8b": "phi-4-mini-instruct"}),
    "phi4-reasoning": Family("14b", {"14b": "phi-4-reasoning"}),
    "deepseek-r1": Family(
        "8b",
        {
            **_each("deepseek-r1-distill-qwen-{}", "1.5b 7b 14b 32b"),
            "8b": "deepseek-r1-0528-qwen3-8b",
            "8b-0528-qwen3": "deepseek-r1-0528-qwen3-8b",
            "8b-llama-distill": "deepseek-r1-distill-llama-8b",
            "70b": "deepseek-r1-distill-llama-70b",
            "671b": "deepseek-r1",
        },
    ),
    "deepseek-v3": Family("671b", {"671b": "deepseek-v3"}),
    "deepseek-v3.1": Family("671b", {"671b": "deepseek-v3.1"}),
    "deepseek-v2": Family("16b", {"16b": "deepseek-v2-lite-chat", "236b": "deepseek-v2-chat"}, "q4_0"),
    "deepseek-v2.5": Family("236b", {"236b": "deepseek-v2.5"}, "q4_0"),
    "deepseek-coder": Family("1.3b", _each("deepseek-coder-{}-instruct", "1.3b 6.7b 33b"), "q4_0"),
    "deepseek-coder-v2": Family("16b", {"16b": "deepseek-coder-v2-lite-instruct"}, "q4_0"),
    "granite3.3": Family("8b", _each("granite-3.3-{}-instruct", "2b 8b")),
    "granite4": Family(
        "micro",
        {
            "micro": "granite-4.0-micro",
            **{f"{size}-h": f"granite-4.0-h-{size}" for size in ("micro", "tiny", "small")},
        },
    ),
    "olmo2": Family("7b", _each("olmo-2-1124-{}-instruct", "7b 13b")),
    "command-r": Family("35b", {"35b": "c4ai-command-r-v01"}),
    "command-r-plus": Family("104b", {"104b": "c4ai-command-r-plus"}, "q4_0"),
    "command-r7b": Family("7b", {"7b": "c4ai-command-r7b-12-2024"}),
    "command-a": Family("111b", {"111b": "c4ai-command-a-03-2025"}),
    "aya-expanse": Family("8b", {"8b": "aya-expanse-8b"}),
    "exaone3.5": Family("7.8b", _each("exaone-3.5-{}-instruct", "2.4b 7.8b 32b")),
    "falcon3": Family("7b", _each("falcon3-{}-instruct", "1b 3b 7b 10b"), own={"1b": "q8_0"}),
    "starcoder2": Family("3b", _each("starcoder2-{}", "3b 7b 15b"), "q4_0"),
    # Trained further from these, layer for layer.
    "hermes3": Family("8b", _each("hermes-3-llama-3.1-{}", "8b 70b"), "q4_0"),
    "dolphin3": Family("8b", {"8b": "llama-3.1-8b-instruct"}),
    "cogito": Family(
        "8b",
        {
            "3b": "llama-3.2-3b-instruct",
            "8b": "llama-3.1-8b-instruct",
            **_each("qwen2.5-{}-instruct", "14b 32b"),
            "70b": "llama-3.1-70b-instruct",
        },
    ),
    "tulu3": Family("8b", _each("llama-3.1-{}-instruct", "8b 70b")),
    "medgemma": Family("4b", _each("gemma-3-{}-it", "4b 27b")),
    "qwen": Family("4b", _each("qwen1.5-{}-chat", "0.5b 1.8b 4b 7b 14b 72b"), "q4_0"),
    "codegemma": Family("7b", _each("gemma-{}-it", "2b 7b"), "q4_0"),
    "nomic-embed-text": Family("137m-v1.5", {"137m-v1.5": "nomic-embed-text-v1.5"}, "f16"),
    "bge-m3": Family("567m", {"567m": "bge-m3"}, "f16"),
    "bge-large": Family("335m", {"335m": "bge-large-en-v1.5"}, "f16"),
    "all-minilm": Family("22m", {"22m": "all-minilm-l6-v2"}, "f16"),
    "smollm2": Family("1.7b", _each("smollm2-{}-instruct", "135m 360m 1.7b"), "q8_0"),
    "glm-4.7-flash": Family("30b", {"30b": "glm-4.7-flash"}),
    "nemotron-3-nano": Family("30b", {"30b": "nvidia-nemotron-3-nano-30b-a3b-bf16"}),
}
"""The library's families of which a card has the model."""
HEADS = ("ollama:", "ollama.com/library/", "registry.ollama.ai/library/", "ollama.com/", "library/")
"""Prefixes of the library's names."""
_TAG = regex(
    r"(?:-?(?:instruct|it|chat|text|distill))*-?(?P<mixture>(?:i?q\d|fp16|f16|bf16|mxfp4)[\w-]*)?", re.ASCII
)


def is_library_name(key: str) -> bool:
    """Whether a name (lower case) is written as the library's are: ``ollama:…``, or ``family:tag``."""
    return key.startswith(HEADS) or (key.partition(":")[0] in OLLAMA and ":" in key)


def named_in(head: str, name: str) -> str:
    """A name as it is meant where a program was named whose own names begin so: ``llama3.3`` of Ollama's
    library; as it was where it has none such."""
    key = name.strip().lower()
    return f"{head}{name.strip()}" if head and key.partition(":")[0] in OLLAMA else name


def library_name(key: str) -> tuple[str, str] | None:
    """(a card's name, the mixture) of a name of the library; None of what is none.

    Raises KvplanError(unknown-model) for a tag that no rule reads.

    >>> library_name("deepseek-r1:32b")
    ('deepseek-r1-distill-qwen-32b', 'q4_k_m')
    >>> library_name("ollama:llama3.3:70b-instruct-q8_0")
    ('llama-3.3-70b-instruct', 'q8_0')
    """
    headed = key.startswith(HEADS)
    for head in HEADS:
        key = key.removeprefix(head)
    name, _, tag = key.partition(":")
    family = OLLAMA.get(name)
    if family is None:
        if headed:
            near = near_library_name(key)
            raise KvplanError(
                "unknown-model", f"no card has the model of Ollama's `{key}`",
                help=(
                    *([f"did you mean {near}?"] if near else []),
                    "give its .gguf file, or the model's own name with -e ollama",
                ),
            )  # fmt: skip
        return None
    if tag in ("", "latest"):
        return family.sizes[family.usual], _of(family, family.usual)
    if tag.endswith("cloud"):
        raise KvplanError("unknown-model", f"`{key}` runs on Ollama's servers: no GPU of yours holds it")
    if "qat" in tag:
        raise KvplanError(
            "unknown-model", f"which types the tensors of `{key}` have is no public rule",
            help="give its .gguf file, or --weights 18GiB beside the model's own name",
        )  # fmt: skip
    for size in sorted(family.sizes, key=len, reverse=True):
        rest = tag.removeprefix(size)
        found = _TAG.fullmatch(rest) if rest != tag else None
        if found is not None:
            said = found["mixture"]
            return family.sizes[size], said.replace("-", "_").replace("fp16", "f16") if said else _of(
                family, size
            )
    near = near_library_name(key)
    known = "known: " + ", ".join(f"{name}:{size}" for size in family.sizes)
    raise KvplanError(
        "unknown-model", f"the tag `{tag}` of Ollama's {name} is not known",
        help=(*([f"did you mean {near}?"] if near else []), known),
    )  # fmt: skip


def near_library_name(key: str) -> str | None:
    """The name of the library that is most like one that it has not.

    >>> near_library_name("llama3.4:8b"), near_library_name("qwen3:15b"), near_library_name("nothing-like")
    ('llama3.1:8b', 'qwen3:14b', None)
    """
    name, _, tag = key.partition(":")
    if not tag:
        return did_you_mean(name, OLLAMA)
    ends = {end: one for end, one in OLLAMA.items() if tag in one.sizes}
    found = name if name in OLLAMA else did_you_mean(name, ends) or did_you_mean(name, OLLAMA)
    size = None if found is None else did_you_mean(tag, OLLAMA[found].sizes)
    return found if size is None else f"{found}:{size}"


def name_in_library(card: str) -> str | None:
    """The library's name of a model, by the card's name; None of a model that it does not have, or has twice.

    >>> name_in_library("Qwen/Qwen3-8B")
    'qwen3:8b'
    """
    key = card.lower().rpartition("/")[2]
    found = [
        f"{name}:{size}" for name, one in OLLAMA.items() for size, its in one.sizes.items() if its == key
    ]
    return found[0] if found and len({name.partition(":")[0] for name in found}) == 1 else None


def run_name(typed: str, card: str, build: str) -> str:
    """The name for ``ollama run``: the library's name where it was typed, or where its file of the card's
    model is of that mixture; else the name of one made of a file (``FROM ./FILE.gguf`` in a Modelfile).

    >>> run_name("ollama:qwen3:8b", "qwen3:8b", "q4_k_m"), run_name("qwen3-8b", "Qwen/Qwen3-8B", "q8_0")
    ('qwen3:8b', 'Qwen3-8B-Q8_0.gguf')
    """
    key = typed.strip().lower()
    if is_library_name(key):
        for head in HEADS:
            key = key.removeprefix(head)
        return key
    name = name_in_library(card)
    if name is not None and library_name(name) == (card.lower().rpartition("/")[2], build):
        return name
    return f"{card.rpartition('/')[2]}{f'-{build.upper()}' if build else ''}.gguf"


def _of(family: Family, size: str) -> str:
    return family.own.get(size, family.mixture)
