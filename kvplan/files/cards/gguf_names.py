"""Names of GGUF builds, of Hugging Face repositories, LM Studio and Ollama, as doors to llama.cpp's rules.

``bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M`` (llama-server -hf), ``…-GGUF@q4_k_m`` (LM Studio) and
``ollama:llama3.3:70b-instruct-q4_K_M`` (`kvplan.files.cards.ollama_names`) say a model and a mixture of
types. Without a mixture llama-server takes Q4_K_M where a repository has it (ggml-org/llama.cpp
common/download.cpp, 0.5). Unsloth's MXFP4_MOE keeps more in 8 bits than llama-quantize does.
"""

from __future__ import annotations

import re

from kvplan.files.cards.ollama_names import is_library_name, library_name
from kvplan.later import regex

DEFAULT = "q4_k_m"
_TAGGED = regex(r"(?P<base>.+?)(?:-i1|-imatrix|-qat)?-gguf(?:[:@](?P<tag>[\w-]+))?", re.ASCII)
_LM_STUDIO = regex(r"(?P<base>[^:@]+)@(?P<tag>(?:ud-)?(?:i?q\d|mxfp4|b?f16|f32)[\w-]*)", re.ASCII)
"""A model of LM Studio's catalogue with its build: ``qwen/qwen3-14b@q4_k_m`` (``lms get``)."""
_UNSLOTH_MXFP4 = regex(r"unsloth/(?!gpt-oss-)", re.ASCII)
_ONE_FILE = regex(r"(ggml-org|lmstudio-community)/gpt-oss-", re.ASCII)
"""Repositories of gpt-oss that have one file, its experts as OpenAI published them, the rest Q8_0."""

_OLDER = frozenset(
    """
    deepseek-v2 deepseek-v2-chat deepseek-v2-lite deepseek-v2-lite-chat deepseek-v2.5
    deepseek-coder-v2-lite-base deepseek-coder-v2-lite-instruct
    """.split()
)
"""Models of 2024 whose latents llama.cpp did not cache yet (ggml-org/llama.cpp pull request 12801 of
2025-04-15: attention.key_length_mla); Ollama's library has such files of them."""
_OLDER_IN_LIBRARY = frozenset({"deepseek-v3"})
"""One that Ollama's library has as of January 2025."""
_OLDER_OR_NOT = frozenset(
    ("deepseek-v3", "deepseek-v3-base", "deepseek-v3-0324", "deepseek-r1", "deepseek-r1-zero")
)
"""Models of early 2025: some of their repositories were made anew after it."""
SINCE = "made before April 2025, when llama.cpp began to cache latents"


def has_latents(name: str, model: str) -> tuple[bool, str]:
    """Whether a GGUF build by its name has the latents of a model (a card's id) in its cache, and a
    sentence where the file itself may say otherwise.

    >>> has_latents("ollama:deepseek-coder-v2", "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct")[0]
    False
    >>> has_latents("unsloth/DeepSeek-V3.1-GGUF:Q4_K_M", "deepseek-ai/DeepSeek-V3.1")
    (True, '')
    """
    key, library = model.lower().rpartition("/")[2], is_library_name(name.strip().lower())
    if key in _OLDER or (library and key in _OLDER_IN_LIBRARY):
        return (
            False,
            f"its files were {SINCE}: K and V of every head are cached; a newer file's header says so",
        )
    if key in _OLDER_OR_NOT and not library:
        return True, f"a file {SINCE}, caches K and V of every head: its header says which"
    return True, ""


def gguf_name(key: str) -> tuple[str, str] | None:
    """(a card's name, the mixture) that the name of a GGUF build says; None where it is none. Lower case.

    Raises KvplanError(unknown-model) for a tag of Ollama's library that no rule reads.

    >>> gguf_name("bartowski/llama-3.3-70b-instruct-gguf:q5_k_m")
    ('bartowski/llama-3.3-70b-instruct', 'q5_k_m')
    >>> gguf_name("ggml-org/gpt-oss-20b-gguf")
    ('ggml-org/gpt-oss-20b', 'mxfp4_moe')
    """
    if is_library_name(key):
        return library_name(key)
    found = _TAGGED.fullmatch(key) or _LM_STUDIO.fullmatch(key)
    if found is None:
        return None
    usual = "mxfp4_moe" if _ONE_FILE.match(key) else DEFAULT
    tag = (found["tag"] or usual).replace("-", "_").replace("fp16", "f16")
    own = tag.startswith("mxfp4") and _UNSLOTH_MXFP4.match(key)
    return found["base"], f"ud_{tag}" if own else tag


_FILE = regex(
    r"(?P<base>.+?)[-.](?P<tag>(?:UD-)?(?:I?Q\d\w*|F16|BF16|F32|MXFP4\w*))(?:-\d{5}-of-\d{5})?\.gguf",
    re.ASCII | re.IGNORECASE,
)


def gguf_file(name: str) -> str | None:
    """The name of the build that a GGUF file is called after; None where nothing says it.

    >>> gguf_file("Qwen3-8B-Q4_K_M.gguf")
    'Qwen3-8B-GGUF:Q4_K_M'
    """
    found = _FILE.fullmatch(name)
    return None if found is None else f"{found['base']}-GGUF:{found['tag']}"
