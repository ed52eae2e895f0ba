"""How wide the encoder of a class is: where its config says so, and what its class has where it does not.

The encoder's part of a config: where it stands, and what its class has where it does not say.

A published config may leave out what equals the default of its class (HuggingFaceTB/SmolVLM2-2.2B-Instruct
config.json has no width of its encoder), and a whole part too: vLLM reads it with transformers' class
(vllm-project/vllm vllm/transformers_utils/config.py, get_config, 0.32), whose defaults are those of the table
in architectures/data.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kvplan.architectures.config.class_names import class_facts
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.encoder_profile.dummy_items import whole
from kvplan.engines.vllm.encoder_profile.patch_bytes import Widths
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import Json

_MELS = 128
_CONFORMER = "encoder_config"
"""The part of Granite's encoder of sound: 1,024 wide, MLPs four times that, 160 inputs of a position, in all
published checkpoints (ibm-granite/granite-speech-3.3-2b … 4.1-2b config.json) and by default (transformers,
GraniteSpeechEncoderConfig)."""


def widths_of(model: Model, config: Json, tower: str = "") -> Widths | None:
    """The tower's widths; None where they are not known."""
    row = class_of(model.architecture)
    if row.audio.config_part == _CONFORMER:
        return _conformer(model, config)
    if not tower:
        return _vision(model, config)
    if not row.audio.widths:
        return _audio(model, part_of(model.architecture or "", config, tower))
    hidden, mlp, inputs = row.audio.widths
    return Widths(hidden, mlp, model.hidden_size, inputs)


def _vision(model: Model, config: Part) -> Widths | None:
    """The class's own, else those of the config's part, which the published one may have left out."""
    name = model.architecture or ""
    encoder, stated = class_of(name).encoder, stated_part(name, config)
    if encoder.widths:
        hidden, mlp, patch = encoder.widths
        return Widths(hidden, mlp, model.hidden_size, 3 * patch * patch)
    if stated is None and encoder.published_widths:
        hidden, mlp, pixels = encoder.published_widths
        return Widths(hidden, mlp, model.hidden_size, pixels)
    part = stated if encoder.default_widths else part_of(name, config)
    if part is None:
        return None
    projected = _width(part, "mm_embed_dim")
    if projected:
        side = (_width(part, "patch_size") or 16) * (_width(part, "pooling_kernel_size") or 3)
        return Widths(projected, projected, model.hidden_size, 3 * side * side)
    return _tower(model, part, encoder.default_widths or (0, 0))


def _width(part: Part, *keys: str) -> int:
    """The first that the part states; 0 where it states none."""
    found = (whole(part.get(key), 0) for key in keys)
    return next((value for value in found if 0 < value <= 10**6), 0)


def _tower(model: Model, part: Part, default: tuple[int, ...]) -> Widths | None:
    hidden = _width(part, "embed_dim", "vt_hidden_size", "width", "hidden_size", "d_model") or default[0]
    ratio = part.get("mlp_ratio")
    scaled = int(hidden * ratio) if isinstance(ratio, (int, float)) and 0 < ratio < 100 else 0
    mlp = _width(part, "intermediate_size", "vt_intermediate_size") or scaled or default[1]
    if not hidden or not mlp:
        return None
    patch = _width(part, "patch_size", "image_patch_size") or 14
    frames = _width(part, "temporal_patch_size") or 1
    return Widths(hidden, mlp, model.hidden_size, 3 * patch * patch * frames)


def _conformer(model: Model, config: Json) -> Widths | None:
    part = config.get("encoder_config")
    part = part if isinstance(part, Mapping) else {}
    hidden = whole(part.get("hidden_dim"), 1024)
    times, mels = whole(part.get("feedforward_mult"), 4), whole(part.get("input_dim"), 160)
    if max(hidden, times * hidden, mels) > 10**6:
        return None
    return Widths(hidden, times * hidden, model.hidden_size, mels)


def _audio(model: Model, part: Json | None) -> Widths | None:
    """Two columns of the spectrogram to a position."""
    if part is None:
        return None
    looked_up = whole(part.get("n_mel_bins"), 0)
    if 0 < looked_up <= 10**6:  # a table for each bin, added up
        return Widths(model.hidden_size, model.hidden_size, model.hidden_size, 2 * looked_up)
    whisper = class_of(model.architecture).audio.config_part == ""
    plain = 0 if whisper else whole(part.get("hidden_size"), 0)
    hidden = whole(part.get("d_model"), model.hidden_size if model.model_type == "whisper" else plain)
    ffn = whole(part.get("encoder_ffn_dim"), whole(part.get("intermediate_size"), 4 * hidden))
    mels = whole(part.get("num_mel_bins"), _MELS)
    if not 0 < hidden <= 10**6 or not 0 < ffn <= 10**6 or mels > 10**6:
        return None
    return Widths(hidden, ffn, model.hidden_size, 2 * mels)


Part = Json


class Patch(NamedTuple):
    """Pixels of its side, and the frames of a video that are one patch."""

    side: int
    frames: int = 1


_PATCHES: Mapping[str, Patch] = {
    **dict.fromkeys(("glm4v_vision", "glm4v_moe_vision", "glm_ocr_vision"), Patch(14, 2)),
    **dict.fromkeys(("qwen3_vl_vision", "qwen3_vl_moe_vision"), Patch(16, 2)),
    **dict.fromkeys(("qwen3_5_vision", "qwen3_5_moe_vision", "qwen4_exp_vision"), Patch(16, 2)),
    "qwen3_omni_moe_vision_encoder": Patch(16, 2),
}
"""Of types whose class has other patches than 14 × 14 pixels of one frame; the table has no patches."""


def stated_part(name: str, config: Part, tower: str = "") -> Part | None:
    """The encoder's part as the config states it; None where it has none."""
    found: Any = config
    for key in _path(name, tower):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def part_of(name: str, config: Part, tower: str = "") -> Part | None:
    """The encoder's part with what its class has besides; None where neither config nor class has one."""
    kind = config.get("model_type")
    for key in _path(name, tower):
        kind = _kind_below(kind, key)
    part = stated_part(name, config, tower)
    own = part.get("model_type") if part is not None else None
    facts = class_facts(own) if isinstance(own, str) else None
    if facts is None and isinstance(kind, str):
        own, facts = kind, class_facts(kind)
    if facts is None or not _path(name, tower):
        return part
    return _completed(part or {}, facts, _PATCHES.get(str(own)))


def _path(name: str, tower: str) -> tuple[str, ...]:
    row = class_of(name)
    path = row.audio.config_part if tower else row.encoder.config_part
    if path is None:
        path = "audio_config" if tower else "vision_config"
    return tuple(path.split(".")) if path else ()


def _kind_below(kind: object, key: str) -> object:
    """The model type of the part at a key, as the class of the whole names it."""
    facts = class_facts(kind) if isinstance(kind, str) else None
    below = (facts or {}).get("sub_configs", {}).get(key)
    return below.get("type") if isinstance(below, Mapping) else below


def _completed(part: Part, facts: Part, patch: Patch | None) -> Part:
    """A width that the part states under another of its names, or as a ratio, is stated."""
    aliases = facts.get("aliases", {})
    stated = {*part, *(real for alias, real in aliases.items() if alias in part)}
    if "mlp_ratio" in part:
        stated.add("intermediate_size")
    patches = {} if patch is None else {"patch_size": patch.side, "temporal_patch_size": patch.frames}
    more = {key: value for key, value in facts.get("defaults", {}).items() if key not in stated}
    return MappingProxyType({**patches, **more, **part})
