"""llama.cpp: what is free on a device after the weights, the compute buffer and what ``--fit`` keeps free.

ggml-org/llama.cpp at 0c1e57098: src/llama-model.cpp (load_tensors: layers dealt to the devices, the output
with the last of them, the token embedding in host memory), common/fit.cpp (what stays free on each device).
The compute buffer is that of the graph which it reserves (`kvplan.engines.llamacpp.memory.graph`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.architectures.weights import sources_of
from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit, Shortens
from kvplan.engines.budget.parts import Start, context_line, in_use_line, memory_of, no_pool, once_a_start
from kvplan.engines.llamacpp.cache_layout.caches import place
from kvplan.engines.llamacpp.cache_layout.pool import output_device, split_of
from kvplan.engines.llamacpp.gguf_file.authors import WHOLE, Build, build_of, named_build
from kvplan.engines.llamacpp.gguf_file.converted import converted
from kvplan.engines.llamacpp.gguf_file.heads import head_bytes
from kvplan.engines.llamacpp.memory.compute_buffer import (
    compute_line,
    draft_lines,
    stated_context,
    taken_over_bytes,
)
from kvplan.engines.llamacpp.memory.image_encoder import encoder_bytes, encoder_line, encoder_words
from kvplan.engines.llamacpp.model_options import options_of
from kvplan.engines.llamacpp.options import LEAST_CONTEXT, LlamacppOptions, keeps_free, not_counted
from kvplan.engines.llamacpp.start.drafts import drafts, has_head, layers_in_file, named_draft
from kvplan.engines.llamacpp.start.models import uses_flash
from kvplan.engines.llamacpp.start.overrides import Override, place_of, read
from kvplan.engines.llamacpp.start.overrides import Placed as Moved
from kvplan.engines.traits import usual_build
from kvplan.errors import KvplanError, RefusedError
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.results import BudgetLine, ModelWeights, SizeResult, exact, left_over
from kvplan.settings import Serving
from kvplan.units import MIB, gib
from kvplan.weights.stored import FOREIGN_WEIGHTS

_LAYER = regex(r"blk\.(\d{1,6})\.")
_EXPERTS = regex(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
"""Tensors that --n-cpu-moe and --cpu-moe leave in host memory (common/common.h)."""
_EMBEDDING, _OUTPUT = "token_embd.weight", "output"
_WITH_OUTPUT = (_OUTPUT, "fc.", "d2t", "enc.output_norm")
"""Tensors that lie with the output (src/llama-arch.cpp, LLM_TENSOR_LAYER_OUTPUT)."""


class Weights(NamedTuple):
    """The loaded weights, the source of the figure, and the bytes of each GPU, then of the host."""

    found: ModelWeights
    source: str
    places: tuple[int, ...] = ()
    hosted: int = 0
    """The largest tensor in host memory that a matrix is multiplied with."""

    def on(self, gpu: int) -> int:
        """Bytes on a GPU, by its number."""
        return self.places[gpu] if self.places else self.found.bytes_per_gpu


@once_a_start
def fit(model: Model, choice: Choice, settings: Serving, start: Start) -> Fit:
    """The budget of the device with the most weights. Raises KvplanError(bad-setting)."""
    gpu, started, total, reserved, warnings = start
    reserved = (*reserved, *in_use_line(gpu))
    options = options_of(model, settings)
    _check_mixture(model, settings)
    try:
        if not uses_flash(model, options.flash_attn) and stated_context(options, settings) is None:
            raise RefusedError(
                "no-memory",
                "without flash attention the compute buffer grows with the context, which was not given",
                help=("--ctx-size 16384", "--flash-attn", "--kv-cache-memory 16GiB"),
            )
        weights = _weights(model, settings, options)
    except KvplanError as error:
        return Fit(None, None, (no_pool(error),))
    shape, name, amount = shape_of(model, 2), gpu.slug, weights.found.bytes_per_gpu
    least = 0
    if settings.pipeline_parallel_size > 1:
        left = left_on(model, settings, options, weights)
        least = left.index(min(left))
        amount = weights.on(least)
    if gpu.row:
        name = gpu.row[least].slug
        total, reserved, warnings = memory_in_row(gpu.row[least])
        warnings += (_dealt_words(gpu, settings, options),)
    lines = (
        _weights_line(amount, weights.source, _build_of(model, settings)),
        compute_line(
            model, shape, options, settings, started, total - amount, 0 if least else weights.hosted, least
        ),
        *draft_lines(model, shape, options, settings, started, total - amount),
        *(() if least else encoder_line(model, shape, options)),
        context_line(1),
        *reserved,
        *_kept_line(keeps_free(options)),
    )
    budget = left_over(name, total, total, lines, calibrated=False)
    warnings += _build_words(model, settings)
    warnings += ("llama.cpp's memory beside the cache is an estimate: mind the interval of the pool",)
    shortens = _shortens(settings, options)
    warnings += encoder_words(model, options, shape) + _hosted_words(weights, started, options)
    shown = (("unequal_gpus", gpu.slug),) if gpu.row else ()
    return Fit(budget, weights.found, warnings, shown, per_device=weights.places, shortens=shortens)


def _weights_line(amount: int, source: str, build: Build | None) -> BudgetLine:
    """Bytes of the weights, between what published files of such a build take."""
    low, high = (amount, amount) if build is None else build.between(amount)
    return BudgetLine("weights", amount, low, high, source)


def _kept_line(kept: int) -> tuple[BudgetLine, ...]:
    said = f"--fit keeps {kept // MIB:,} MiB of each device free"
    return (exact("kept free", kept, said),) if kept else ()


def _shortens(settings: Serving, options: LlamacppOptions) -> Shortens | None:
    """``--fit``, on by default: without -c the context shrinks, 4,096 tokens at the least. Over several GPUs
    their sum decides how far (`kvplan.engines.llamacpp.placement`)."""
    if options.ctx_size is not None or options.fit is False:
        return None
    return Shortens(options.fit_ctx or LEAST_CONTEXT, 0, "--fit")


def memory_in_row(gpu: Gpu) -> tuple[int, tuple[BudgetLine, ...], tuple[str, ...]]:
    """The usable memory of a GPU among others. Raises KvplanError(no-memory) where nobody knows."""
    total, reserved, warnings = memory_of(gpu)
    if total is None:
        raise KvplanError(
            "no-memory", f"the memory of {gpu.slug} is not known", help="--kv-cache-memory 16GiB"
        )
    return total, (*reserved, *in_use_line(gpu)), warnings


def left_on(model: Model, settings: Serving, options: LlamacppOptions, weights: Weights) -> list[int]:
    """Bytes of each GPU beside its weights; what else is taken is as much on each, but for the matrix from
    host memory that the first one copies and the hidden states that the others take over."""
    gpu = settings.gpu
    assert gpu is not None
    left, taken_over = [], taken_over_bytes(model, options, settings)
    first = weights.hosted + sum(line.bytes for line in encoder_line(model, shape_of(model, 2), options))
    for number, one in enumerate(gpu.row or (gpu,) * settings.pipeline_parallel_size):
        total, reserved, _ = memory_in_row(one)
        own = taken_over if number else first
        left.append(total - sum(line.bytes for line in reserved) - weights.on(number) - own)
    return left


def extra_rooms(model: Model, settings: Serving, options: LlamacppOptions) -> tuple[int, ...]:
    """Bytes that each of several GPUs has for its cache beyond the one that has the least; none where the
    weights are not known."""
    gpu = settings.gpu
    if gpu is None:
        return ()
    try:
        weights = _weights(model, settings, options)
        if not weights.places:
            return ()
        left = left_on(model, settings, options, weights)
    except KvplanError:
        return ()
    return tuple(amount - min(left) for amount in left)


def _hosted_words(weights: Weights, started: SizeResult, options: LlamacppOptions) -> tuple[str, ...]:
    """How much of the weights whole layers, or their experts, keep in host memory."""
    hosted = any(started.settings.get(name) for name in ("layers_on_host", "expert_layers_on_host"))
    if not hosted or not weights.places or not weights.places[-1]:
        return ()
    amount = weights.places[-1]
    said = "" if options.host_memory is not None else not_counted(amount)
    return (f"weights of {gib(amount)} lie in host memory{said}",)


def host_weights(model: Model, settings: Serving, options: LlamacppOptions) -> int:
    """Bytes of the weights that lie in host memory; 0 where they are not known, or were stated."""
    try:
        places = _weights(model, settings, options).places
    except KvplanError:
        return 0
    return places[-1] if places else 0


def _dealt_words(gpu: Gpu, settings: Serving, options: LlamacppOptions) -> str:
    split = ",".join(map(str, split_of(settings, options)))
    how = "as stated" if options.tensor_split else "by their memory"
    return (
        f"layers are dealt {how} (--tensor-split {split}); the memory is that of the GPU with the least left"
    )


def _check_mixture(model: Model, settings: Serving) -> None:
    """Raises KvplanError(bad-setting): a build by name of what is a file already, beside stated weights, or
    of a mixture that is none."""
    if settings.quantization is None:
        return
    if model.gguf_mixture not in (None, named_build(settings.quantization).name):
        other = f"{model.id.rsplit(':', 1)[0]}:{settings.quantization.upper()}"
        raise KvplanError(
            "bad-setting",
            f"{model.id} names a file of {model.gguf_mixture}",
            help=("leave --quantization out", f"name the other file: {other}"),
        )
    if model.is_gguf:
        raise KvplanError(
            "bad-setting", f"{model.id} is a GGUF file, which has its types already", help="leave it out"
        )
    if settings.weights is not None:
        raise KvplanError(
            "bad-setting", "--weights and --quantization both say what the weights take", help="give one"
        )


def _weights(model: Model, settings: Serving, options: LlamacppOptions) -> Weights:
    """Of the fullest device, as stated or from the GGUF's list of tensors. Raises RefusedError."""
    devices = settings.pipeline_parallel_size
    if settings.weights is not None:
        stated = settings.weights
        source = "--weights: bytes of one GPU, as given"
        return Weights(ModelWeights(stated, stated * devices, "--weights"), source)
    tensors, source = _tensors(model, settings)
    split = split_of(settings, options)
    places, hosted = _summed(model, _mixture(model, settings), devices, options, split)
    encoder = (encoder_bytes(model) or 0) if options.mmproj else 0
    places[0 if options.mmproj_offload else devices] += encoder
    source += f"; mmproj {encoder:,} B" if encoder else ""
    more = encoder
    if drafts(settings):
        draft, last = prediction_bytes(model, settings), output_device(settings, options)
        places[devices if last is None else last] += draft
        source, more = f"{source}; prediction layers {draft:,} B", more + draft
    if (named := named_draft(settings)) is not None:
        own = _of_draft(model, named, settings)
        plain = LlamacppOptions()
        for one in _dealt(own, layers_in_file(named), devices, plain, split):
            places[devices if one.device is None else one.device] += one.bytes
        source, more = f"{source}; draft {named.id} {sum(own.values()):,} B", more + sum(own.values())
    found = ModelWeights(max(places[:-1]), sum(tensors.values()) + more, "GGUF tensors")
    return Weights(found, f"{source}; {places[-1]:,} B in host memory", tuple(places), hosted)


