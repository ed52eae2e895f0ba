"""Changes between SGLang's releases, as one table of rules.

sgl-project/sglang 0.4.6 to 0.5.6 model_executor/model_runner.py, 0.5.7 to 0.5.15
model_executor/model_runner_kv_cache_mixin.py, pool_configurator.py, server_args.py and models/*.py
(EntryClass), asked of their own ModelRunner; 0.5.16 to 0.5.22 of their own KVCacheConfigurator
(scripts/sglang_releases.py), each at its last post-release; 0.5.23 as the other modules say.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.engines.base import parse_version
from kvplan.engines.sglang.classes import row_of
from kvplan.record import KeptHash, record, replace

VERSIONS = (
    *(f"0.4.{patch}" for patch in range(6, 11)),
    *(f"0.5.{patch}" for patch in range(1, 24)),
)
_TABLE = Path(__file__).parents[1] / "data" / "later_classes.tsv"


@record()
class Rules(KeptHash):
    """The rules of one release.

    extra_buffer: states are kept in extra buffers by default where the class can. state_pages: pages of
    models with states are one token where they are not. padding_slot: one state slot more than usable is
    paid for. drafts: the layers of the model's own draft are charged;
    drafts_unnamed: also of classes for which no draft is named. request_cap: without a radix cache
    a window pool has what the requests need. graphs_bounded: --max-running-requests bounds the largest
    decode graph. hopper_vl: Qwen3-VL on large Hopper GPUs decodes with FlashInfer. kimi_radix: Kimi
    Linear reuses prompts. requests_capped: who may run follows from the tokens that --max-total-tokens
    leaves. split_first: a window pool is split off before that bound. exaone_backend: Exaone 4 starts
    without being told its backend; exaone_class: it has a class of its own. index_elided: a sparse layer
    that borrows another's choice of tokens keeps no index keys; index_replicated: under decode context
    parallelism every rank pays for all of them. glm_rope: GLM-5's rope keys are as wide as
    its config says; in 0.5.11 and 0.5.12 as its head_dim, which the pinned transformers takes for that.
    drafts_or_states: a class whose states are reused speculates beside them in extra buffers alone, which
    are asked for. scheme_of_builds:
    compressed-tensors checkpoints with static scales have an fp8 cache by default. scheme_of_mixed: so have
    mixed ModelOpt checkpoints whose hf_quant_config.json says it. scaled_latent: sparse MLA's fp8 latents
    are priced with their scales; from 0.5.11 to 0.5.16 as plain rows. block_formats: caches in nvfp4,
    fp4_mx_block16, mxfp8; nvfp4_pairs: the first has backends of its own, and only what prefill copies pays
    for it (`.four_bit`). image_cache: images' features have a part of the budget. nemotron_backends:
    Nemotron-H runs on trtllm_mha on SM100, with drafts on Triton on other Blackwells (before 0.5.19 on
    FlashInfer on SM100).
    window_floor: a window pool that holds no request is refused. prompt_graphs: whose graphs of prompts keep
    memory (`.prompt_graphs`; empty: as 0.5.23), image_graphs: those of images;
    drafts_kept: so do drafts; graphs_counted: decode graphs keep memory though they are disabled;
    graphs_in_context: graphs of prompts are no longer than --context-length. roles: what is kept free follows
    --disaggregation-mode. DeepSeek-V4: stage_layers:
    layers beside the model's own are not counted; fixed_states: states of ratio 128 are of requests, not of
    tokens; padded_latents: pages are priced as they are padded.
    given_estimated, given_halved: what bounds --max-running-requests: the own estimate, half the tokens.
    joint_states: what drafts keep of states is a part of the states' share; before, as `.older_states` says.
    nsa: the backend of sparse attention is called so. rope_by_layer: Gemma 3's rope, which is one a kind of
    layer, has no factor of its own that stretches the length.

    Of 0.4.6 to 0.5.9. memory: which table of defaults by the GPU's memory is in force (`.capacity`).
    one_more: the pool of requests has a place more than asked for. image_factor: image models keep memory
    free by the size of their encoder, not a tenth. prefill_graphs: memory is kept for graphs of prompts.
    window_pools: windows have a pool of their own wherever 0.5.8 has one (before, of a few classes:
    `.older`). hopper_fa3: FlashAttention 3 for every class on Hopper. latent_flashinfer: MLA on SM100 runs
    on FlashInfer, before on Triton; deepseek_trtllm: DeepSeek's on trtllm_mla. sm100_trtllm: everything
    else on trtllm_mha; gpt_oss_trtllm: gpt-oss and Llama 4 have backends of their own. hybrid_backends:
    hybrids with states have theirs. scaled_cache: checkpoints with FP8 scales have an fp8 cache by
    default. headroom: the tokens of drafts are added to the pool. llama4_named: Llama 4 does not start
    unless its backend is named. olmo_backends: Olmo 2 has a backend of its own, and takes no FlashInfer.
    states_by_ratio: states are a share of the memory; before, as many as requests. mamba_radix: prompts of
    Mamba hybrids are reused. state_slots: slots of a request whose prompts are. drafts_in_share,
    drafts_first, slots_told, slots_by_share: `.older_states`. sparse_groups: sparse attention is
    data-parallel over all ranks.
    """

    extra_buffer: bool = False
    state_pages: bool = False
    padding_slot: bool = False
    drafts: bool = False
    drafts_unnamed: bool = False
    request_cap: bool = False
    graphs_bounded: bool = False
    hopper_vl: bool = False
    kimi_radix: bool = False
    requests_capped: bool = False
    split_first: bool = False
    window_floor: bool = False
    stage_layers: bool = False
    fixed_states: bool = False
    padded_latents: bool = False
    exaone_backend: bool = False
    exaone_class: bool = False
    index_elided: bool = False
    index_replicated: bool = False
    glm_rope: bool = True
    drafts_or_states: bool = False
    scheme_of_builds: bool = False
    scheme_of_mixed: bool = False
    scaled_latent: bool = True
    block_formats: bool = False
    nvfp4_pairs: bool = False
    nemotron_backends: bool = False
    image_cache: bool = False
    prompt_graphs: str = ""
    image_graphs: str = ""
    drafts_kept: bool = False
    graphs_counted: bool = False
    graphs_in_context: bool = False
    roles: bool = False
    rope_by_layer: bool = False
    memory: str = "0.4.6"
    one_more: bool = True
    window_pools: bool = False
    hopper_fa3: bool = False
    latent_flashinfer: bool = False
    deepseek_trtllm: bool = False
    sm100_trtllm: bool = False
    gpt_oss_trtllm: bool = False
    hybrid_backends: bool = False
    scaled_cache: bool = False
    headroom: bool = True
    llama4_named: bool = False
    states_by_ratio: bool = False
    mamba_radix: bool = False
    olmo_backends: bool = False
    state_slots: int = 1
    drafts_in_share: bool = False
    sparse_groups: bool = True
    nsa: bool = True
    given_estimated: bool = False
    given_halved: bool = False
    joint_states: bool = False
    drafts_first: bool = False
    slots_told: bool = True
    slots_by_share: bool = False
    image_factor: bool = False
    prefill_graphs: bool = False


_CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("0.4.7", {"memory": "0.4.7", "one_more": False, "latent_flashinfer": True}),
    ("0.4.9", {"image_factor": True}),
    ("0.4.10", {"llama4_named": True}),
    ("0.5.1", {"gpt_oss_trtllm": True}),
    (
        "0.5.3",
        {
            **dict.fromkeys("deepseek_trtllm scaled_cache states_by_ratio drafts_in_share".split(), True),
            "memory": "0.5.3",
            "state_slots": 3,
            "slots_told": False,
        },
    ),
    ("0.5.4", {"memory": "0.5.4", "olmo_backends": True}),
    (
        "0.5.6",
        {
            "llama4_named": False,
            "sm100_trtllm": True,
            "sparse_groups": False,
            "mamba_radix": True,
        },
    ),
    (
        "0.5.7",
        {
            **dict.fromkeys("headroom drafts_in_share".split(), False),
            **dict.fromkeys("hybrid_backends slots_told".split(), True),
            "state_slots": 5,
        },
    ),
    ("0.5.8", {"window_pools": True, "hopper_fa3": True, "state_slots": 3, "drafts_first": True}),
    ("0.5.9", {"slots_by_share": True, "exaone_class": True}),
    (
        "0.5.10",
        {
            "prompt_graphs": "piecewise",
            "drafts_kept": True,
            "graphs_counted": True,
            "prefill_graphs": True,
            "rope_by_layer": True,
            "given_estimated": True,
            "requests_capped": True,
            "split_first": True,
            "drafts_or_states": True,
        },
    ),
    (
        "0.5.11",
        {
            "prompt_graphs": "piecewise, drafts",
            "state_pages": True,
            "glm_rope": False,
            "scaled_latent": False,
        },
    ),
    (
        "0.5.13",
        {
            "prompt_graphs": "piecewise, DSA",
            "graphs_in_context": True,
            "nsa": False,
            "joint_states": True,
            "stage_layers": True,
            "glm_rope": True,
            "scheme_of_mixed": True,
        },
    ),
    (
        "0.5.14",
        {
            "drafts_kept": False,
            "image_graphs": "0.5.14",
            **dict.fromkeys("extra_buffer drafts request_cap kimi_radix given_halved".split(), True),
            "drafts_or_states": False,
        },
    ),
    ("0.5.15", {"prompt_graphs": "breakable", "fixed_states": True}),
    (
        "0.5.16",
        {"graphs_counted": False, "image_graphs": "0.5.16", "block_formats": True, "roles": True},
    ),
    (
        "0.5.17",
        {
            "prompt_graphs": "breakable, DSA",
            "graphs_in_context": False,
            "padding_slot": True,
            "scaled_latent": True,
        },
    ),
    (
        "0.5.18",
        {
            "prompt_graphs": "breakable, images",
            "image_graphs": "0.5.18",
            "index_elided": True,
            "image_cache": True,
        },
    ),
    ("0.5.19", {"scheme_of_builds": True, "image_graphs": "0.5.19", "nemotron_backends": True}),
    (
        "0.5.20",
        {
            "drafts_unnamed": True,
            "image_graphs": "0.5.20",
            "hopper_vl": True,
            "memory": "0.5.20",
            "window_floor": True,
        },
    ),
    ("0.5.21", {"padded_latents": True, "nvfp4_pairs": True}),
    (
        "0.5.22",
        {"prompt_graphs": "", "graphs_bounded": True, "exaone_backend": True, "index_replicated": True},
    ),
)


@cache
def rules_of(version: str) -> Rules:
    """The rules in force in a release."""
    rules = Rules()
    for since, changes in _CHANGES:
        if parse_version(version) >= parse_version(since):
            rules = replace(rules, **changes)
    return rules


def has_buffers(architecture: str, version: str) -> bool:
    """Whether the release keeps extra buffers for a class for which 0.5.23 does."""
    return parse_version(version) >= parse_version(row_of(architecture).extra_buffer_since)


@cache
def later_classes(version: str) -> frozenset[str]:
    """Classes of 0.5.23 that the release does not have (EntryClass in models/*.py)."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, delimiter="\t") if row and not row[0].startswith("#")]
    return frozenset(name for name, since in rows if parse_version(version) < parse_version(since))
