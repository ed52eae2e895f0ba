"""Where ``--fit`` places a model on the named GPUs: context, layers of each GPU, experts in host memory.

The rule is common/fit.cpp's (`kvplan.engines.llamacpp.start.fitting`). What the program measures is counted
here: weights as they are dealt, the caches, the compute buffer, the encoder of images (tools/server/
server-context.cpp adds it to what is to stay free), and of each GPU what is free beside the CUDA context.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.budget.parts import context_line
from kvplan.engines.llamacpp.budget import memory_in_row, weights_of
from kvplan.engines.llamacpp.cache_layout.caches import Context
from kvplan.engines.llamacpp.cache_layout.pool import (
    context_for,
    machine_of,
    output_device,
    streams_of,
    too_many_gpus,
)
from kvplan.engines.llamacpp.memory.compute_buffer import draft_line, line_of_a_gpu
from kvplan.engines.llamacpp.memory.graph import F32
from kvplan.engines.llamacpp.memory.image_encoder import encoder_line
from kvplan.engines.llamacpp.model_options import options_of
from kvplan.engines.llamacpp.options import LEAST_CONTEXT, LlamacppOptions
from kvplan.engines.llamacpp.start.cache_types import store_for
from kvplan.engines.llamacpp.start.drafts import drafts, layers_in_file, named_draft
from kvplan.engines.llamacpp.start.fitting import Amount, Shares, Start, fitted, moved
from kvplan.engines.llamacpp.start.overrides import words_of
from kvplan.engines.llamacpp.start.trained import own_length
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.results import BudgetLine
from kvplan.settings import Settings


class Placement(NamedTuple):
    """n_ctx: of all slots. own: options that say where layers lie; none where nothing is moved."""

    n_ctx: int
    own: dict[str, object]


def placed(model: Model, settings: Settings, n_ctx: int | None, *, safely: bool, spare: int = 0) -> Placement:
    """The choice of ``--fit``. n_ctx: None where it is to be chosen; safely: with every amount at the high
    end of its interval; spare: bytes of each GPU that stay free besides.

    Raises KvplanError(no-memory | no-weights | bad-setting | too-many-gpus)."""
    if (refusal := too_many_gpus(settings)) is not None:
        raise KvplanError(refusal.code, refusal.message, help=refusal.help)
    counted = Counted(model, settings, safely, spare)
    found = fitted(counted.start(n_ctx), counted.measure)
    own = {} if found.shares is None else places_of(found.shares, counted.layers).own
    return Placement(found.n_ctx, own)


class Places(NamedTuple):
    """The options with which the server would be started to the same end, as llama-fit-params prints them."""

    layers: int
    split: tuple[Fraction, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def own(self) -> dict[str, object]:
        """By their names."""
        found: dict[str, object] = {"n_gpu_layers": self.layers}
        if self.split:
            found["tensor_split"] = self.split
        if self.elsewhere:
            found["override_tensor"] = self.elsewhere
        return found


def places_of(shares: Shares, layers: int) -> Places:
    """layers: of the model."""
    count = sum(share.layers for share in shares)
    split = tuple(Fraction(share.layers) for share in shares) if len(shares) > 1 and count else ()
    # The program counts the output as a layer, of which no tensor has such a name.
    return Places(count, split, words_of(one for one in moved(shares, layers) if one.layer < layers))


class Counted:
    """The amounts of each GPU, as `fitting` asks for them."""

    def __init__(self, model: Model, settings: Settings, safely: bool, spare: int = 0) -> None:
        self.model, self.settings, self.safely, self.spare = model, settings, safely, spare
        self.options = options_of(model, settings)
        self.shape = shape_of(model, 2)
        # Prediction layers are counted where a draft loads them.
        self.layers = layers_in_file(model) if drafts(settings) else model.num_layers
        self.has_draft = drafts(settings) or named_draft(settings) is not None
        self.has_experts = bool(self.shape.experts_per_token)

    def start(self, n_ctx: int | None) -> Start:
        """Free bytes of each GPU, and the bounds of the context."""
        gpu, count = self.settings.gpu, self.settings.pipeline_parallel_size
        assert gpu is not None
        free = []
        for one in gpu.row or (gpu,) * count:
            total, reserved, _ = memory_in_row(one)
            free.append(total - sum(self._amount(line) for line in (*reserved, context_line(1))))
        least = self.options.fit_ctx or LEAST_CONTEXT
        most = max(own_length(self.model, self.options) or least, least)
        kept = (self.options.fit_target + self.spare,) * count
        streams = streams_of(self.options)
        return Start(self.layers, self.has_experts, tuple(free), kept, most, least, streams, n_ctx)

    def _amount(self, line: BudgetLine) -> int:
        return line.high_bytes if self.safely else line.bytes

    def _placed(self, shares: Shares | None, experts: bool) -> LlamacppOptions:
        if shares is not None:
            places = places_of(shares, self.layers)
            return replace(
                self.options,
                n_gpu_layers=places.layers,
                tensor_split=places.split or self.options.tensor_split,
                override_tensor=places.elsewhere,
            )
        return self.options if experts else replace(self.options, cpu_moe=True)

    def measure(self, n_ctx: int, shares: Shares | None, experts: bool) -> Sequence[Amount]:
        """Bytes of each GPU with these layers and such a context."""
        options = replace(self._placed(shares, experts), ctx_size=n_ctx)
        settings = self.settings
        weights = weights_of(self.model, settings, options)
        context = context_for(options, 0, settings.requests)
        machine = machine_of(self.model, store_for(self.model, settings, options), settings, options)
        found = []
        for gpu, cache in enumerate(machine.per_gpu(context)):
            on_gpu = weights.on(gpu)
            if not on_gpu and (gpu or not weights.hosted):
                found.append(Amount(0, 0))
                continue
            if machine.layers[gpu] or not gpu:
                compute = self._amount(self._compute(options, context, 0 if gpu else weights.hosted, gpu))
            else:  # the output alone: logits, their norm and the last layer
                compute = (self.shape.vocab_size + 2 * self.shape.hidden_size) * context.slots * F32
            if not gpu:
                compute += sum(map(self._amount, encoder_line(self.model, self.shape, options)))
            if self.has_draft and gpu == output_device(settings, options):
                line = draft_line(self.model, self.shape, options, settings, (context,))
                compute += self._amount(line)
            found.append(Amount(on_gpu, on_gpu + cache + compute))
        return found

    def _compute(self, options: LlamacppOptions, context: Context, hosted: int, gpu: int) -> BudgetLine:
        return line_of_a_gpu(self.model, self.shape, options, self.settings, (context,), hosted, gpu)
