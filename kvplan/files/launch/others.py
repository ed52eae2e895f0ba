"""Engines for which there are no rules, so that a file that starts one is refused by its name."""

from __future__ import annotations

import re

from kvplan.files.launch.trees import Tree
from kvplan.later import regex

_STARTS: tuple[tuple[str, str], ...] = (
    (r"lmdeploy\s+serve", "LMDeploy"), (r"lmdeploy\s+chat", "LMDeploy"), (r"openmmlab/lmdeploy", "LMDeploy"),
    (r"koboldcpp(?:\.py|\.exe|-\S+)?", "KoboldCpp"), (r"tabby[-_]?api", "TabbyAPI"),
    (r"aphrodite\s+run|aphrodite\.endpoints\S*|alpindale/aphrodite\S*", "Aphrodite"),
    (r"mlc_llm\s+(?:serve|chat)", "MLC LLM"), (r"mistralrs(?:-server)?", "mistral.rs"),
    (r"ktransformers\S*", "KTransformers"),
    (r"lightllm\.server\S*", "LightLLM"), (r"fastchat\.serve\.\S+", "FastChat"),
    (r"infinity_emb", "Infinity"), (r"text-embeddings-(?:router|inference)", "Text Embeddings Inference"),
    (r"tritonserver", "Triton"), (r"xinference(?:-local)?", "Xinference"), (r"openllm\s+\w+", "OpenLLM"),
    (r"llamafile", "llamafile"), (r"deepspeed\.mii|mii\.\S+", "DeepSpeed-MII"),
    (r"exllamav[23]\S*", "ExLlama"),
    (r"llama_cpp\.server", "llama-cpp-python"), (r"text-generation-webui", "text-generation-webui"),
    (r"rtp_llm\S*|maga_start", "RTP-LLM"), (r"max\s+serve|modular/max\S*", "MAX"), (r"turbomind", "LMDeploy"),
    (r"ramalama\s+serve", "RamaLama"), (r"shimmy\s+serve", "Shimmy"),
)  # fmt: skip
"""How they are started, by themselves or as an image, and what they are called."""
_ANY = regex("|".join(f"(?<![\\w.-])(?:{form})(?![\\w-])" for form, _ in _STARTS), re.IGNORECASE)


def engine_named(text: str) -> str | None:
    """The other engine that a text starts; None where it names none."""
    match = _ANY.search(text)
    if match is None:
        return None
    return next(title for form, title in _STARTS if re.fullmatch(form, match[0], re.IGNORECASE))


def engine_of_document(document: Tree) -> str | None:
    """TabbyAPI's ``config.yml``, KoboldCpp's saved settings."""
    model = document.get("model")
    if isinstance(model, dict) and {"cache_mode", "max_seq_len", "model_name"} <= model.keys():
        return "TabbyAPI"
    if {"model_param", "contextsize", "gpulayers"} <= document.keys():
        return "KoboldCpp"
    return None
