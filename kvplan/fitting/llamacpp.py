"""llama.cpp: what is free on a device after the weights, the compute buffer and what ``--fit`` keeps free.

ggml-org/llama.cpp at 0c1e57098: src/llama-model.cpp (load_tensors: layers dealt to the devices, the output
with the last of them, the token embedding in host memory), common/fit.cpp (1,024 MiB stay free on each
device). The compute buffer is that of the widest step: a micro-batch of logits, or of the MLP, in f32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kvplan.budget.lines import about, exact, left_over
from kvplan.engines.base import Choice
from kvplan.engines.llamacpp.memory import place
from kvplan.engines.options import resolve
from kvplan.engines.own_options import LLAMACPP
from kvplan.errors import KvplanError, RefusedError
from kvplan.fitting import Fit
from kvplan.fitting.parts import UNCALIBRATED, Start, context_line, no_pool, once_a_start
from kvplan.model import Model
from kvplan.readers.activation_shape import shape_of
from kvplan.readers.gguf.weights import tensor_bytes
from kvplan.results import ModelWeights
from kvplan.settings import Settings
from kvplan.units import GIB, MIB

KEPT_FREE = GIB
"""``--fit-target`` by default: MiB on each device."""
MARGIN = 512 * MIB
_F32 = 4
_LAYER = re.compile(r"blk\.(\d{1,6})\.")
_EMBEDDING, _OUTPUT = "token_embd.weight", "output"


@once_a_start
def fit(model: Model, choice: Choice, settings: Settings, start: Start) -> Fit:
    """The budget of the device with the most weights. Raises KvplanError(bad-setting)."""
    gpu, _, total, reserved, warnings = start
    options = resolve(LLAMACPP, dict(settings.engine_options), choice.engine.name)
    try:
        if not options.flag("flash_attn"):
            raise RefusedError(
                "no-memory",
                "without flash attention the compute buffer grows with the context",
                help=("--flash-attn", "--kv-cache-memory 16GiB"),
            )
        weights, source = _weights(model, settings, options.count("n_gpu_layers"))
    except KvplanError as error:
        return Fit(None, None, (no_pool(error),))
    shape = shape_of(model, 2)
    widest = max(shape.vocab_size + shape.hidden_size, 2 * shape.mlp_width + 2 * shape.hidden_size)
    lines = (
        exact("weights", weights.bytes_per_gpu, source),
        about(
            "compute buffer",
            (options.count("ubatch_size") or 0) * widest * _F32,
            MARGIN,
            f"n_ubatch · widest step · 4 B; {UNCALIBRATED}",
        ),
        context_line(1),
        *reserved,
        exact("kept free", KEPT_FREE, "--fit keeps 1,024 MiB of each device free"),
    )
    budget = left_over(gpu.slug, total, total, lines, calibrated=False)
    warnings += ("llama.cpp's compute buffer is uncalibrated: mind the interval of the pool",)
    return Fit(budget, weights, warnings)


def _weights(model: Model, settings: Settings, n_gpu_layers: int | None) -> tuple[ModelWeights, str]:
    """Of the fullest device, as stated or from the GGUF's list of tensors. Raises RefusedError."""
    devices = settings.pipeline_parallel_size
    if settings.weights is not None:
        stated = settings.weights
        return ModelWeights(stated, stated * devices, "--weights"), "--weights: bytes of one GPU, as given"
    path = Path(model.source)
    if model.architecture is not None or not path.is_file():
        raise RefusedError(
            "no-weights",
            f"llama.cpp loads a GGUF file, and {model.id} was not read from one",
            help=("give the .gguf file", "--weights 15GiB"),
        )
    tensors = tensor_bytes(path)
    per_device = [0] * devices
    dealt = _dealt(tensors, devices, n_gpu_layers)
    for device, amount in dealt:
        if device is not None:
            per_device[device] += amount
    total, host = sum(tensors.values()), sum(amount for device, amount in dealt if device is None)
    source = f"tensors of the GGUF file; {host:,} B in host memory"
    return ModelWeights(max(per_device), total, "GGUF tensors"), source


def _dealt(
    tensors: Mapping[str, int], devices: int, n_gpu_layers: int | None
) -> list[tuple[int | None, int]]:
    """The device (None: host) and bytes of each tensor; a tied embedding lies with the output once more."""
    numbered = {name: int(found[1]) for name in tensors if (found := _LAYER.match(name))}
    layers = max(numbered.values(), default=-1) + 1
    places = place(layers, devices, n_gpu_layers)
    output = devices - 1 if n_gpu_layers is None or n_gpu_layers > 0 else None
    dealt: list[tuple[int | None, int]] = []
    for name, amount in tensors.items():
        if name in numbered:
            dealt.append((places[numbered[name]], amount))
        else:
            dealt.append((output if name.startswith(_OUTPUT) else None, amount))
    if "output.weight" not in tensors and _EMBEDDING in tensors:
        dealt.append((output, tensors[_EMBEDDING]))
    return dealt