def _of_draft(model: Model, named: Model, settings: Serving) -> Mapping[str, int]:
    """Name → bytes of the draft's file. A head that has no output of its own borrows the model's."""
    if has_head(settings) and not named.is_gguf:
        return head_bytes(named, model)
    own, _ = _tensors_of(named, named.gguf_mixture or usual_build("llamacpp", named))
    if has_head(settings) and f"{_OUTPUT}.weight" not in own:
        return {name: size for name, size in own.items() if name != _EMBEDDING}
    return own


def prediction_bytes(model: Model, settings: Serving) -> int:
    """Bytes of the prediction layers. Raises RefusedError(no-weights) for a file, which does not tell them
    apart."""
    sources = sources_of(model)
    if model.is_gguf or sources.inventory is None:
        raise RefusedError(
            "no-weights",
            f"which of the tensors of {model.id} are prediction layers is not known",
            help=("--weights 15GiB: of all that is loaded", "name the model, with -q"),
        )
    mixture = settings.quantization or model.gguf_mixture or usual_build("llamacpp", model)
    build = build_of(model, str(mixture))
    return converted(model, sources.inventory, build.mixture, told=build.told).prediction


def _build_words(model: Model, settings: Serving) -> tuple[str, ...]:
    """Which build was taken, where nobody named one; of an author's own, how its size is known."""
    build = _build_of(model, settings)
    if build is not None and build.files:
        return (f"weights guessed: {build.words}; the .gguf file's header is exact",)
    named = model.is_gguf or model.gguf_mixture or settings.quantization or settings.weights is not None
    return () if named else (f"as {usual_build('llamacpp', model)}: no build was named, -q names one",)


