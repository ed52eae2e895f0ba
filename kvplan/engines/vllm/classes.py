"""All that is known of a model class under vLLM is one row of ``data/classes.json``, written by hand.

Which releases have a class is ``kvplan/engines/data/classes.tsv``; what its forward pass takes was traced
(``data/decoders.json``, ``data/towers.json``). A class without a row has what `ModelClass` has by default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvplan.engines.release_rules import reached, within
from kvplan.record import Json, field, record

FILE = Path(__file__).parent / "data" / "classes.json"
_NOTHING: Json = MappingProxyType({})


@record()
class Encoder:
    """An encoder of images, or of sound (vllm/model_executor/models/, 0.32)."""

    config_part: str | None = None
    """Where its config stands, dotted; empty: the whole; None: ``vision_config`` or ``audio_config``."""
    heads: str = ""
    """Dotted keys of the heads that the ranks must divide, the first that is there, or `=` and the number."""
    heads_source: str = ""
    """Files whose attention divides those heads, with commas."""
    divided: str = ""
    """``never``; ``parts``: its perceptrons are and its attention is not (interns1_vit.py)."""
    like: str = ""
    """A class that was traced and builds the same layers."""
    gated: bool = False
    """Its MLPs are gated: two operations before 0.16 (compile_native of layers/activation.py)."""
    rotates: bool = False
    """Rotates in float32 before 0.13 (qwen2_vl.py, apply_rotary_pos_emb_vision)."""
    projected: bool = False
    """No layers: raw patches are projected (gemma4_unified.py, _process_image_input), or looked up and added
    (vllm/models/inkling/common/towers.py, dmel_embed_sum_norm): inputs and outputs are what grows."""
    item_bytes: tuple[int | None, ...] = ()
    """Of an encoder of one size, whatever the config says: bytes of an item (`patch_bytes.Cost`)."""
    item_source: str = ""
    widths: tuple[int, ...] = ()
    """Hidden size, MLP, side of a patch (of sound: inputs of an item), whatever the config says."""
    default_widths: tuple[int, ...] = ()
    """Hidden size and MLP where its part of the config leaves them out."""
    published_widths: tuple[int, ...] = ()
    """Hidden size, MLP, inputs of a patch of its widest checkpoint, for a config without such a part."""
    widths_source: str = ""


@record()
class ModelClass:
    """vLLM's knowledge of a class."""

    registered_as: str = ""
    """The registry's name, where a public copy of a config, or transformers, gives it another."""
    gone: tuple[str, ...] = ()
    """Releases [since, until) whose registry had lost it."""
    largest_item: str = ""
    """The rule of its largest image, video or sound (`encoder_profile.largest_items.RULES`)."""
    modalities: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    """The most items of a modality in a prompt, whatever is asked (get_supported_mm_limits)."""
    processor_not_read: bool = False
    """Its checkpoint's processor was not read: the limits are the class's own, or the model's before it."""
    whole_items: bool = False
    """Prompts are not cut inside an item (`encoder_profile.whole_items`)."""
    whole_prompts: bool = False
    """Encoder and decoder: no chunked prefill, so that no more requests run than whole items fit."""
    data_mode: bool = False
    """Heeds ``--mm-encoder-tp-mode data`` (supports_encoder_tp_data, 0.33)."""
    encoder: Encoder = Encoder()
    audio: Encoder = Encoder()
    lora: Json | None = None
    """Modules that adapters wrap, as `weights.adapters.Wrapped` has it; None: not known."""
    lora_since: str = "0.30"
    """The first release in which that was read."""
    no_lora: bool = False
    """Without ``SupportsLoRA``: vLLM does not start with --enable-lora."""
    tied_twice_until: str = ""
    """Until then its tied head was the embedding's module (models/qwen3.py, ``self.lm_head =
    self.model.embed_tokens``), wrapped under both names (lora/model_manager.py, _create_lora_modules,
    remove_duplicate=False, "lm_head" excepted): one more A and B of the vocabulary for each adapter."""
    every_state: bool = False
    """``SupportsMambaPrefixCaching`` (interfaces.py)."""
    kda_checkpoint_since: str = ""
    """Its Kimi Delta Attention reserves a state for its prefill checkpoint (kimi_k3/nvidia/kda.py)."""
    drafts_since: str = ""
    """Built before its own layers drafted (vllm/config/speculative.py, hf_config_override)."""
    v2_runner: tuple[str, ...] = ()
    """Releases [since, until) whose V2 runner serves it by name (`start.runner`)."""
    v2_runner_not_on_amd: bool = False
    own_kernels: bool = False
    """Fused kernels that write FlashInfer's pages (vllm/models/flint/model.py)."""
    one_rank: bool = False
    """Refuses tensor parallelism (dory.py)."""
    nameless_decoder: bool = False
    """Its language model has no architecture of its own until 0.30 (vllm-project/vllm#43271)."""
    no_parallel_plan: bool = False
    """Run through transformers, which says nothing of how it is divided."""
    activation_by_formula: bool = False
    """Its published starts are met closer by the formula than by its traced rows, by 0.05 to 0.1 GiB."""
    profiles_context_until: str = ""
    """Since then its own attention takes no context in a profile run; before it ran mla_attention.py's."""

    @property
    def hears_alone(self) -> bool:
        """Whether sound is all that it takes."""
        return self.modalities == ("audio",)

    @property
    def main_encoder(self) -> Encoder:
        """The encoder of sound where there is no other."""
        return self.audio if self.hears_alone else self.encoder


@cache
def _rows() -> Mapping[str, Json]:
    found: Mapping[str, Json] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def names() -> tuple[str, ...]:
    """The classes that have a row."""
    return tuple(_rows())


def _lists_as_tuples(entry: Json) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


@cache
def class_of(name: str | None) -> ModelClass:
    """The row of an architecture."""
    row = _lists_as_tuples(_rows().get(name or "", _NOTHING))
    for key, kind in (("encoder", Encoder), ("audio", Encoder), ("lora", dict)):
        if key in row:
            row[key] = kind(**_lists_as_tuples(row[key]))
    return ModelClass(**row)


def is_within(version: str, releases: tuple[str, ...]) -> bool:
    """Whether a release is one of [since, until); of none: it is not."""
    return bool(releases) and within(version, *releases)


def is_since(version: str, since: str) -> bool:
    """Whether what is so since a release is so in this one; empty: it never is."""
    return bool(since) and reached(version, since)


def encoder_of(name: str) -> Encoder:
    """The encoder of a class, or with `/audio` behind its name that of sound beside one of images."""
    name, _, beside = name.partition("/")
    row = class_of(name)
    return row.audio if beside else row.main_encoder
