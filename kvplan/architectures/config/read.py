"""A Hugging Face ``config.json`` becomes a Model: text part found, defaults applied, layers compiled.

Keys that change the layers whatever rule made them: attention sinks, and K and V shared between layers.

What no model can be, and what a config leaves to a class: said before anything is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvplan.architectures.blocks.custom import states_layers, unknown_decoder
from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.config.claims import other_type, unclaimed_words
from kvplan.architectures.config.class_names import first_architecture
from kvplan.architectures.config.custom_types import NOT_SIZED
from kvplan.architectures.config.drafts import draft_layers
from kvplan.architectures.config.engine_facts import engine_facts
from kvplan.architectures.config.facts import (
    longest_context,
    other_facts,
    plain_numbers,
    quant_object,
    quantisation,
)
from kvplan.architectures.config.plain import HEADS, KV_HEADS, LAYERS
from kvplan.architectures.config.roles import Role, layer_count, role_of, shaped
from kvplan.architectures.config.sizes import check_stated
from kvplan.architectures.config.text_part import TextPart, find_text_part, unknown_type
from kvplan.architectures.config.view import QUANT_KEY, ConfigView, Sourced
from kvplan.architectures.lineages import lineage_of
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, NoCache, Part, SharedKv, SlidingWindow
from kvplan.model import FOREIGN_CLASS, Layer, Model, Provenance, runs_of
from kvplan.record import Json, fields, replace

MAX_KEYS = 20_000


def read_config(
    raw: Json,
    *,
    id: str,  # noqa: A002 - the model's id, as on the hub
    source: str,
    hf_quant_config: Json | None = None,
) -> Model:
    """The model that a config describes; hf_quant_config is ModelOpt's file beside it, where there is one.

    Raises KvplanError: bad-config (wrong type or range), missing-key, unknown-model-type,
    unknown-layer-type, unknown-dtype.
    """
    part = _text_part(raw)
    role = role_of(part)
    layers, warnings = _layers(part, role)
    if role.no_cache is None:
        check_sizes(part, layers)
    drafts = draft_layers(part, layers)
    plain, keys = strip_sources(layers)
    plain_drafts, _ = strip_sources(list(drafts))
    method, scheme, quant_warnings = quantisation(part, hf_quant_config)
    heads, hidden, vocab = plain_numbers(part.view, strict=role.no_cache is None)
    length = longest_context(part)
    reason = (f"no KV cache: {role.no_cache}",) if role.no_cache else ()
    return Model(
        id=id,
        source=source,
        model_type=part.model_type,
        architecture=first_architecture(raw),
        runs=runs_of(plain),
        dtype=part.stated_dtype,
        max_model_len=length,
        num_attention_heads=heads,
        hidden_size=hidden,
        vocab_size=vocab,
        kv_cache_scheme=scheme,
        quantization=method,
        encoder=role.encoder,
        draft_layers=tuple(plain_drafts),
        no_cache_reason=role.no_cache,
        facts={
            **other_facts(part),
            **engine_facts(part.view, length, quant_object(part, hf_quant_config), scheme),
            **_foreign(raw, part, layers),
        },
        provenance=Provenance(how="config", keys=keys),
        warnings=(
            *reason,
            *part.warnings,
            *unclaimed_words(part),
            *warnings,
            *assumed(part, len(layers), keys),
            *quant_warnings,
        ),
        config=raw if hf_quant_config is None else {**raw, QUANT_KEY: hf_quant_config},
    )


def text_view(raw: Json) -> ConfigView:
    """The view of the text decoder: the config itself, or the part that holds the text model."""
    return _text_part(raw).view


def _text_part(raw: Json) -> TextPart:
    if not isinstance(raw, Mapping):
        raise KvplanError("bad-config", f"a config is an object, not a {type(raw).__name__}")
    if len(raw) > MAX_KEYS:
        raise KvplanError("bad-config", f"the config has {len(raw):,} keys")
    check_stated(raw)
    return find_text_part(raw)


def own_layers(part: TextPart) -> list[Layer]:
    """The model's own layers, as `read_config` reads them."""
    return _layers(part, role_of(part))[0]


def _layers(part: TextPart, role: Role) -> tuple[list[Layer], tuple[str, ...]]:
    """The layers in their role, and what had to be assumed to read them."""
    if role.no_cache is not None:
        return [Layer((NoCache(),))] * layer_count(part), ()
    view = part.view
    warnings: tuple[str, ...] = ()
    rule = lineage_of(view.model_type).layers
    if rule is None and not part.known:
        rule = _unknown_rule
        how = (
            "its layers were read as layer_types states them, as those of a plain decoder"
            if states_layers(view)
            else "read as a plain decoder with full attention in every layer, because nothing in the config"
            " speaks against it"
        )
        warnings = (f"unknown model type {part.model_type[:80]!r}: {how}",)
    layers = (rule or plain_decoder)(view)
    return with_overlays(view, shaped(part, layers, role)), warnings


def _foreign(raw: Json, part: TextPart, layers: list[Layer]) -> dict[str, str]:
    """The fact of a class whose own type has other layers than the file's type, or cannot read the file."""
    other = other_type(part)
    if other is None:
        return {}
    try:
        inner = find_text_part({**raw, "model_type": other})
        if len(inner.levels) == len(part.levels) == 1:  # the file's own config class, the other's layers
            theirs = (lineage_of(inner.view.model_type).layers or plain_decoder)(part.view)
        else:
            theirs = own_layers(inner)
    except KvplanError:
        theirs = []
    return {} if strip_sources(theirs)[0] == strip_sources(layers)[0] else {FOREIGN_CLASS: other}


