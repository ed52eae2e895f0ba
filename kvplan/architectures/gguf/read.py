"""The keys of a GGUF file become a Model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.read import strip_sources
from kvplan.architectures.gguf.layers import Stack, read_stack, refuse_unless_plain
from kvplan.architectures.gguf.table import (
    NO_CACHE,
    PLAIN,
    REFUSED,
    SPECIAL,
    Architecture,
    known_architectures,
)
from kvplan.architectures.gguf.types import FILE_TYPES, GUESSED
from kvplan.architectures.gguf.view import HEADS, GgufView
from kvplan.errors import KvplanError, did_you_mean
from kvplan.families import NoCache
from kvplan.model import GGUF_HEADER, Encoder, EncoderInput, Layer, Model, Provenance, runs_of

_FLOATS = {"all_f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def read_keys(
    values: Mapping[str, Any], *, called: str, source: str, listed: int, cut_in: str | None
) -> Model:
    """The model that the keys of a file describe. listed: tokens of the vocabulary that were counted; cut_in:
    the key inside which the file ends. Raises KvplanError: bad-gguf, not-a-model, missing-key, bad-config,
    unknown-model-type, unknown-layer-type."""
    name = _architecture_name(values, source)
    view = GgufView(values, name)
    stack, reason = _stack(view, name)
    trunk, keys = strip_sources(stack.trunk)
    drafts, _ = strip_sources(stack.drafts)
    file_type = _file_type(values.get("general.file_type"))
    cut = (f"the file ends inside {cut_in}: keys behind it were not seen",) if cut_in else ()
    return Model(
        id=called,
        source=source,
        model_type=name,
        architecture=None,
        runs=runs_of(trunk),
        dtype=_FLOATS.get(file_type or ""),
        max_model_len=_plain(view.optional_integer("context_length")),
        num_attention_heads=int(max(view.per_layer(HEADS, lowest=0) or [0])),
        hidden_size=int(view.optional_integer("embedding_length") or 0),
        vocab_size=int(view.optional_integer("vocab_size", lowest=0) or listed),
        quantization=None if file_type in _FLOATS else file_type,
        encoder=Encoder(EncoderInput.TEXT) if SPECIAL.get(name, Architecture()).encoder_decoder else None,
        draft_layers=tuple(drafts),
        no_cache_reason=reason,
        facts=_widths(view),
        provenance=Provenance(how=GGUF_HEADER, keys=keys),
        warnings=(*cut, *stack.warnings),
    )


def _widths(view: GgufView) -> dict[str, int | str | bool | None]:
    """The widths of its layers that decide what a forward pass needs, under the names of a config."""
    dense = max(view.per_layer("feed_forward_length", lowest=0) or [0])
    used = view.optional_integer("expert_used_count", lowest=0) or 0
    expert = view.optional_integer("expert_feed_forward_length", lowest=0) or 0
    found: dict[str, int | str | bool | None] = {"intermediate_size": int(dense)} if dense else {}
    if used:
        found |= {"num_experts_per_tok": int(used), "moe_intermediate_size": int(expert or dense)}
    return found


def _plain(value: int | None) -> int | None:
    return None if value is None else int(value)


def _architecture_name(values: Mapping[str, Any], path: str) -> str:
    kind = values.get("general.type", "model")
    if kind != "model":
        raise KvplanError(
            "not-a-model",
            f"{path}: general.type is {_short(kind)}, not 'model'",
            help="give the model's own GGUF file",
        )
    name = values.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise KvplanError("bad-gguf", f"{path} has no general.architecture")
    if name in REFUSED:
        raise KvplanError("not-a-model", f"general.architecture {name!r} {REFUSED[name]}")
    return name


def _stack(view: GgufView, name: str) -> tuple[Stack, str | None]:
    """The layers, and the reason why there is no cache where there is none."""
    if name in NO_CACHE:
        return Stack([Layer((NoCache(),))] * view.block_count, []), NO_CACHE[name]
    if name in SPECIAL:
        return read_stack(view, SPECIAL[name]), None
    if name not in PLAIN:
        refuse_unless_plain(view)
        stack = read_stack(view, Architecture())
        near = did_you_mean(name, known_architectures())
        hint = f" (nearest known: {near})" if near else ""
        warning = f"general.architecture {_short(name)} is not known{hint}: read as a plain decoder"
        return Stack(stack.trunk, stack.drafts, (warning, *stack.warnings)), None
    return read_stack(view, Architecture()), None


def _file_type(number: Any) -> str | None:
    """``q4_k_m`` for general.file_type 15."""
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    number &= ~GUESSED
    return FILE_TYPES.get(number, f"file type {number}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
