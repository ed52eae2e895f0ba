"""The keys of a GGUF file become a Model.

Types of values, of tensors and of files, by their numbers (the tests check them against the gguf package):
ggml-org/llama.cpp at 0c1e57098, ggml/include/gguf.h (gguf_type), ggml/include/ggml.h (ggml_type),
ggml/src/ggml-common.h (the blocks), include/llama.h (llama_ftype).
"""

from __future__ import annotations

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
from kvplan.architectures.gguf.view import HEADS, GgufView
from kvplan.errors import KvplanError, did_you_mean
from kvplan.families import NoCache
from kvplan.model import EAGLE3, GGUF_HEADER, Encoder, EncoderInput, Layer, Model, Provenance, runs_of
from kvplan.record import Json

TEXT, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""gguf_type → the format of `struct`."""

BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
}
"""ggml_type → (name, elements of a block, bytes of a block)."""

GUESSED = 1024
"""LLAMA_FTYPE_GUESSED: a bit beside the type."""
FILE_TYPES = {
    0: "all_f32",
    1: "f16",
    2: "q4_0",
    3: "q4_1",
    7: "q8_0",
    8: "q5_0",
    9: "q5_1",
    10: "q2_k",
    11: "q3_k_s",
    12: "q3_k_m",
    13: "q3_k_l",
    14: "q4_k_s",
    15: "q4_k_m",
    16: "q5_k_s",
    17: "q5_k_m",
    18: "q6_k",
    19: "iq2_xxs",
    20: "iq2_xs",
    21: "q2_k_s",
    22: "iq3_xs",
    23: "iq3_xxs",
    24: "iq1_s",
    25: "iq4_nl",
    26: "iq3_s",
    27: "iq3_m",
    28: "iq2_s",
    29: "iq2_m",
    30: "iq4_xs",
    31: "iq1_m",
    32: "bf16",
    36: "tq1_0",
    37: "tq2_0",
    38: "mxfp4_moe",
    39: "nvfp4",
    40: "q1_0",
}
"""general.file_type → the name in files, ``q4_k_m``."""

_FLOATS = {"all_f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def read_keys(
    values: Json, *, called: str, source: str, listed: int, cut_in: str | None = None, as_draft: bool = False
) -> Model:
    """The model that the keys of a file describe. listed: tokens of the vocabulary that were counted; cut_in:
    the key inside which the file ends; as_draft: it is to draft for another. Raises KvplanError: bad-gguf,
    not-a-model, missing-key, bad-config, unknown-model-type, unknown-layer-type."""
    name = _architecture_name(values, source, as_draft)
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


def _architecture_name(values: Json, path: str, as_draft: bool) -> str:
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
    if name in REFUSED and not (as_draft and name == EAGLE3):
        raise KvplanError("not-a-model", f"general.architecture {name!r} {REFUSED[name]}")
    return name


def _stack(view: GgufView, name: str) -> tuple[Stack, str | None]:
    """The layers, and the reason why there is no cache where there is none."""
    if name in NO_CACHE:
        return Stack([Layer((NoCache(),))] * view.block_count, []), NO_CACHE[name]
    if name in SPECIAL:
        return read_stack(view, SPECIAL[name]), None
    if name not in PLAIN and name != EAGLE3:
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
