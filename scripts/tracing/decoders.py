"""vLLM's decoders as they are traced: a published config with as few layers as have every kind."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from scripts.tracing.alive import alive
from scripts.tracing.operations import Recorder, experts_stand_in, functions_of_vllm
from scripts.tracing.stage import QUIET, built

Config = dict[str, Any]
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
TOKENS = (4096, 8192)


def set_stage(gpu: str = "h100") -> Recorder:
    """Before vLLM is imported. Returns what every pass is recorded in."""
    import os
    import time

    os.environ.update(QUIET)
    time.sleep = lambda seconds: None  # vLLM tries a config again that it cannot read
    from tests.engines import vllm_stage

    vllm_stage.set_stage(gpu)
    functions = functions_of_vllm()
    importlib.import_module("triton.runtime.jit").JITFunction.run = lambda self, *args, **named: None
    from vllm.config.compilation import CompilationConfig

    recorder = Recorder(functions, frozenset(CompilationConfig._attention_ops))
    experts_stand_in()
    _native(recorder)
    import torch
    from vllm.v1.worker.workspace import init_workspace_manager

    init_workspace_manager(torch.device("meta"))
    torch._C._cuda_setStream = lambda **stream: None
    torch.cuda.stream = lambda stream: nullcontext()
    return recorder


def _native(recorder: Recorder) -> None:
    """vllm/model_executor/custom_op.py: operations run as they are written, to be compiled with others; those
    with compile_native are one kernel inside an operation that is not compiled."""
    from vllm.model_executor.custom_op import CustomOp

    def dispatch(self: Any, compile_native: bool = False) -> Any:
        return (
            recorder.one_kernel(self.forward_native, type(self).__name__)
            if compile_native
            else self.forward_native
        )

    CustomOp.dispatch_forward = dispatch


def passes(recorder: Recorder, config: Config, tp: int) -> tuple[list[str], list[list[int]]]:
    """The names of the operations of one forward pass, and of each number of TOKENS the bytes alive."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.forward_context import set_forward_context

    from tests.engines import vllm_ask

    engine, model = built(config, tp, model_impl="vllm")
    _absorbed(model)
    weights = [recorder.number(one) for one in (*model.parameters(), *model.buffers())]
    multimodal = engine.model_config.is_multimodal_model
    width = engine.model_config.get_inputs_embeds_size() if multimodal else 0
    names: list[str] = []
    found: list[list[int]] = []
    for tokens in (TOKENS[-1], *TOKENS):  # the first pass warms kernels up
        recorder.restart()
        ids = torch.zeros(tokens, dtype=torch.int64, device="meta")
        shape = (3, tokens) if engine.model_config.uses_mrope else (tokens,)
        positions = torch.zeros(shape, dtype=torch.int64, device="meta")
        embedded = (
            torch.zeros(tokens, width, dtype=engine.model_config.dtype, device="meta") if multimodal else None
        )
        with (
            torch.inference_mode(),
            set_current_vllm_config(engine, check_compile=False),
            set_forward_context(None, engine, num_tokens=tokens),
            vllm_ask._meta_device(),
            recorder,
        ):
            model(None if multimodal else ids, positions, None, inputs_embeds=embedded)
        given = [recorder.number(one) for one in (ids, positions, embedded) if one is not None]
        names = [operation.name for operation in recorder.operations]
        found.append(alive(recorder.operations, recorder.sizes, [*weights, *given]))
    return names, found[1:]


def _absorbed(model: Any) -> None:
    """What MLA makes of its up-projection as weights are loaded (process_weights_after_loading)."""
    import torch

    for module in model.modules():
        if not hasattr(module, "kv_b_proj") or hasattr(module, "W_UK_T"):
            continue
        heads = getattr(module, "num_local_heads", None) or getattr(module, "num_heads", 0)
        latent, like = getattr(module, "kv_lora_rank", 0), {"dtype": torch.bfloat16, "device": "meta"}
        module.W_UK_T = torch.empty(heads, module.qk_nope_head_dim, latent, **like)
        module.W_UV = torch.empty(heads, latent, module.v_head_dim, **like)


def parts(config: Config) -> Iterable[Config]:
    """The config and the language model's part of it."""
    yield config
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(key)
        if isinstance(inner, dict):
            yield inner


def shortened(config: Config, layers: int) -> Config:
    """The config with its first so many layers; lists and patterns with one entry a layer are cut."""
    short = {key: value for key, value in config.items() if key != "quantization_config"}
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(short.get(key), dict):
            short[key] = shortened(short[key], layers)
    count = next((short[key] for key in LAYERS if isinstance(short.get(key), int)), 0)
    if not count:
        return short
    for key, value in short.items():
        if key in LAYERS and value == count:
            short[key] = layers
        elif isinstance(value, (list, str)) and len(value) == count and key != "architectures":
            short[key] = value[:layers]
    linear = short.get("linear_attn_config")
    if isinstance(linear, dict):  # layers by number, from one
        kept = {k: [one for one in v if one <= layers] for k, v in linear.items() if isinstance(v, list)}
        short["linear_attn_config"] = {**linear, **kept}
    return short
