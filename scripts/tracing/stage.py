"""vLLM on the stage of tests.engines.vllm_stage, with its kernels replaced by their shapes.

Attention, rotary embeddings and every custom operation that the engine runs as one kernel give back a tensor
of the right shape; language models beside an encoder are left out.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCHDYNAMO_DISABLE": "1",
}


def set_stage(gpu: str = "h100") -> Any:
    """Before vLLM is imported. Returns the LiveSet that everything is counted in."""
    os.environ.update(QUIET)
    from tests.engines import vllm_stage

    vllm_stage.set_stage(gpu)
    from scripts.tracing.live_set import LiveSet

    live = LiveSet()
    _one_kernel(live)
    _attention()
    _no_pinned_memory()
    _no_triton()
    _no_language_model()
    return live


def _one_kernel(live: Any) -> None:
    """vllm/model_executor/custom_op.py: enabled operations are kernels, compile_native ones are compiled."""
    from vllm.model_executor.custom_op import CustomOp

    def dispatch(self: Any, compile_native: bool = False) -> Any:
        one = self.enabled() or getattr(self, "_enforce_enable", False) or compile_native
        return live.fused(self.forward_native) if one else self.forward_native

    CustomOp.dispatch_forward = dispatch


def _attention() -> None:
    import torch

    def forward(self: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        torch.empty((*query.shape[:-1], 1), dtype=torch.float32)  # the log-sum-exp of FlashAttention
        width = (
            value.shape[-1] if query.dim() == 4 else query.shape[-1]
        )  # grouped keys and values are narrower
        return torch.empty((*query.shape[:-1], width), dtype=query.dtype)

    places = (
        ("vllm.model_executor.layers.attention.mm_encoder_attention", "MMEncoderAttention"),
        ("vllm.attention.layers.mm_encoder_attention", "MMEncoderAttention"),
        ("vllm.attention.layer", "MultiHeadAttention"),
    )
    for place, name in places:
        with suppress(ImportError, AttributeError):
            getattr(importlib.import_module(place), name).forward = forward
    rotary: Any = importlib.import_module("vllm.vllm_flash_attn.layers.rotary")
    rotary.apply_rotary_emb = lambda value, *rest, **named: torch.empty_like(value)


def _no_pinned_memory() -> None:
    import torch

    real = torch.empty_like

    def empty_like(*args: Any, **named: Any) -> Any:
        named.pop("pin_memory", None)
        return real(*args, **named)

    torch.empty_like = empty_like
    torch.Tensor.pin_memory = lambda self, *rest: self
    gib = 2**30
    for module, name in ((torch.accelerator, "get_memory_info"), (torch.cuda, "mem_get_info")):
        setattr(module, name, lambda *rest: (40 * gib, 80 * gib))


def _no_triton() -> None:
    importlib.import_module("triton.runtime.jit").JITFunction.run = lambda self, *args, **named: None


def _no_language_model() -> None:
    """What a class builds beside its encoder, before any class is imported: nothing of it is run."""
    left_out("vllm.model_executor.models.utils.init_vllm_registered_model")


def left_out(path: str) -> None:
    """A class that vLLM names, replaced by nothing."""
    module, name = path.rsplit(".", 1)
    setattr(importlib.import_module(module), name, lambda *args, **named: _nothing())


def _nothing() -> Any:
    import torch

    class Nothing(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        supports_pp = True
        layers = ()
        logits_processor = types.SimpleNamespace(scale=1.0)

        @property
        def model(self) -> Any:
            return self

        def make_empty_intermediate_tensors(self, *args: Any) -> None: ...

        def embed_input_ids(self, *args: Any) -> None: ...

        def forward(self, *args: Any, intermediate_tensors: Any = None, **named: Any) -> None: ...

    return Nothing()


def open_config(kind: str) -> None:
    """A model type whose config class comes with its checkpoint: every key as it stands, sections inside."""
    from transformers import AutoConfig, PreTrainedConfig

    class Open(PreTrainedConfig):  # type: ignore[misc, unused-ignore]
        model_type = kind

        def __init__(self, **named: Any) -> None:
            inside = {
                key: Section(**value)
                for key, value in named.items()
                if key.endswith("_config") and isinstance(value, dict)
            }
            super().__init__(**named | inside)

        def get_text_config(self, *args: Any, **named: Any) -> Any:
            return getattr(self, "text_config", getattr(self, "llm_config", self))

    class Section(PreTrainedConfig): ...  # type: ignore[misc, unused-ignore]

    AutoConfig.register(kind, Open, exist_ok=True)


def on_cpu(model: Any) -> None:
    """Parameters and buffers of a model of the meta device as CPU memory; indices are zero."""
    import torch

    def real(tensor: Any) -> Any:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    model.to_empty(device="cpu")
    for module in model.modules():
        for buffer in module.buffers(recurse=False):
            buffer.zero_()
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.device.type == "meta":
                setattr(module, name, real(value))
            elif isinstance(value, torch.device) and value.type != "cpu":
                setattr(module, name, torch.device("cpu"))


def cpu_device() -> Any:
    """Tensors that ask for a CUDA device go to the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    def moved(value: Any) -> Any:
        if type(value) is int or (isinstance(value, str) and value.startswith("cuda")):
            return "cpu"
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value

    class Redirect(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if "device" in named:
                named["device"] = moved(named["device"])
            if func is torch.Tensor.to:
                args = (args[0], *(value if type(value) is int else moved(value) for value in args[1:]))
            return func(*args, **named)

    return Redirect()


def _collectives(ranks: Any) -> None:
    """A sum is a tensor of its own, and what is gathered is as large as all parts."""
    import torch

    def all_reduce(self: Any, value: Any) -> Any:
        return torch.empty_like(value) if self.world_size > 1 else value

    def all_gather(self: Any, value: Any, dim: int = -1) -> Any:
        return torch.cat([value] * self.world_size, dim)

    ranks.all_reduce, ranks.all_gather = all_reduce, all_gather
    torch.distributed.all_gather = lambda parts, part, group=None: None  # the caller made all parts


def built(config: dict[str, Any], tp: int = 1, **more: Any) -> Any:
    """(the engine's config, the model on the meta device). more: arguments of the engine."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    from tests.engines import vllm_ask

    vllm_ask._groups(tp, 1, 0, 1)
    _collectives(vllm_ask.Ranks)
    folder = Path(tempfile.mkdtemp(prefix="trace-"))
    (folder / "config.json").write_text(json.dumps(config))
    engine = EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        enforce_eager=True,
        tensor_parallel_size=tp,
        distributed_executor_backend="mp" if tp > 1 else None,
        compilation_config={"custom_ops": ["none"]},
        **more,
    ).create_engine_config()
    engine.compilation_config.static_forward_context.clear()
    with (
        set_current_vllm_config(engine, check_compile=False),
        set_default_torch_dtype(engine.model_config.dtype),
        torch.device("meta"),
        vllm_ask._meta_device(),
    ):
        return engine, initialize_model(vllm_config=engine)
