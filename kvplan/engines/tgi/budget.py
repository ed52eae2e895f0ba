"""TGI: total · cuda_memory_fraction · 0.90, less what is used at the peak of the largest prefill.

huggingface/text-generation-inference 3.3 server models/flash_causal_lm.py (warmup): a batch of
max_batch_prefill_tokens runs over a small cache; what is free then beyond the share that is left alone
(TGI_WIGGLE_ROOM 0.90, models/globals.py) makes blocks, and those of the batch are added: its cache cancels.
CUDA graphs are captured afterwards, in the tenth that is left. Activations are estimated by the forward pass
of kvplan.engines.vllm.memory.profile_peak; no TGI server's log stands behind them.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.dtypes import scalar
from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit, Shortens
from kvplan.engines.budget.parts import (
    UNCALIBRATED,
    Start,
    context_line,
    kernels_of,
    no_pool,
    of_share,
    once_a_start,
    sources_for,
    weight_lines,
)
from kvplan.engines.tgi.options import ONLINE, UNKNOWN_WORDS, TgiOptions
from kvplan.engines.vllm.memory.coefficients import vllm_coefficients
from kvplan.engines.vllm.memory.profile_peak import activation_peak
from kvplan.engines.vllm.memory.profile_run import Load
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import ModelWeights, about, left_over
from kvplan.settings import Serving
from kvplan.units import GIB
from kvplan.weights.ranks import Parallel

WIGGLE_ROOM = Fraction(9, 10)
_NEWEST = (10**6,)


@once_a_start
def fit(model: Model, choice: Choice, settings: Serving, start: Start) -> Fit:
    """The budget of a shard. Raises KvplanError(bad-setting)."""
    gpu, started, total, reserved, warnings = start
    options = TgiOptions.of(settings)
    share = options.cuda_memory_fraction
    if not share:
        raise KvplanError("bad-setting", "cuda_memory_fraction is 0", help="it lies above 0")
    settings = replace(settings, quantization=loaded_as(model, settings.quantization))
    dtype, ranks = scalar(str(started.settings["dtype"])), settings.tensor_parallel_size
    try:
        facts, loaded, said = weight_lines(
            sources_for(model, settings), model, settings, Parallel(ranks, 1), dtype,
            kernels_of(choice, model, settings),
        )  # fmt: skip
    except KvplanError as error:
        if error.code == "bad-setting":
            raise
        return Fit(None, None, (no_pool(error),))
    tokens = int(started.settings["max_batch_prefill_tokens"])
    load = Load(
        max_num_seqs=1,
        max_num_batched_tokens=tokens,
        tensor_parallel_size=ranks,
        pipeline_parallel_size=1,
        gpu_memory_utilization=Fraction(1),
        enable_expert_parallel=False,
        samples=False,
    )
    peak = activation_peak(shape_of(model, dtype.bytes), load, vllm_coefficients(_NEWEST))
    how = f"a prefill of {tokens:,} tokens at start-up; {UNCALIBRATED}"
    lines = (
        *loaded,
        context_line(ranks),
        about("activation peak", peak, peak // 2 + GIB // 4, how),
        *of_share(reserved, share * WIGGLE_ROOM),
    )
    budget = left_over(gpu.slug, total, int(total * share * WIGGLE_ROOM), lines, calibrated=False)
    weights = ModelWeights(facts.bytes_per_gpu, facts.total_bytes, facts.source)
    warnings += (*said, "TGI's memory beside the cache is an estimate: mind the interval of the pool")
    shown = (("cuda_memory_fraction", float(share)),)
    return Fit(budget, weights, warnings, shown, shortens=Shortens(1, 0, "TGI's max_total_tokens"))


def loaded_as(model: Model, word: str | None) -> str | None:
    """``--quantize`` in kvplan's words. Raises KvplanError(bad-setting): the bytes of what it loads are not
    known."""
    if word in UNKNOWN_WORDS:
        raise KvplanError(
            "bad-setting",
            f"what {word} checkpoints hold is not read here",
            help="--weights 15GiB: the weights of one GPU",
        )
    if model.quantization or word is None:
        return word
    return ONLINE.get(word, word)
