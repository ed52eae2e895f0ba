"""Changes between SGLang's releases: a row a rule (`kvplan.engines.release_rules`).

sgl-project/sglang 0.4.6 to 0.5.6 model_executor/model_runner.py, 0.5.7 to 0.5.15
model_executor/model_runner_kv_cache_mixin.py, pool_configurator.py, server_args.py and models/*.py
(EntryClass), asked of their own ModelRunner; 0.5.16 to 0.5.22 of their own KVCacheConfigurator
(scripts/sglang_releases.py), each at its last post-release; 0.5.23 as the other modules say. Files are below
``sglang/srt/``, as the newest release that has them names them.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from kvplan.engines.base import Version
from kvplan.engines.release_rules import ReleaseRules, flag, reached, steps
from kvplan.engines.sglang.classes import row_of

VERSIONS = (
    *(f"0.4.{patch}" for patch in range(6, 11)),
    *(f"0.5.{patch}" for patch in range(1, 24)),
)
_TABLE = Path(__file__).parent / "data" / "later_classes.tsv"

_ARGS = "server_args.py"
_MEMORY = "arg_groups/memory_hook.py"
_GRAPHS = "arg_groups/cuda_graph_hook.py"
_OVERRIDES = "arg_groups/overrides.py"
_BACKEND = "arg_groups/model_override_base.py, get_default_attn_backend"
_RUNNER = "model_executor/model_runner.py"
_MIXIN = "model_executor/model_runner_kv_cache_mixin.py"
_POOLS = "model_executor/pool_configurator.py"
_CONFIGURATOR = "mem_cache/kv_cache_configurator.py"
_DTYPE = "mem_cache/kv_cache_dtype.py"
_EXPERTS = "layers/quantization/mxfp4.py"


class Rules(ReleaseRules):
    """The rules of one release."""

    PARTS = 3

    # fmt: off
    # Defaults by the GPU's memory, and what is kept free.
    memory = steps("the release whose table of defaults by the GPU's memory is in force (`.memory_defaults`)",
        _MEMORY, "0.4.6", ("0.4.7", "0.4.7"), ("0.5.3", "0.5.3"), ("0.5.4", "0.5.4"), ("0.5.20", "0.5.20"))
    image_factor = flag("image models keep memory free by the size of their encoder, not a tenth",
        _MEMORY + ", adjust_mem_fraction_for_vlm", since="0.4.9")
    image_cache = flag("images' features have a part of the budget", _MEMORY, since="0.5.18")
    roles = flag("what is kept free follows --disaggregation-mode", _MEMORY, since="0.5.16", asked=False)
    prefill_graphs = flag("memory is kept for graphs of prompts", _ARGS, since="0.5.10")
    prompt_graphs = steps("whose graphs of prompts keep memory (`.prompt_graphs`; empty: as 0.5.23)", _GRAPHS,
        "", ("0.5.10", "piecewise"), ("0.5.11", "piecewise, drafts"), ("0.5.13", "piecewise, DSA"),
        ("0.5.15", "breakable"), ("0.5.17", "breakable, DSA"), ("0.5.18", "breakable, images"),
        ("0.5.22", ""))
    image_graphs = steps("those of images", "configs/model_config.py", "", ("0.5.14", "0.5.14"),
        ("0.5.16", "0.5.16"), ("0.5.18", "0.5.18"), ("0.5.19", "0.5.19"), ("0.5.20", "0.5.20"))
    drafts_kept = flag("so do drafts", _ARGS, since="0.5.10", until="0.5.14")
    graphs_counted = flag("decode graphs keep memory though they are disabled", _ARGS, since="0.5.10",
        until="0.5.16")
    graphs_in_context = flag("graphs of prompts are no longer than --context-length", _ARGS, since="0.5.13",
        until="0.5.17")
    graphs_bounded = flag("--max-running-requests bounds the largest decode graph", _GRAPHS, since="0.5.22")

    # Attention backends.
    hopper_fa3 = flag("FlashAttention 3 for every class on Hopper", _BACKEND, since="0.5.8")
    hopper_vl = flag("Qwen3-VL on large Hopper GPUs decodes with FlashInfer", "arg_groups/model_overrides/",
        since="0.5.20")
    latent_flashinfer = flag("MLA on SM100 runs on FlashInfer, before on Triton", _BACKEND, since="0.4.7")
    deepseek_trtllm = flag("DeepSeek's on trtllm_mla", _ARGS, since="0.5.3")
    sm100_trtllm = flag("everything else there on trtllm_mha", _BACKEND, since="0.5.6")
    gpt_oss_trtllm = flag("gpt-oss and Llama 4 have backends of their own there", _ARGS, since="0.5.1")
    olmo_backends = flag("Olmo 2 has a backend of its own, and takes no FlashInfer", _ARGS, since="0.5.4")
    hybrid_backends = flag("hybrids with states have theirs", _ARGS, since="0.5.7")
    nemotron_backends = flag("Nemotron-H runs on trtllm_mha on SM100, with drafts on Triton on other "
        "Blackwells; before on FlashInfer on SM100", "arg_groups/model_overrides/nemotron_h.py",
        since="0.5.19")
    llama4_named = flag("Llama 4 does not start unless its backend is named", _ARGS, since="0.4.10",
        until="0.5.6")
    exaone_class = flag("Exaone 4 has a class of its own", "models/exaone4.py", since="0.5.9")
    exaone_backend = flag("it starts without being told its backend", _OVERRIDES, since="0.5.22")
    nsa = flag("the backend of sparse attention is called nsa", _ARGS, until="0.5.13")
    sparse_groups = flag("sparse attention is data-parallel over all ranks", _ARGS, until="0.5.6")

    # Formats.
    scaled_cache = flag("checkpoints with FP8 scales have an fp8 cache by default", _RUNNER, since="0.5.3")
    scheme_of_mixed = flag("so have mixed ModelOpt checkpoints whose hf_quant_config.json says it",
        "layers/quantization/modelopt_quant.py", since="0.5.13")
    scheme_of_builds = flag("and compressed-tensors checkpoints with static scales", _DTYPE, since="0.5.19")
    block_formats = flag("there are caches in nvfp4, fp4_mx_block16, mxfp8", "arg_groups/kv_cache_hook.py",
        since="0.5.16")
    nvfp4_pairs = flag("nvfp4 has backends of its own, and only what prefill copies pays for it",
        "arg_groups/kv_cache_hook.py", since="0.5.21")
    scaled_latent = steps("sparse MLA's fp8 latents are priced with their scales, else as plain rows",
        _POOLS + ", _compute_cell_size", True, ("0.5.11", False), ("0.5.17", True))

    # Lengths, classes, their layers.
    rope_by_layer = flag("Gemma 3's rope, one a kind of layer, has no factor that stretches the length",
        "utils/hf_transformers/common.py", since="0.5.10")
    glm_rope = steps("GLM-5's rope keys are as wide as its config says, else as its head_dim, which the "
        "pinned transformers takes for that", "configs/model_config.py", True, ("0.5.11", False),
        ("0.5.13", True))
    index_elided = flag("a sparse layer that borrows another's choice of tokens keeps no index keys", _POOLS,
        since="0.5.18")
    index_replicated = flag("under decode context parallelism every rank pays for all of them", _POOLS,
        since="0.5.22", asked=False)
    divided_experts = flag(
        "how the kernel of experts that are divided by all ranks or none is chosen was read", _OVERRIDES,
        since="0.5.22")
    expert_kernels_chosen = flag("gpt-oss's kernel was read: it is the one that is named first", _EXPERTS,
        since="0.5.15", asked=False)
    narrow_experts = flag("FlashInfer's kernel takes widths of 128, and 12.x runs on CUTLASS", _EXPERTS,
        since="0.5.17", asked=False)
    scales_in_fours = flag("the table of scales beside Hopper's rearranged one has columns in fours",
        _EXPERTS, since="0.5.19", asked=False)

    # States and their slots.
    states_by_ratio = flag("states are a share of the memory, before as many as requests",
        _RUNNER + ", handle_max_mamba_cache", since="0.5.3")
    mamba_radix = flag("prompts of Mamba hybrids are reused", _ARGS, since="0.5.6")
    kimi_radix = flag("Kimi Linear reuses prompts", _ARGS, since="0.5.14")
    extra_buffer = flag("states are kept in extra buffers by default where the class can",
        _OVERRIDES + ", _mamba_radix_cache_resolution", since="0.5.14")
    drafts_or_states = flag(
        "a class whose states are reused speculates beside them in extra buffers alone, which are asked for",
        _ARGS, since="0.5.10", until="0.5.14")
    state_pages = flag("pages of models with states are one token where they are not kept so", _ARGS,
        since="0.5.11")
    state_slots = steps("slots of a request whose prompts are reused", _MIXIN, 1, ("0.5.3", 3), ("0.5.7", 5),
        ("0.5.8", 3))
    padding_slot = flag("one state slot more than usable is paid for", _CONFIGURATOR, since="0.5.17")
    slots_told = steps("the slots that are asked for count where prompts are reused too", _MIXIN, True,
        ("0.5.3", False), ("0.5.7", True))
    slots_by_share = flag("where prompts are not reused and nobody says how many requests run, slots are a "
        "share too, before 512", _MIXIN, since="0.5.9", asked=False)
    drafts_in_share = flag("each slot has the states of its drafts beside it", _RUNNER, since="0.5.3",
        until="0.5.7")
    drafts_first = flag("states of drafts are those of a group's requests, whether or not prompts are reused",
        _MIXIN, since="0.5.8", asked=False)
    joint_states = flag("they are a part of the states' share", _MIXIN, since="0.5.13")

    # Pools.
    one_more = flag("the pool of requests has a place more than asked for", _RUNNER, until="0.4.7")
    headroom = flag("the tokens of drafts are added to the pool", _RUNNER, until="0.5.7")
    drafts = flag("the layers of the model's own draft are charged", _MIXIN, since="0.5.14")
    drafts_unnamed = flag("also of classes for which no draft is named", _CONFIGURATOR, since="0.5.20")
    window_pools = flag(
        "windows have a pool of their own wherever 0.5.8 has one, before of a few classes (`.models`)",
        _MIXIN, since="0.5.8")
    split_first = flag("a window pool is split off before --max-total-tokens bounds it", _POOLS,
        since="0.5.10")
    window_floor = flag("a window pool that holds no request is refused", _POOLS, since="0.5.20", asked=False)
    request_cap = flag("without a radix cache a window pool has what the requests need",
        _POOLS + ", SWARequestCapPoolConfigurator", since="0.5.14")
    requests_capped = flag("who may run follows from the tokens that --max-total-tokens leaves", _MIXIN,
        since="0.5.10")
    given_estimated = flag("the own estimate bounds --max-running-requests",
        _MIXIN + ", resolve_max_num_reqs", since="0.5.10", asked=False)
    given_halved = flag("half the tokens do", _CONFIGURATOR + ", resolve_max_num_reqs", since="0.5.14")
    stage_layers = flag("DeepSeek-V4: layers beside the model's own are not counted", _POOLS, since="0.5.13")
    fixed_states = flag("its states of ratio 128 are of requests, not of tokens", _POOLS, since="0.5.15")
    padded_latents = flag("its pages are priced as they are padded", _POOLS, since="0.5.21")
    # fmt: on


@cache
def rules_of(version: str | Version) -> Rules:
    """The rules in force in a release."""
    return Rules.of(version)


def has_buffers(architecture: str, version: str) -> bool:
    """Whether the release keeps extra buffers for a class for which 0.5.23 does."""
    return reached(version, row_of(architecture).extra_buffer_since)


@cache
def later_classes(version: str) -> frozenset[str]:
    """Classes of 0.5.23 that the release does not have (EntryClass in models/*.py)."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, delimiter="\t") if row and not row[0].startswith("#")]
    return frozenset(name for name, since in rows if not reached(version, since))
