"""The planners that vLLM's releases have, asked in one way (`vllm_ask` imports this, beside the release)."""

from __future__ import annotations

import importlib
import types
from contextlib import suppress
from typing import Any


class Runner:
    """What GPUModelRunner.get_kv_cache_spec reads: until 0.11 the runner lists the layers itself."""

    def __init__(self, config: Any, kind: Any) -> None:
        self.vllm_config, self._kind = config, kind
        self.shared_kv_cache_layers: dict[str, str] = {}
        self.speculative_config = config.speculative_config
        self.model_config, self.cache_config = config.model_config, config.cache_config
        self.attention_chunk_size = getattr(config.model_config, "attention_chunk_size", None)
        self.use_mla = config.model_config.use_mla
        self.is_encoder_only_model = False

    @property
    def kv_cache_dtype(self) -> Any:
        """The element type as GPUModelRunner.__init__ takes it."""
        word = self.cache_config.cache_dtype
        if word == "auto":
            return self.model_config.dtype
        for place in ("vllm.utils", "vllm.utils.torch_utils"):
            with suppress(ImportError, AttributeError):
                return importlib.import_module(place).STR_DTYPE_TO_TORCH_DTYPE[word]
        raise AttributeError(word)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._kind, name)
        return types.MethodType(found, self) if callable(found) else found


def allocated(plan: Any, *, one_block: bool) -> int:
    """Bytes of a worker's cache. From 0.29 its tensors are views of one allocation, before that only those of
    packed blocks, which have a stride."""
    tensors = _tensors(plan)
    sizes = [tensor.size for tensor in tensors]
    strides = [getattr(tensor, "block_stride", None) for tensor in tensors]
    return max(sizes, default=0) if one_block or any(strides) else sum(sizes)


def _tensors(plan: Any) -> list[Any]:
    return list(plan.kv_cache_tensors if hasattr(plan, "kv_cache_tensors") else plan.tensors.values())  # 0.8


def planned(
    config: Any, stages: list[dict[str, Any]], layouts: list[str], memory: int
) -> tuple[list[Any], Any, int, float]:
    """The plan of every stage, the scheduler's, and the figures of the start-up log, by whichever of its
    planners this release has (0.8.5 to 0.33)."""
    import vllm.v1.core.kv_cache_utils as planner

    for place in ("vllm.v1.kv_cache_spec_registry", "vllm.v1.core.single_type_kv_cache_manager"):
        with suppress(ImportError):
            register = getattr(importlib.import_module(place), "register_all_kvcache_specs", None)
            if register is not None:  # 0.23 and later
                register(config)
                break
    memories = [memory] * len(stages)
    if layouts:
        from vllm.v1.attention.backends.utils import resolve_kv_cache_layout

        specs = [spec for one in stages for spec in one.values()]
        resolve_kv_cache_layout(config, [layouts] * len(stages), specs)
    try:  # 0.33 moved the planner
        grouping = importlib.import_module("vllm.v1.core.kv_cache_planning")
    except ImportError:
        if not hasattr(planner, "get_kv_cache_configs"):
            return _each_for_itself(config, stages, memory)
        plans = planner.get_kv_cache_configs(config, stages, memories)
    else:
        groups = grouping.get_global_kv_cache_groups(config, stages)
        plans = grouping.get_kv_cache_configs(config, stages, memories, groups)
    scheduled = planner.generate_scheduler_kv_cache_config(plans)
    if not scheduled.kv_cache_groups:  # an encoder alone: the engine asks for no figures (v1/engine/core.py)
        return plans, scheduled, 0, 0.0
    if hasattr(planner, "get_kv_cache_capacity"):  # 0.24 and later
        # The log is written of each stage's plan, in which a group of several page sizes is whole; the
        # scheduler's has one layer's spec in its place (before 0.27 another figure for DeepSeek-V4).
        return plans, scheduled, *min(planner.get_kv_cache_capacity(config, plan) for plan in plans)
    # Before, the figures are worked out where they are logged.
    printed = _listen(planner)
    for plan in plans:
        planner._report_kv_cache_config(config, plan)
    concurrency = min(planner.get_max_concurrency_for_kv_cache_config(config, plan) for plan in plans)
    return plans, scheduled, min(_said(printed, "KV cache size")), concurrency


def _listen(planner: Any) -> list[tuple[Any, ...]]:
    """What the planner logs from now on."""
    printed: list[tuple[Any, ...]] = []
    planner.logger = types.SimpleNamespace(
        info=lambda *words: printed.append(words),
        info_once=lambda *words, **_: printed.append(words),
        warning=lambda *words: None,
    )
    return printed


def _said(printed: list[tuple[Any, ...]], text: str) -> list[int]:
    """The whole numbers that were logged after this text."""
    return [int(str(words[1]).replace(",", "")) for words in printed if text in words[0]]


def _each_for_itself(
    config: Any, stages: list[dict[str, Any]], memory: int
) -> tuple[list[Any], Any, int, float]:
    """Before 0.11 (v1/engine/core.py): every worker plans and logs for itself, then the least blocks are
    taken by all."""
    import vllm.v1.core.kv_cache_utils as planner

    printed = _listen(planner)
    plans = [planner.get_kv_cache_config(config, specs, memory) for specs in stages]
    own = [plan.num_blocks for plan in plans]
    planner.unify_kv_cache_configs(plans)
    for plan, count in zip(
        plans, own, strict=True
    ):  # its tensors keep their size; blocks behind are not used
        for tensor in _tensors(plan):
            tensor.size = tensor.size // max(count, 1) * plan.num_blocks
    tokens = min(_said(printed, "KV cache size"), default=0)
    if hasattr(planner, "get_max_concurrency_for_kv_cache_config"):  # 0.9 and later
        concurrency = planner.get_max_concurrency_for_kv_cache_config(config, plans[0])
    else:
        concurrency = min(words[2] for words in printed if "Maximum concurrency" in words[0])
    return plans, plans[0], tokens, concurrency


def placed(config: Any, plan: Any) -> list[Any]:
    """[size of the one allocation, then for every layer's view: shape, strides and offset in bytes]."""
    import torch
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs, create_kv_cache_views

    layout = config.cache_config.get_resolved_kv_cache_layout()
    found: list[Any] = [layout.name, max((tensor.size for tensor in plan.kv_cache_tensors), default=0)]
    for tensor in plan.kv_cache_tensors:
        group = next(one for one in plan.kv_cache_groups if tensor.layers[0] in one.layer_names)
        spec = group.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            spec = spec.kv_cache_specs[tensor.layers[0]]
        raw = torch.empty(tensor.size, dtype=torch.int8, device="meta")
        for view in create_kv_cache_views(raw, spec, plan.num_blocks, layout, tensor):
            size = view.element_size()
            strides = [stride * size for stride in view.stride()[:-1]]
            shape = [*view.shape[:-1], view.shape[-1] * size]
            found.append([shape, strides, view.storage_offset() * size])
    return found