def weights_of(model: Model, settings: Serving, options: LlamacppOptions) -> Weights:
    """The weights of each GPU, and of the host. Raises KvplanError(bad-setting | no-weights)."""
    return _weights(model, settings, options)


def file_bytes(model: Model, settings: Serving) -> int | None:
    """Bytes of the file's tensors that are loaded; None where they are not known."""
    try:
        return sum(_tensors(model, settings)[0].values())
    except KvplanError:
        return None


def _tensors(model: Model, settings: Serving) -> tuple[Mapping[str, int], str]:
    """Name → bytes, and where they are known from: the file, or the build of a mixture of types by its name.

    Raises RefusedError(no-weights)."""
    return _tensors_of(model, _mixture(model, settings))


def _mixture(model: Model, settings: Serving) -> str | None:
    return settings.quantization or model.gguf_mixture or usual_build("llamacpp", model)


@lru_cache(maxsize=64)
def _tensors_of(model: Model, mixture: str | None) -> tuple[Mapping[str, int], str]:
    if model.is_gguf:
        named = sources_of(model).named
        assert named is not None
        return named(), "tensors of the GGUF file"
    sources = sources_of(model)
    if sources.inventory is None:
        why = sources.problem
        problem = why.message if why is not None else "its tensors are not known"
        foreign = why is not None and why.code == FOREIGN_WEIGHTS
        raise RefusedError("no-weights", problem, help=why.help if why and foreign else ("--weights 15GiB",))
    build = build_of(model, str(mixture))
    found = converted(model, sources.inventory, build.mixture, told=build.told)
    rest = f"; of the file {found.prediction:,} B are prediction layers" if found.prediction else ""
    sizes: Mapping[str, int] = found.bytes_by_name
    if build.likely != WHOLE:
        sizes = {name: size * build.likely // WHOLE for name, size in sizes.items()}
    return sizes, f"{build.words}{rest}"


def _build_of(model: Model, settings: Serving) -> Build | None:
    """The build that is named, or the usual one; None where a file or stated weights say what they take.
    Raises KvplanError(bad-setting)."""
    if model.is_gguf or settings.weights is not None:
        return None
    return build_of(model, str(settings.quantization or model.gguf_mixture or usual_build("llamacpp", model)))


class Placed(NamedTuple):
    """A tensor and its device (None: host). layer: None outside the layers."""

    name: str
    bytes: int
    device: int | None
    layer: int | None = None

    @property
    def is_expert(self) -> bool:
        """Whether it has the routed experts of a layer, of which a token passes a few."""
        return self.layer is not None and _EXPERTS.search(self.name) is not None

    @property
    def is_multiplied(self) -> bool:
        """Whether each token is multiplied with it; of an embedding one row is looked up."""
        return self.layer is not None or self.name.startswith(_OUTPUT)


def dealt_tensors(model: Model, settings: Serving, options: LlamacppOptions) -> list[Placed]:
    """Each tensor of the model and its place. Raises KvplanError(bad-setting | no-weights)."""
    tensors, _ = _tensors(model, settings)
    devices, split = settings.pipeline_parallel_size, split_of(settings, options)
    return _dealt(tensors, layers_in_file(model), devices, options, split)


class _OfLayer(NamedTuple):
    """Bytes of a layer's tensors: of all and of the largest, of the experts' and of the largest of them."""

    bytes: int
    largest: int
    experts: int
    largest_expert: int
    tensors: tuple[tuple[str, int], ...]


@lru_cache(maxsize=64)
def _by_layer(model: Model, mixture: str | None) -> tuple[Mapping[int, _OfLayer], Mapping[str, int]]:
    """The tensors of each layer, and those outside them: `--fit` deals the same ones some thousand times."""
    layers: dict[int, list[tuple[str, int]]] = {}
    outside: dict[str, int] = {}
    for name, size in _tensors_of(model, mixture)[0].items():
        layer = _layer_of(name)
        if layer is None:
            outside[name] = size
        else:
            layers.setdefault(layer, []).append((name, size))
    return {layer: _of_layer(own) for layer, own in layers.items()}, outside


def _of_layer(own: Sequence[tuple[str, int]]) -> _OfLayer:
    sizes, experts = [size for _, size in own], [size for name, size in own if _EXPERTS.search(name)]
    return _OfLayer(sum(sizes), max(sizes), sum(experts), max(experts, default=0), tuple(own))


@lru_cache(maxsize=1 << 12)
def _moved(
    model: Model, mixture: str | None, layer: int, words: tuple[Override, ...]
) -> tuple[tuple[Moved | None, _OfLayer], ...]:
    """The tensors of a layer by where these overrides put them, None as the layer itself is dealt."""
    found: dict[Moved | None, list[tuple[str, int]]] = {}
    for name, size in _by_layer(model, mixture)[0][layer].tensors:
        found.setdefault(place_of(words, layer, name), []).append((name, size))
    return tuple((to, _of_layer(own)) for to, own in found.items())


def _summed(
    model: Model, mixture: str | None, devices: int, options: LlamacppOptions, split: tuple[int, ...]
) -> tuple[list[int], int]:
    """Bytes on each GPU and, last, in host memory, and the largest tensor of a layer there: the sums of
    `_dealt`."""
    layers, outside = _by_layer(model, mixture)
    places, largest = [0] * (devices + 1), 0
    count = max(layers_in_file(model), max(layers, default=-1) + 1)
    dealt = place(count, devices, options.n_gpu_layers, split)
    hosted, words = count if options.cpu_moe else options.n_cpu_moe or 0, read(options.override_tensor)
    for layer, whole in layers.items():
        own = tuple(one for one in words if one.first <= layer <= one.last)
        for moved, part in _moved(model, mixture, layer, own) if own else ((None, whole),):
            to = dealt[layer] if moved is None else moved.to
            left = part.experts if layer < hosted else 0
            places[devices if to is None else to] += part.bytes - left
            places[devices] += left
            if to is None or left:
                largest = max(largest, part.largest if to is None else part.largest_expert)
    for one in _dealt(outside, count, devices, options, split):
        places[devices if one.device is None else one.device] += one.bytes
    return places, largest


@lru_cache(maxsize=1 << 14)
def _layer_of(name: str) -> int | None:
    """The number in a tensor's name; `--fit` deals the same names some hundred times."""
    found = _LAYER.match(name)
    return None if found is None else int(found[1])


def _dealt(
    tensors: Mapping[str, int], layers: int, devices: int, options: LlamacppOptions, split: tuple[int, ...]
) -> list[Placed]:
    """Each tensor and its place; a tied embedding lies with the output once more."""
    n_gpu_layers = options.n_gpu_layers
    numbered = {name: layer for name in tensors if (layer := _layer_of(name)) is not None}
    layers = max(layers, max(numbered.values(), default=-1) + 1)
    places = place(layers, devices, n_gpu_layers, split)
    hosted = layers if options.cpu_moe else options.n_cpu_moe or 0
    shares = split or (1,) * devices
    last = max(at for at, share in enumerate(shares) if share)
    output = last if n_gpu_layers is None or n_gpu_layers > 0 else None
    words, dealt = read(options.override_tensor), list[Placed]()
    for name, amount in tensors.items():
        if name in numbered:
            layer = numbered[name]
            left = layer < hosted and _EXPERTS.search(name) is not None
            moved = place_of(words, layer, name)
            place_here = places[layer] if moved is None else moved.to
            dealt.append(Placed(name, amount, None if left else place_here, layer))
        else:
            dealt.append(Placed(name, amount, output if name.startswith(_WITH_OUTPUT) else None))
    if f"{_OUTPUT}.weight" not in tensors and _EMBEDDING in tensors:
        dealt.append(Placed(f"{_OUTPUT}.weight", tensors[_EMBEDDING], output))
    return dealt
