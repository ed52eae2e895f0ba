"""The keywords of `kvplan.size`, `explain`, `compare`, `plan` and `simulate`, with types and meanings.

Made by ``python -m scripts.make_api`` from the command line's table of options.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypedDict

from kvplan.gpu import Gpu


class PlanOptions(TypedDict, total=False):
    """Settings of all candidates of `kvplan.plan`. None is as if it were not given."""

    quantization: str | None
    """Quantise the weights while loading: fp8, bitsandbytes."""
    gpu_memory_utilization: Fraction | float | str | None
    """Share of the GPU's memory that vLLM may take. Default: the version's."""
    settings: Mapping[str, Any] | None
    """Any other setting, or option of the engine, by each name that it has: {'max_loras': 4}."""


class SimulateOptions(PlanOptions, total=False):
    """Settings of what `kvplan.simulate` runs. None is as if it were not given."""

    gpu: Gpu | str | None
    """GPU (kvplan list gpus), how many, a size such as 80GiB, or auto: its memory budget and pool."""
    tensor_parallel_size: int | None
    """Tensor parallel size."""
    pipeline_parallel_size: int | None
    """Pipeline parallel size."""
    data_parallel_size: int | None
    """Data parallel size (replicas)."""
    kv_cache_dtype: str | None
    """The cache's dtype: auto, bfloat16, fp8, fp8_e5m2, nvfp4, fp8_ds_mla, q8_0 and more."""
    max_model_len: int | str | None
    """Longest request that the engine is started for; auto: the longest that fits."""
    max_num_seqs: int | None
    """Most requests in one step."""
    max_num_batched_tokens: int | str | None
    """Most tokens in one step; a window layer keeps this many more."""
    enable_prefix_caching: bool | None
    """Keep finished prompts for reuse."""
    speculative_config: str | Mapping[str, Any] | None
    """Speculative decoding: vLLM's dict, its JSON, mtp:1."""
    tp: int | None
    """Short for tensor_parallel_size."""
    pp: int | None
    """Short for pipeline_parallel_size."""
    dp: int | None
    """Short for data_parallel_size."""


class SizeOptions(SimulateOptions, total=False):
    """Keywords of `kvplan.size`, but model and engine. None is as if it were not given."""

    tokens: int | str | None
    """Tokens of one request; 32k is 32,768. Default: all the model takes."""
    requests: int | None
    """How many requests run at once."""
    answer_tokens: int | str | None
    """Of a request's tokens, those that are generated. Default: an eighth."""
    encoder_tokens: int | str | None
    """Positions that cross attention reads."""
    images: int | str | None
    """Images in one request, counted by the model's own processor."""
    image_size: str | None
    """Size of the images, or of the video's frames, such as 1280x720."""
    video_frames: int | str | None
    """Frames of one video in the request, as they are sampled."""
    audio_seconds: float | str | None
    """Audio in the request."""
    kv_cache_memory: int | str | None
    """Memory for the cache on each GPU, such as 16GiB: how many requests fit?"""
    decode_context_parallel_size: int | None
    """Decode context parallel size."""
    enable_expert_parallel: bool | None
    """Whole experts on each GPU."""
    dtype: str | None
    """The model's dtype: auto, bfloat16, float16, float32."""
    weights: int | str | None
    """Weights on each GPU, such as 15GiB: what its log says that loading took."""
    weights_from: str | None
    """transformers: count the weights by building the model's class, for models without tensor rules."""
    block_size: int | None
    """Tokens in a block."""
    enforce_eager: bool | None
    """No CUDA graphs."""
    attention_backend: str | None
    """Attention backend, where it decides the block size."""
    dcp: int | None
    """Short for decode_context_parallel_size."""