def _unknown_rule(view: ConfigView) -> list[Layer]:
    if view.model_type in NOT_SIZED:
        raise unknown_type(view.model_type, NOT_SIZED[view.model_type])
    try:
        return unknown_decoder(view)
    except KvplanError as error:
        why = error.message.removeprefix(f"{view.model_type}: ")
        raise unknown_type(view.model_type, why) from error


def strip_sources(layers: list[Layer]) -> tuple[list[Layer], dict[str, dict[str, str]]]:
    """Plain whole numbers in the layers, and the keys they came from by family and parameter."""
    keys: dict[str, dict[str, str]] = {}
    seen: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in seen:
            seen[layer] = Layer(tuple(_strip_part(part, keys) for part in layer.parts))
    return [seen[layer] for layer in layers], keys


def _strip_part(part: Part, keys: dict[str, dict[str, str]]) -> Part:
    changed: dict[str, int] = {}
    for entry in fields(part):
        value = getattr(part, entry.name)
        if isinstance(value, Sourced):
            keys.setdefault(part.family, {})[entry.name] = value.key
            changed[entry.name] = int(value)
    return replace(part, **changed) if changed else part  # type: ignore[arg-type]


def with_overlays(view: ConfigView, layers: list[Layer]) -> list[Layer]:
    """The layers after every overlay. Raises KvplanError(bad-config) for a value out of range."""
    return with_attention_sinks(view, with_shared_layers(view, layers))


def with_attention_sinks(view: ConfigView, layers: list[Layer]) -> list[Layer]:
    """StreamingLLM: attention_sink_size first and attention_sink_window_size newest tokens are kept.

    Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (arXiv 2309.17453);
    key names of tomaarsen/attention_sinks.
    """
    if not (view.given("attention_sink_size") and view.given("attention_sink_window_size")):
        return layers
    sinks = view.integer("attention_sink_size", lowest=0)
    window = view.integer("attention_sink_window_size")

    def streamed(part: FullAttention) -> Part:
        return SlidingWindow(part.num_kv_heads, part.head_dim, window, part.v_head_dim, sinks)

    return [_changed(layer, streamed) for layer in layers]


def with_shared_layers(view: ConfigView, layers: list[Layer]) -> list[Layer]:
    """Cross-layer attention (Hunyuan): of cla_share_factor neighbours only the first keeps K and V.

    The transformers classes ignore the key and keep K and V in every layer (models/hunyuan_v1_dense,
    models/hunyuan_v1_moe). Source: Brandon et al. (arXiv 2405.12981); tencent/Tencent-Hunyuan-Large
    modeling_hunyuan.py.
    """
    if not (view.model_type.startswith("hunyuan") and view.flag("use_cla")):
        return layers
    share = view.integer("cla_share_factor")

    def shared(part: FullAttention) -> Part:
        return SharedKv(part.num_kv_heads, part.head_dim)

    return [layer if index % share == 0 else _changed(layer, shared) for index, layer in enumerate(layers)]


def _changed(layer: Layer, change: Callable[[FullAttention], Part]) -> Layer:
    return Layer(tuple(change(part) if isinstance(part, FullAttention) else part for part in layer.parts))


_DEFAULT, _OWN_HEADS = "(default of ", "every head has its own"


def check_sizes(part: TextPart, layers: Sequence[Layer]) -> None:
    """Raises KvplanError(bad-config) for a model without layers or vocabulary, and for query heads that
    are no multiple of the KV heads they share: no class builds these."""
    view = part.view
    if not layers:
        _, origin = view.find(*LAYERS)
        raise KvplanError("bad-config", f"{origin} is 0", help="a model has at least one layer")
    vocab, origin = view.find("vocab_size", "padded_vocab_size")
    if vocab == 0 and not isinstance(vocab, bool):
        raise KvplanError("bad-config", f"{origin} is 0", help="a model has at least one token")
    heads, heads_key = view.find(*HEADS)
    shared, shared_key = view.find(*KV_HEADS)
    if type(heads) is not int or type(shared) is not int or heads < 1 or shared < 1:
        return
    read = {value for layer in layers for one in layer.parts if (value := getattr(one, "num_kv_heads", None))}
    if shared in read and heads % shared:
        ways = [str(number) for number in range(1, min(heads, 1 << 16) + 1) if heads % number == 0]
        raise KvplanError(
            "bad-config",
            f"{heads_key} {heads} is no multiple of {shared_key} {shared}: query heads cannot share them",
            help=f"KV heads that {heads} query heads can share: {', '.join(ways[-8:])}",
        )


def assumed(part: TextPart, count: int, keys: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Not read in the file: the number of layers, and every size of a type with code of its own, which
    nobody holds beside the file. count: layers; keys: where each parameter came from, by family."""
    found: list[str] = []
    value, origin = part.view.find(*LAYERS)
    if _DEFAULT in origin and value == count:
        found.append(_words(origin, value))
    if lineage_of(part.model_type).reads is not None:
        for family in keys.values():
            for name, origin in family.items():
                if _OWN_HEADS in origin:
                    found.append(
                        f"{part.model_type}: the config states no KV heads; {_OWN_HEADS} was assumed"
                    )
                elif _DEFAULT in origin:
                    found.append(_words(origin, name))
    return tuple(dict.fromkeys(found))


def _words(origin: str, value: object) -> str:
    key, _, owner = origin.partition(f" {_DEFAULT}")
    return f"the config does not state {key}: {value}, the default of {owner.rstrip(')')}, was taken"
