"""Keys, values and queries of a real model on real text, as transformers computes them (extra ``hf``).

The checkpoint is a folder or a name in the local cache: nothing is fetched, no code of it is run, only
safetensors are read. Attention is transformers' own (sdpa); what goes into it is looked at on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.folders import is_folder
from kvplan.proof.numerics.measure import Sample
from kvplan.proof.tensor import Tensor

Seen = Callable[[int, Sample], None]
"""Told the layer and what its attention reads."""
_NAME = "kvplan_watched"
MOST_TEXT = 10**6


def manual_text() -> str:
    """English prose that every Python brings: the topics of its reference manual."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def read_text(path: Path) -> str:
    """The first million characters of a file. Raises KvplanError(unreadable-file)."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_TEXT)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}") from None


def watch(path: str, text: str, tokens: int, queries: int, device: str, seen: Seen) -> str:
    """Run the model on the first ``tokens`` of the text, telling ``seen`` of every layer's attention.

    Returns what was run, in words. Raises CannotRunHere(missing-extra), KvplanError(bad-model).
    """
    try:
        import torch
        import transformers
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "running a model needs transformers and torch",
            help="pip install 'kvplan[hf,gpu]'",
        ) from error

    def watched(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any) -> Any:
        layer = getattr(module, "layer_idx", None)
        if layer is not None and not torch.isnan(key).any():
            scale = options.get("scaling") or query.shape[-1] ** -0.5
            sample = Sample(
                query[0, :, -queries:].float(), key[0].float(), value[0].float(), None, float(scale),
                options.get("sliding_window"),
            )  # fmt: skip
            seen(int(layer), sample)
        return sdpa_attention_forward(module, query, key, value, mask, **options)

    if path.startswith((".", "/", "~")) and not is_folder(Path(path)):
        raise KvplanError("bad-model", f"there is no folder {path}")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    AttentionInterface.register(_NAME, watched)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, attn_implementation=_NAME, local_files_only=True, trust_remote_code=False,
            use_safetensors=True, dtype="auto",
        )  # fmt: skip
        numbers, said = _tokens(transformers, path, text, tokens, model.config.get_text_config().vocab_size)
        with torch.inference_mode():
            model.to(device).eval()(numbers.to(device), use_cache=False)
    except (KvplanError, MemoryError):
        raise
    except Exception as error:  # the library's classes raise whatever they like
        reason = " ".join(str(error).split())[:200]
        raise KvplanError(
            "bad-model",
            f"{path} cannot be run",
            detail=f"{type(error).__name__}: {reason}",
            help="a folder with config.json and model.safetensors of a class that transformers has",
        ) from error
    return f"{Path(path).name} on {numbers.shape[-1]:,} tokens {said}"


def _tokens(transformers: Any, path: str, text: str, count: int, vocabulary: int) -> tuple[Tensor, str]:
    """The text's tokens; where the folder has no tokenizer, tokens drawn at random."""
    import torch

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        numbers = tokenizer(text, return_tensors="pt", truncation=True, max_length=count)["input_ids"]
    except Exception:  # there is none, or one that cannot be read
        noise = torch.Generator().manual_seed(0)
        return torch.randint(0, vocabulary, (1, count), generator=noise), "drawn at random (no tokenizer)"
    if numbers.shape[-1] < 2:
        raise KvplanError("bad-text", "the text has fewer than two tokens")
    return numbers[:, :count], "of text"
