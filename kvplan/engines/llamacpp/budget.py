"""llama.cpp: what is free on a device after the weights, the compute buffer and what ``--fit`` keeps free.

ggml-org/llama.cpp at 0c1e57098: src/llama-model.cpp (load_tensors: layers dealt to the devices, the output
with the last of them, the token embedding in host memory), common/fit.cpp (1,024 MiB stay free on each
device). The compute buffer is that of the widest step: a micro-batch of logits, or of the MLP, in f32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.architectures.weights import sources_of
from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit
from kvplan.engines.budget.lines import about, exact, left_over
from kvplan.engines.budget.parts import UNCALIBRATED, Start, context_line, no_pool, once_a_start
from kvplan.engines.llamacpp.converted import converted
from kvplan.engines.llamacpp.ggml_types import known_mixture
from kvplan.engines.llamacpp.memory import place
from kvplan.engines.llamacpp.options import OPTIONS
from kvplan.engines.options import Options, resolve
from kvplan.errors import KvplanError, RefusedError
from kvplan.model import Model
from kvplan.results import ModelWeights
from kvplan.settings import Settings
from kvplan.units import GIB, MIB

KEPT_FREE = GIB
"""``--fit-target`` by default: MiB on each device."""
MARGIN = 512 * MIB
_F32 = 4
_LAYER = re.compile(r"blk\.(\d{1,6})\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
"""Tensors that --n-cpu-moe and --cpu-moe leave in host memory (common/common.h)."""
_EMBEDDING, _OUTPUT = "token_embd.weight", "output"


class Weights(NamedTuple):
    """What is loaded, where the figure comes from, and the bytes of each GPU, then of the host."""

    found: ModelWeights
    source: str
    places: tuple[int, ...] = ()


@once_a_start
def fit(model: Model, choice: Choice, settings: Settings, start: Start) -> Fit:
    """The budget of the device with the most weights. Raises KvplanError(bad-setting)."""
    gpu, _, total, reserved, warnings = start
    options = resolve(OPTIONS, dict(settings.engine_options), choice.engine.name)
    if settings.quantization is not None and settings.weights is None:
        known_mixture(settings.quantization)
    try:
        if not options.flag("flash_attn"):
            raise RefusedError(
                "no-memory",
                "without flash attention the compute buffer grows with the context",
                help=("--flash-attn", "--kv-cache-memory 16GiB"),
            )
        weights = _weights(model, settings, options)
    except KvplanError as error:
        return Fit(None, None, (no_pool(error),))
    shape = shape_of(model, 2)
    widest = max(shape.vocab_size + shape.hidden_size, 2 * shape.mlp_width + 2 * shape.hidden_size)
    lines = (
        exact("weights", weights.found.bytes_per_gpu, weights.source),
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
    return Fit(budget, weights.found, warnings, per_device=weights.places)


def _weights(model: Model, settings: Settings, options: Options) -> Weights:
    """Of the fullest device, as stated or from the GGUF's list of tensors. Raises RefusedError."""
    devices = settings.pipeline_parallel_size
    if settings.weights is not None:
        stated = settings.weights
        source = "--weights: bytes of one GPU, as given"
        return Weights(ModelWeights(stated, stated * devices, "--weights"), source)
    tensors, source = _tensors(model, settings)
    places = [0] * (devices + 1)
    for device, amount in _dealt(tensors, devices, options):
        places[devices if device is None else device] += amount
    found = ModelWeights(max(places[:-1]), sum(tensors.values()), "GGUF tensors")
    return Weights(found, f"{source}; {places[-1]:,} B in host memory", tuple(places))


def _tensors(model: Model, settings: Settings) -> tuple[Mapping[str, int], str]:
    """Name → bytes, and where they are known from: the file, or the build of a mixture of types by its name.

    Raises RefusedError(no-weights), KvplanError(bad-setting)."""
    mixture = settings.quantization
    if model.is_gguf:
        if mixture is not None:
            raise KvplanError(
                "bad-setting", f"{model.id} is a GGUF file, which has its types already", help="leave it out"
            )
        named = sources_of(model).named
        assert named is not None
        return named(), "tensors of the GGUF file"
    if mixture is None:
        raise RefusedError(
            "no-weights",
            f"llama.cpp loads a GGUF file, and {model.id} was not read from one",
            help=("give the .gguf file", "--quantization q4_k_m", "--weights 15GiB"),
        )
    sources = sources_of(model)
    if sources.inventory is None:
        problem = sources.problem.message if sources.problem is not None else "its tensors are not known"
        raise RefusedError("no-weights", problem, help=("--weights 15GiB",))
    name = known_mixture(mixture)
    found = converted(model, sources.inventory, name)
    return found.bytes_by_name, f"a {name} build, each type as llama-quantize chooses it"


def _dealt(tensors: Mapping[str, int], devices: int, options: Options) -> list[tuple[int | None, int]]:
    """The device (None: host) and bytes of each tensor; a tied embedding lies with the output once more."""
    n_gpu_layers = options.count("n_gpu_layers")
    numbered = {name: int(found[1]) for name in tensors if (found := _LAYER.match(name))}
    layers = max(numbered.values(), default=-1) + 1
    places = place(layers, devices, n_gpu_layers)
    hosted = layers if options.flag("cpu_moe") else options.count("n_cpu_moe") or 0
    output = devices - 1 if n_gpu_layers is None or n_gpu_layers > 0 else None
    dealt: list[tuple[int | None, int]] = []
    for name, amount in tensors.items():
        if name in numbered:
            layer = numbered[name]
            left = layer < hosted and _EXPERTS.search(name) is not None
            dealt.append((None if left else places[layer], amount))
        else:
            dealt.append((output if name.startswith(_OUTPUT) else None, amount))
    if "output.weight" not in tensors and _EMBEDDING in tensors:
        dealt.append((output, tensors[_EMBEDDING]))
    return dealt
