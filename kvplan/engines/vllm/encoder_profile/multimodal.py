"""vLLM's profile run of an encoder: how many of the largest items it runs, and what that takes.

    activation = max(encoder, kept + language model)

vllm-project/vllm vllm/v1/worker/gpu_model_runner.py profile_run (V2: vllm/v1/worker/gpu/model_runner.py),
vllm/v1/worker/utils.py MultiModalBudget (since 0.16 vllm/multimodal/encoder_budget.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.architectures.config.view import split_quant
from kvplan.engines.base import Version, parse_version
from kvplan.engines.budget.parts import memory_of
from kvplan.engines.supported import classes
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.versions import rules_of
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import Json
from kvplan.settings import Layout, Serving
from kvplan.units import ceil_div
from kvplan.weights.parts import Part

if TYPE_CHECKING:
    from kvplan.engines.vllm.encoder_profile import dummy_items, encoder_widths
    from kvplan.engines.vllm.encoder_profile import estimate as runs
    from kvplan.engines.vllm.encoder_profile import largest_items as profiles
    from kvplan.engines.vllm.encoder_profile import patch_bytes as tower_costs
else:
    dummy_items, runs, profiles, tower_costs, encoder_widths = later(
        "kvplan.engines.vllm.encoder_profile",
        "dummy_items estimate largest_items patch_bytes encoder_widths",
    )

_ALIGNED = 8
_BLACKWELL = (10, 0)


def text_only(model: Model, settings: Layout) -> bool:
    """Whether nothing but text is served: --language-model-only, or a limit of 0 for all that the class takes
    (image and video where its rule is not known, audio where its config has such an encoder)."""
    if VllmOptions.of(settings).language_model_only:
        return True
    limits = limits_of(settings)
    if not limits:
        return False
    heard = ("audio",) if isinstance((model.config or {}).get("audio_config"), Mapping) else ()
    row = class_of(model.architecture)
    kinds = row.modalities if row.largest_item else ("image", "video", *heard)
    return all(kind in limits and _count(limits[kind]) == 0 for kind in kinds)


def tower_parts(model: Model, settings: Serving) -> tuple[tuple[Part, int], ...]:
    """`Parallel.groups` of the encoder: one rank has all of it where every rank does."""
    return ((Part.TOWER, 1),) if whole_on_each_rank(model, settings) else ()


def limits_of(settings: Layout) -> Json:
    """--limit-mm-per-prompt: modality → a number, or the options of its dummy items."""
    return _json(VllmOptions.of(settings).limit_mm_per_prompt)


def _json(text: object) -> Json:
    found = json.loads(text) if isinstance(text, str) else {}
    return found if isinstance(found, Mapping) else {}


def whole_on_each_rank(model: Model, settings: Serving) -> bool:
    """Whether every tensor-parallel rank has the whole encoder: --mm-encoder-tp-mode data where the class
    heeds it; heads that do not divide in classes that then keep it whole; towers that never divide."""
    tp = settings.tensor_parallel_size
    if tp == 1:
        return False
    row = class_of(model.architecture)
    encoder = row.main_encoder
    asked = row.data_mode and VllmOptions.of(settings).mm_encoder_tp_mode == "data"
    if encoder.heads:
        return asked
    return encoder.divided != "parts" and (asked or _heads(model) % tp != 0 or encoder.divided == "never")


def _heads(model: Model) -> int:
    vision = model.config.get("vision_config") if model.config else None
    if not isinstance(vision, Mapping):
        return 0
    for key in ("num_heads", "num_attention_heads", "vt_num_attention_heads"):
        value = vision.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def encoder_run(
    model: Model,
    settings: Serving,
    version: str,
    *,
    seqs: int,
    tokens: int,
    length: int,
    element: int,
    v2: bool = False,
) -> runs.EncoderRun | None:
    """The profile run of the model's encoder; None where there is none.

    seqs, tokens, length: max_num_seqs, max_num_batched_tokens and max_model_len in force; element: bytes; v2:
    the second model runner serves.
    """
    config, release = _config_of(model), parse_version(version)
    if not has_encoder(model) or text_only(model, settings) or VllmOptions.of(settings).skip_mm_profiling:
        return None
    if v2 and not rules_of(release).second_runner_encodes:  # from 0.27 on, on a pipeline's first stage
        return None
    name = model.architecture or ""
    bound = runs.unknown_most(name, tokens=tokens, length=length) * element // 2
    unknown = runs.EncoderRun(0, 0, f"the encoder of {name or model.id} is not known", False, v2, bound)
    if not class_of(name).largest_item:
        return unknown
    found = _largest(model, settings, config, release, seqs, tokens, length)
    if found is None:
        return None
    kind, item, count = found
    widths = encoder_widths.widths_of(model, config, item.tower)
    if widths is None:
        return unknown
    whole = whole_on_each_rank(model, settings)
    tp = 1 if whole else settings.tensor_parallel_size
    cost = tower_costs.cost_of(_tower_of(name, item), widths, tp, release)
    shared = whole and VllmOptions.of(settings).mm_encoder_tp_mode == "data"
    run = (ceil_div(count, settings.tensor_parallel_size) if shared else count) * item.patches
    once = min(run, item.at_once or run)
    peak, least, most = _passing(item, run, once, cost, _kept(item, cost, widths))
    mask = mask_of(config, settings, release, once) * element
    padded = mask if once % _ALIGNED else 0
    wide = 2 if class_of(name).processor_not_read else 1
    return runs.EncoderRun(
        peak * element // 2 + mask + padded,
        count * _held(item, cost, widths, release, v2=v2) * element // 2,
        f"{count} {kind.replace('_', ' ')} item{'s' if count > 1 else ''} of {item.tokens:,} tokens",
        first_stage=v2,
        least_bytes=least // wide * element // 2 + mask,
        most_bytes=most * wide * element // 2 + mask + padded,
    )


def _largest(
    model: Model,
    settings: Serving,
    config: Mapping[str, object],
    release: Version,
    seqs: int,
    tokens: int,
    length: int,
) -> tuple[str, dummy_items.Item, int] | None:
    """(modality, its largest item, how many) of the modality with the most tokens; None where none may
    come."""
    name, limits = model.architecture or "", limits_of(settings)
    items = _items(name, settings, config, release, length, tokens)
    served = {kind: item for kind, item in items.items() if _limit(name, limits, kind, release) > 0}
    if not served:
        return None
    kind, item = max(served.items(), key=lambda pair: (pair[1].tokens, pair[0]))
    limit = _limit(name, limits, kind, release)
    return kind, item, _count_of(item, limit, release, name, seqs=seqs, tokens=tokens, length=length)


def _kept(item: dummy_items.Item, cost: tower_costs.Cost, widths: tower_costs.Widths) -> int:
    """Bytes in bfloat16 of an item's inputs and outputs, once it has run."""
    if cost.kept is not None:
        return item.patches * cost.kept
    return 2 * (item.patches * widths.pixels + item.tokens * widths.out)


