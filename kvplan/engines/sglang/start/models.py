"""SGLang 0.5.23's knowledge of model classes.

sgl-project/sglang python/sglang/srt: EntryClass in models/*.py, is_hybrid_swa_model, multimodal_model_archs
and the other lists of configs/model_config.py, _MAMBA_EXTRA_BUFFER_ARCHS in arg_groups/overrides.py,
arg_groups/model_overrides/*.py, resolve_transformers_arch in model_loader/utils.py.
"""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.release_rules import reached, within
from kvplan.engines.sglang.classes import ModelClass, row_of
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.versions import VERSIONS, later_classes
from kvplan.engines.supported import classes
from kvplan.errors import KvplanError
from kvplan.families import Kind, Part
from kvplan.model import Model
from kvplan.results import Refusal

SERVED = frozenset(classes("sglang", "builds"))
# Window layers get a pool of their own in these only; all others keep every token of them.
HYBRID_SWA = frozenset(classes("sglang", "window_pool"))
# The same by model type, for a config that names no class.
HYBRID_SWA_TYPES = frozenset(
    """
    beam llama4 deepseek_v4 gpt_oss granite_swa granitemoe_swa iquest_q1 mimo_v2 mimo_v2_flash step3p5
    step3p7 gemma4 gemma4_text gemma4_unified gemma4_unified_text laguna mellum muse_glimmer
    muse_glimmer_text inkling unlimited_ocr dots3_note
    """.split()
)
EXTRA_BUFFER = frozenset(classes("sglang", "extra_buffer"))
EXTRA_BUFFER_TYPES = frozenset(
    """
    kimi_linear qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text qwen3_next qwen4_exp falcon_h1
    granitemoehybrid nemotron_h bailing_hybrid
    """.split()
)
# The states that SGLang's MambaPool is described for here; Zaya's and Inkling's have shapes of their own.
STATES = frozenset(("mamba1", "mamba2", "gated_delta_net", "kda", "short_convolution", "lightning_attention"))
ROWS = frozenset(
    "full_attention sliding_window chunked_attention mla sparse_indexer compressed_attention cross_attention"
    " shared_kv no_cache".split()
)
"""Families whose rows a token SGLang's pools have; a family that is neither here nor in STATES is refused."""
_NO_CLASS = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV",
    "rwkv5": "RWKV",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
}
STATE_RADIX = frozenset(classes("sglang", "state_radix"))
"""Hybrids whose states go into the radix cache: only theirs are checked against the strategy."""
MULTIMODAL = frozenset(classes("sglang", "multimodal"))
_TEXT_ONLY = frozenset(classes("sglang", "text_only"))
_PREFILL_GRAPHS = frozenset(classes("sglang", "prefill_graphs"))
LESS_ONE = frozenset(classes("sglang", "window_less_one"))
"""Classes whose get_attention_sliding_window_size() is one less than the config's window."""
_LESS_ONE_TYPES = frozenset(
    "gpt_oss gemma4 gemma4_text gemma4_unified gemma4_unified_text muse_glimmer mellum beam inkling".split()
)
_OWN_CLASS = (Kind.STATE, Kind.COMPRESSED, Kind.INDEXER)
"""Layers of them run through no class of transformers."""
THROUGH = frozenset(classes("sglang", "through_transformers"))
"""Classes of transformers that SGLang runs through its transformers backend."""
_NOT_THROUGH = frozenset(classes("sglang", "not_through_transformers"))
_DEEPSEEK = frozenset(classes("sglang", "like_deepseek"))
_DEEPSEEK_TYPES = frozenset(("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "longcat_flash"))


def class_of(model: Model) -> str:
    """The class that SGLang builds for the one that the config names; empty where it names none."""
    return row_of(model.architecture).built_as or model.architecture or ""


def known_of(model: Model) -> ModelClass:
    """The row of that class."""
    return row_of(class_of(model))


def is_one_of(model: Model, classes: frozenset[str], types: frozenset[str]) -> bool:
    """By the class that the config names, else by its model type."""
    if model.architecture is not None:
        return class_of(model) in classes
    return model.model_type in types


def has_window_pool(model: Model) -> bool:
    """is_hybrid_swa_model, for a model that has window layers."""
    windows = any(is_window(part) for run in model.runs for part in run.layer.parts)
    return windows and is_one_of(model, HYBRID_SWA, HYBRID_SWA_TYPES)


def window_layers(model: Model) -> int:
    """How many layers keep a window."""
    return sum(run.count for run in model.runs if any(is_window(part) for part in run.layer.parts))


def is_window(part: Part) -> bool:
    """Whether a layer keeps a window alone; DeepSeek-V4's keep more beside it."""
    return part.window is not None and part.kind is not Kind.COMPRESSED


def is_deepseek(model: Model) -> bool:
    """The family of arg_groups/model_overrides/deepseek_v2.py."""
    return is_one_of(model, _DEEPSEEK, _DEEPSEEK_TYPES)


def has_extra_buffer(model: Model) -> bool:
    return is_one_of(model, EXTRA_BUFFER, EXTRA_BUFFER_TYPES)


def window_size(model: Model, window: int) -> int:
    """The class's reading of the config's window (get_attention_sliding_window_size)."""
    return window - is_one_of(model, LESS_ONE, _LESS_ONE_TYPES)


def is_multimodal(model: Model) -> bool:
    """ModelConfig.is_multimodal: a class of the list, or a config whose text model is a part of its own."""
    name = class_of(model)
    if name in _TEXT_ONLY:
        return False
    if known_of(model).both_encoders and facts_of(model).vision is None:
        return False
    return name in MULTIMODAL or facts_of(model).text_part


def has_prefill_graphs(model: Model) -> bool:
    """Whether the model's class may have prefill graphs (disable_breakable_cudagraph_if_incompatible)."""
    if has_kind(model, Kind.COMPRESSED):
        return False
    if known_of(model).kda_prefill_graphs:
        return True
    if any(part.family == "kda" for run in model.runs for part in run.layer.parts):
        return False
    if known_of(model).asks_prefill_graphs:
        return True
    return not is_multimodal(model) or class_of(model) in _PREFILL_GRAPHS


def prefills_whole(model: Model) -> bool:
    return is_multimodal(model) and known_of(model).prefills_whole


def uses_state_radix(model: Model) -> bool:
    """Whether the strategies of state caching say something about the model."""
    if not has_kind(model, Kind.STATE):
        return False
    return model.architecture is None or class_of(model) in STATE_RADIX or known_of(model).state_radix


def refusal_of(model: Model, version: str = VERSIONS[-1]) -> Refusal | None:
    """A model that SGLang cannot serve from its own classes or through transformers'."""
    families = {part.family for run in model.runs for part in run.layer.parts}
    if none := sorted(families & _NO_CLASS.keys()):
        why = f"SGLang has no class for {_NO_CLASS[none[0]]} ({none[0]} layers)"
        return Refusal("unsupported-model", why)
    if unknown := known_of(model).not_described:
        raise KvplanError("unknown-rule", f"SGLang's cache for {class_of(model)} is not known: {unknown}")
    if strange := sorted(families - ROWS - STATES):
        raise KvplanError("unknown-rule", f"how SGLang stores {', '.join(strange)} layers is not known")
    why = _not_yet(model, version) or _in_no_release(model)
    return Refusal("unsupported-model", why) if why else None


def _not_yet(model: Model, version: str) -> str:
    """A class that came later than the release, or than its transformers."""
    name, known = class_of(model), known_of(model)
    through = name in THROUGH or known.once_through_transformers
    through = through or row_of(model.architecture).read_by_transformers
    if through and not is_in_transformers(model.architecture or "", version):
        return f"SGLang {version} has no class for {name}, nor has its transformers"
    later = name in later_classes(version) and not known.once_through_transformers
    return f"SGLang {version} has no class for {name}" if later else ""


def _in_no_release(model: Model) -> str:
    """A class that SGLang does not have, and does not run through transformers."""
    name = class_of(model)
    if not name or name in SERVED:
        return ""
    why = f"SGLang 0.5.23 has no class for {name}"
    if name in THROUGH or model.is_gguf:
        return why if has_kind(model, *_OWN_CLASS) else ""
    if facts_of(model).remote:
        return ""  # the repository's own code may run through the transformers backend
    if name in _NOT_THROUGH:
        return f"{why}, and transformers' is not compatible with its backend"
    return f"{why}, and neither has transformers"


def is_in_transformers(architecture: str, version: str) -> bool:
    """Whether the release's transformers has the class, and the release runs it (model_loader/utils.py)."""
    return reached(version, row_of(architecture).transformers_since)


def has_fa3(architecture: str, version: str) -> bool:
    """is_fa3_default_architecture of 0.4.6 to 0.5.7 (utils.py, then utils/common.py)."""
    since = row_of(architecture).fa3_since
    return bool(since) and reached(version, since)


def hears_pool_flag(architecture: str, version: str) -> bool:
    """--disable-hybrid-swa-memory; 0.5.7 does not look at it for MiMo-V2 (configs/model_config.py)."""
    return not row_of(architecture).pool_flag_unheard or not had_window_pool(architecture, version)


def had_window_pool(architecture: str, version: str) -> bool:
    """Whether the class's windows had a pool of their own in a release before 0.5.8: by its name in
    model_executor/model_runner.py (model_specific_adjustment, "Check if the model is using hybrid SWA") and
    server_args.py (model_specific_adjustments, __post_init__)."""
    releases = row_of(architecture).window_pool_in
    return bool(releases) and within(version, *releases)
