"""How many bytes vLLM's tables of rotary angles take: cosines and sines of every position, on every rank.

Σ over different rotary embeddings of positions · rotary_dim · element (vllm-project/vllm
vllm/model_executor/layers/rotary_embedding/__init__.py get_rope, base.py _compute_cos_sin_cache). The
positions are the config's, not max_model_len: Llama-4-Scout's ten million take 2.5 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import ConfigView, check_integer, check_number
from kvplan.record import Json

_MROPE_POSITIONS = 4
_FACTORS = (1e-6, 1e6)
_ORIGINAL = "original_max_position_embeddings"
_SCALED = ("linear", "dynamic", "ntk")
_FROM_ORIGINAL = ("yarn", "deepseek_yarn", "deepseek_llama_scaling")
_WHOLE = "proportional"
_FLOAT32_TYPES = ("deepseek_yarn", "deepseek_llama_scaling")
_BASES = (
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "rotary_emb_base",
    "rotary_dim",
    "rope_local_base_freq",
)


def rotary_table_bytes(raw: Json, element_bytes: int) -> int:
    """Bytes of all tables; 0 for a model without rotary embeddings or whose length is not stated.

    Raises KvplanError(bad-config).
    """
    view = find_text_part(raw).view
    positions = view.optional_integer(
        "max_position_embeddings", "seq_length", "max_seq_len", "n_positions", lowest=0
    )
    if not positions or (not view.known("rope_theta") and not view.given(*_BASES)):
        return 0
    if all(view.get(key) is None for key in _BASES):
        return 0
    total = sum(_table(view, scaling, int(positions), element_bytes) for scaling in _scalings(view))
    return int(total)


def _scalings(view: ConfigView) -> list[Json]:
    """The different rotary embeddings: one, or one for each kind of layer."""
    for key in ("rope_parameters", "rope_scaling"):
        value = view.get(key)
        if not isinstance(value, Mapping) or not value:
            continue
        kinds = [value[name] for name in value if isinstance(value[name], Mapping)]
        if kinds and "rope_type" not in value and "type" not in value:
            return kinds
        return [value, {}] if view.get("rope_local_base_freq") is not None else [value]
    return [{}, {}] if view.get("rope_local_base_freq") is not None else [{}]


def _table(view: ConfigView, scaling: Json, positions: int, element_bytes: int) -> int:
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor, original = 1.0, None
    if scaling.get("factor") is not None:
        factor = check_number(scaling["factor"], f"{view.path}rope_scaling.factor", *_FACTORS)
    if scaling.get(_ORIGINAL) is not None:
        original = check_integer(scaling[_ORIGINAL], f"{view.path}rope_scaling.{_ORIGINAL}")
    if original is not None and kind in _FROM_ORIGINAL:
        positions = int(original * factor)
    elif kind in _SCALED:
        positions = int(positions * factor)
    elif kind in ("longrope", "su") and original is not None:
        positions += original
    elif "mrope_section" in scaling:
        positions *= _MROPE_POSITIONS
    return positions * _rotary_dim(view, scaling) * (4 if kind in _FLOAT32_TYPES else element_bytes)


def _rotary_dim(view: ConfigView, scaling: Json) -> int:
    rope_head = view.optional_integer("qk_rope_head_dim", lowest=0)
    if rope_head:
        return int(rope_head)
    if (scaling.get("rope_type") or scaling.get("type")) == _WHOLE:
        # gemma4_rope.py: angles of the whole head, zeros where nothing turns; its full layers' own width.
        width = view.optional_integer("global_head_dim", "head_dim", lowest=0)
        if width:
            return int(width)
    width = view.optional_integer("head_dim", lowest=0)
    if not width:
        hidden = view.optional_integer("hidden_size", default=0, lowest=0) or 0
        heads = view.optional_integer("num_attention_heads", default=1) or 1
        width = hidden // heads
    own = view.optional_integer("rotary_dim", lowest=0)
    if own:
        return min(int(own), int(width))
    share = scaling.get("partial_rotary_factor")
    if share is None:
        share = view.get("partial_rotary_factor", "rotary_pct", default=1)
    return int(width * check_number(share, f"{view.path}partial_rotary_factor", 0, 1))