def _held(
    item: dummy_items.Item, cost: tower_costs.Cost, widths: tower_costs.Widths, release: Version, *, v2: bool
) -> int:
    """Those that stay while the language model is profiled: inputs and outputs, of V2 the outputs alone."""
    kept = _kept(item, cost, widths)
    held = max(0, kept - 2 * item.patches * widths.pixels) if v2 else kept
    return max(held, 2 * item.tokens * widths.out) if rules_of(release).items_kept_together else held


def _passing(
    item: dummy_items.Item, run: int, once: int, cost: tower_costs.Cost, kept: int
) -> tuple[int, int, int]:
    """Bytes in bfloat16 while a rank runs its patches, so many at once: likely, least and most. Of the
    others what is kept lies beside them."""
    most_once = run if item.whole else once
    beside, fewest = ((run - part) * kept // item.patches for part in (once, most_once))
    return once * cost.peak + beside, once * cost.least + beside, most_once * cost.most + fewest


def mask_of(config: Json, settings: Serving, release: Version, patches: int) -> int:
    """Numbers of the mask of a Pixtral tower that runs so many patches at once: one for each pair of them.

    vllm/model_executor/models/pixtral.py until 0.28: torch's attention takes a mask of all images together
    (transformers' generate_block_attention_mask) where xFormers is not installed, which vLLM asked for until
    0.11, or is not used (compute capability 10.0 and later: a B200, an RTX 5090). Its kernel copies a mask
    whose rows are no multiple of 8.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or vision.get("model_type") != "pixtral":
        return 0
    rules = rules_of(release)
    newer = settings.gpu is not None and (settings.gpu.compute_capability or (0, 0)) >= _BLACKWELL
    return patches * patches if rules.pixtral_masked and (newer or not rules.xformers) else 0


def _tower_of(name: str, item: dummy_items.Item) -> str:
    """The name of the tower that the item goes through, as `towers` knows it."""
    beside = item.tower and not class_of(name).hears_alone
    return f"{name}/{item.tower}" if beside else name


def _items(
    name: str, settings: Serving, config: Json, release: Version, length: int, tokens: int
) -> dict[str, dummy_items.Item]:
    vision = encoder_widths.part_of(name, config) or (
        encoder_widths.part_of(name, config, "audio") if class_of(name).hears_alone else None
    )
    limits = limits_of(settings)
    options = limits.get("video")
    frames = options.get("num_frames") if isinstance(options, Mapping) else None
    asked = dummy_items.Asked(
        config=config,
        vision=vision or {},
        rule=profiles.rule_of(config),
        release=release,
        length=length,
        longest=length if rules_of(release).items_unlimited else tokens,  # _get_mm_dummy_batch
        processor=_json(VllmOptions.of(settings).mm_processor_kwargs),
        frames=frames if isinstance(frames, int) and frames > 0 else None,
        has_image=_limit(name, limits, "image", release) > 0,
        memory=0 if settings.gpu is None else memory_of(settings.gpu)[0] or 0,
        images=_asked(limits, "image", release),
        videos=_asked(limits, "video", release),
    )
    return {
        kind: item._replace(tokens=max(1, item.tokens), patches=max(1, item.patches))
        for kind, item in profiles.largest_items_of(name, asked).items()
    }


def _count_of(
    item: dummy_items.Item,
    limit: int,
    release: Version,
    name: str,
    *,
    seqs: int,
    tokens: int,
    length: int,
) -> int:
    """MultiModalBudget.get_max_items: as many as fit into a batch (at least one), and as requests may
    bring."""
    budget = max(tokens, item.tokens)
    if class_of(name).whole_prompts:
        seqs = min(seqs, tokens // item.tokens)
    if not rules_of(release).items_a_prompt:
        return max(1, min(ceil_div(budget, item.tokens), seqs * limit))
    a_prompt = max(1, min(limit, length // item.tokens))
    return max(1, min(budget // item.tokens, seqs * a_prompt))


def _limit(name: str, limits: Json, kind: str, release: Version) -> int:
    """The number given, at most the class's own limit."""
    return min(_asked(limits, kind, release), class_of(name).limits.get(kind, dummy_items.NO_LIMIT))


def _asked(limits: Json, kind: str, release: Version) -> int:
    if kind in limits:
        return _count(limits[kind])
    return dummy_items.NO_LIMIT if rules_of(release).items_unlimited else 1


def _count(limit: object) -> int:
    if isinstance(limit, Mapping):
        limit = limit.get("count", dummy_items.NO_LIMIT)
    return (
        limit
        if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
        else dummy_items.NO_LIMIT
    )


def _config_of(model: Model) -> Json:
    """Of a card without its config the model type alone, whose class has defaults."""
    if not model.config:
        return {"model_type": model.facts.get("top_model_type")}
    return split_quant(model.config)[0]


def has_encoder(model: Model) -> bool:
    """By its class, as vLLM's registry lists it, or by a config that has one: the config that is at hand may
    be the language model's alone."""
    config = split_quant(model.config)[0] if model.config else {}
    stated = any(isinstance(config.get(key), Mapping) for key in ("vision_config", "audio_config", "visual"))
    return stated or (model.architecture or "") in classes("vllm", "encodes")
