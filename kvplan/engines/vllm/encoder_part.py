"""The encoder's part of a config: where it stands, and what its class has where it does not say.

A published config may leave out what equals the default of its class (HuggingFaceTB/SmolVLM2-2.2B-Instruct
config.json has no width of its encoder), and a whole part too: vLLM reads it with transformers' class
(vllm-project/vllm vllm/transformers_utils/config.py, get_config, 0.32), whose defaults are those of the table
in architectures/data.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kvplan.architectures.config.class_names import class_facts

Part = Mapping[str, Any]
_PLACES = {
    "Qwen2_5Omni": "thinker_config.vision_config",
    "Qwen3Omni": "thinker_config.vision_config",
    "Molmo2": "vit_config",
    "Ovis2": "vit_config",
    "Ovis": "visual_tokenizer_config.backbone_config",
}
"""Start of a class's name → the part of its config that its encoder of images reads; else `vision_config`."""
_AUDIO_PLACES = {
    "Qwen2_5Omni": "thinker_config.audio_config",
    "Qwen3Omni": "thinker_config.audio_config",
    "Qwen3ASR": "thinker_config.audio_config",
    "Whisper": "",
}


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
    places, plain = (_AUDIO_PLACES, "audio_config") if tower else (_PLACES, "vision_config")
    path = next((path for start, path in places.items() if name.startswith(start)), plain)
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
