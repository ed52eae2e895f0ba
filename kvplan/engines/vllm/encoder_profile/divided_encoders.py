"""The encoders beside a decoder whose attention heads vLLM divides over the tensor-parallel ranks.

vllm-project/vllm 0.32, vllm/model_executor/models/: the attention of these towers calls
``dist_utils.divide(num_heads, tp_size)`` or asserts ``num_heads % tp_size == 0``, and the server stops while
it builds them. ``data/encoders.tsv`` has a row for each class: where its config states the heads, the files
whose attention divides them, and ``data`` where the class heeds ``--mm-encoder-tp-mode data``
(``supports_encoder_tp_data``), which leaves the tower whole on every rank. Classes without a row keep theirs
whole where it does not divide (intern_vit.py, kimi_k25_vit.py, muse_glimmer.py), never divide it
(transformers' own towers of Gemma 3n and 4, interns1_vit.py, qwen2_audio.py, deepseek_vl2.py), or are not
known here: nothing is said of them, nor of releases before 0.20, whose towers were not read.

Text alone changes nothing: with ``--limit-mm-per-prompt`` of 0 (``--language-model-only``) a tower is
still built, on the meta device, before a placeholder takes its place (interfaces.py, _mark_tower_model;
utils.py, no_init_weights).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from kvplan.engines.vllm.versions import rules_of
from kvplan.model import Model
from kvplan.results import Refusal

FILE = Path(__file__).parents[1] / "data" / "encoders.tsv"
HEADER = ("class", "encoder", "heads", "source", "mode")
HEEDS_DATA = frozenset(
    {
        "DeepseekV41ForCausalLM",
        "InternVLChatModel",
        "H2OVLChatModel",
        "NVLM_D",
        "QianfanOCRForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
    }
)
"""Classes that no number of ranks stops and that heed ``--mm-encoder-tp-mode data`` (0.33)."""


class Encoder(NamedTuple):
    """kind: vision or audio. heads: the dotted keys of the config, the first that is there counts, or `=` and
    the number that the class has. source: files, with commas. data: whether the class can leave it whole."""

    kind: str
    heads: str
    source: str
    data: bool


@cache
def encoders() -> Mapping[str, Encoder]:
    """Architecture → its encoder."""
    header, *lines = FILE.read_text(encoding="utf-8").splitlines()
    assert tuple(header.split("\t")) == HEADER
    rows = (line.split("\t") for line in lines)
    return MappingProxyType(
        {name: Encoder(kind, heads, source, mode == "data") for name, kind, heads, source, mode in rows}
    )


def encoder_heads(model: Model, version: str) -> int:
    """The heads that every number of ranks must divide; 0: none that are known."""
    encoder = encoders().get(model.architecture or "")
    if encoder is None or not rules_of(version).encoder_heads_read:
        return 0
    if encoder.heads.startswith("="):
        return int(encoder.heads[1:])
    return next((heads for key in encoder.heads.split(",") if (heads := _stated(model.config, key))), 0)


def undivided_encoder(model: Model, tp: int, version: str, *, whole: bool) -> Refusal | None:
    """The refusal of an encoder whose heads do not divide over so many ranks; None where its config does not
    state them. whole: with --mm-encoder-tp-mode data."""
    heads = encoder_heads(model, version)
    if heads % tp == 0:
        return None
    encoder = encoders()[model.architecture or ""]
    if encoder.data and whole:
        return None
    ways = ("--mm-encoder-tp-mode data: the encoder whole on every GPU",) if encoder.data else ()
    return Refusal(
        "tensor-parallel",
        f"{heads} attention heads of the {encoder.kind} encoder cannot be divided over {tp}"
        " tensor-parallel ranks",
        help=ways,
    )


def _stated(config: Any, path: str) -> int | None:
    """The number at a dotted key, where it is one."""
    for key in path.split("."):
        if not isinstance(config, Mapping):
            return None
        config = config.get(key)
    return config if isinstance(config, int) and not isinstance(config, bool) and config > 0 else None
