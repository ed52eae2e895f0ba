"""Files beside a config that a class wants while vLLM plans: the smallest that its processor takes.

vLLM 0.27 and later asks transformers' processor of Llama 3.2 Vision how many tokens an image has.
"""

from __future__ import annotations

from typing import Any

_WORDS = ("<unk>", "<|begin_of_text|>", "<|end_of_text|>", "<|image|>", "a")
_ADDED = [
    {"id": number, "content": word, "special": True}
    | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, word in enumerate(_WORDS[:-1])
]
_TOKENIZER = {
    "version": "1.0",
    **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
    "added_tokens": _ADDED,
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(_WORDS)},
        "unk_token": "<unk>",
    },
}
_MLLAMA: dict[str, dict[str, Any]] = {
    "tokenizer.json": _TOKENIZER,
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>", "unk_token": "<unk>", "image_token": "<|image|>",
        "extra_special_tokens": {"image_token": "<|image|>"}, "processor_class": "MllamaProcessor",
    },
    "processor_config.json": {"processor_class": "MllamaProcessor"},
    "preprocessor_config.json": {
        "image_processor_type": "MllamaImageProcessor", "size": {"height": 560, "width": 560},
        "max_image_tiles": 4, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
        **dict.fromkeys(("do_pad", "do_normalize", "do_rescale", "do_resize", "do_convert_rgb"), True),
    },
}  # fmt: skip
_NOTE: dict[str, dict[str, Any]] = {"added_tokens.json": {"<|imgpad|>": 5}}
FILES = {"MllamaForConditionalGeneration": _MLLAMA, "Dots3NoteForCausalLM": _NOTE}
"""Class → file → its content."""
