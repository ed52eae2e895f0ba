"""All that is known of a model class under SGLang is one row of ``data/classes.json``, written by hand.

What lists in SGLang's own source say of a class stands in ``kvplan/engines/data/classes.tsv``, and since
when it has one in ``data/later_classes.tsv``; scripts/make_engine_classes.py writes both. A class without a
row has what `ModelClass` has by default. sgl-project/sglang 0.5.23, where no other source is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.record import Json, record

FILE = Path(__file__).parent / "data" / "classes.json"


@record()
class Groups:
    """The treatment of each part of a class's weights under attention data parallelism."""

    embedding_whole: bool = False
    """The embedding is not divided at all."""
    dense_alone: bool = False
    """--moe-dense-tp-size is heard."""
    head_alone: bool = True
    """--enable-dp-lm-head is heard."""
    shared_alone: tuple[str, ...] = ()
    """The all-to-all backends with which the shared experts are whole."""


@record()
class ModelClass:
    """SGLang's knowledge of a class."""

    built_as: str = ""
    """The class that SGLang builds for it (configs/olmo3.py, configs/deepseek_v41.py,
    utils/hf_transformers/config.py)."""
    read_by_transformers: bool = False
    """Its config is one of transformers' types, which must have it."""
    transformers_since: str = "0.4.7"
    """The first release whose transformers (by the pin of its wheel) has it: models/auto/modeling_auto.py of
    4.51.1, 4.52.3, 4.54.1, 4.55.2, 4.56.1, 4.57.6 and 5.5.4. 0.4.7 is the first release that runs
    transformers' classes in place of its own."""
    once_through_transformers: bool = False
    """Run through transformers before SGLang had a class of its own."""
    not_described: str = ""
    """An answer of 0.5.23's planner that its layers do not give."""
    types: tuple[str, ...] = ()
    """Model types that have its groups of ranks, for a config that names no class."""
    override: str = ""
    """Its own defaults (arg_groups/model_overrides/)."""
    backends: tuple[str, ...] = ()
    """The only attention backends that it takes (handle_model_specific_adjustments); empty: any."""
    refused_backend: str = ""
    default_backend: str = ""
    sm100_backend: str = ""
    """On compute capability 10.0 and 10.3."""
    older_sm100_backend: str = ""
    """The same before 0.5.8."""
    context_parallel_decode: str = ""
    """The backend of decoding under decode context parallelism."""
    fa3_since: str = ""
    """Gets FlashAttention 3 on Hopper since then (is_fa3_default_architecture); every class since 0.5.8."""
    fa4_page: int = 128
    """Tokens of FlashAttention 4's pages on those."""
    sinks: bool = False
    window_pool_in: tuple[str, ...] = ()
    """Releases [since, until) before 0.5.8 in which its windows had a pool of their own."""
    pool_flag_unheard: bool = False
    """--disable-hybrid-swa-memory, which they did not look at (configs/model_config.py)."""
    window_ratio: str = ""
    """--swa-full-tokens-ratio by its own override; 0.8 elsewhere."""
    state_radix: bool = False
    """Its states go into the radix cache, beside those of the source's list."""
    pure_state: bool = False
    """States are divided over all ranks, attention groups or not (PURE_SSM_ARCHITECTURES)."""
    extra_buffer_since: str = "0"
    """Was there before its states could be kept in extra buffers (_MAMBA_EXTRA_BUFFER_ARCHS)."""
    no_radix: bool = False
    """No reuse of prompts (arg_groups/attention_hook.py)."""
    both_encoders: bool = False
    """Multimodal only with an image and an audio encoder (MIMO_V2_MULTIMODAL_ARCHS)."""
    prefills_whole: bool = False
    """Prefills a prompt in one piece (is_multimodal_chunked_prefill_supported)."""
    asks_prefill_graphs: bool = False
    """apply_inkling_prefill_cuda_graph_default."""
    kda_prefill_graphs: bool = False
    """Prefill graphs with layers of Kimi Delta Attention."""
    largest_prefill_graph: int = 0
    """Tokens; 0: no bound (cuda_graph_hook.py)."""
    not_piecewise: bool = False
    """No piecewise graphs of prompts, 0.5.10 to 0.5.21 (piecewise_cuda_graph_disabled_model_archs)."""
    piecewise_images: tuple[str, ...] = ()
    """Releases [since, until) in which its prompts have them though it takes images."""
    breakable_images: str = ""
    """The same of graphs that break, since then (multimodal_breakable_cuda_graph_supported_model_archs)."""
    named_draft: bool = False
    """Its own layers are named as the draft where none is (speculative_hook.py)."""
    kv_dtype: str = ""
    dtype: str = ""
    """Served in one dtype whatever is asked (MODEL_OVERRIDES)."""
    mxfp4_dtype: str = ""
    """The same of a checkpoint in mxfp4."""
    marlin_experts: bool = False
    """Its own choice of a kernel for experts (arg_groups/model_overrides/nemotron_h.py)."""
    no_attention_groups: bool = False
    """No attention data parallelism."""
    groups: Groups | None = None
    """None: not described."""


@cache
def rows() -> Mapping[str, Json]:
    """Class → its row as it stands in the file."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@cache
def row_of(name: str | None) -> ModelClass:
    """The row of a class."""
    row = _lists_as_tuples(rows().get(name or "", {}))
    if "groups" in row:
        row["groups"] = Groups(**_lists_as_tuples(row["groups"]))
    return ModelClass(**row)


def _lists_as_tuples(entry: Json) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
