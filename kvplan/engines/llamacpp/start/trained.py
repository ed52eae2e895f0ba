"""How long a request llama-server takes: no slot is longer than the model was trained for.

ggml-org/llama.cpp tools/server/server-context.cpp (n_ctx_slot: the least of a sequence's cells and
llama_model_n_ctx_train; the cache is allocated whole all the same) and src/llama-context.cpp
(llama_init_from_model, since #28030: YaRN that was asked for makes it n_ctx_orig_yarn / rope_freq_scale).
"""

from __future__ import annotations

import json
from fractions import Fraction

from kvplan.engines.llamacpp.cache_layout.caches import PAD, Context
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.model import Model
from kvplan.results import Refusal

YARN = "yarn"
_LENGTH = ".context_length"


def overridden(override_kv: object) -> dict[str, int]:
    """Keys of the file that --override-kv gives another whole number."""
    found = json.loads(str(override_kv)) if override_kv else {}
    return {key: value for key, value in found.items() if isinstance(value, int) and value > 0}


def stretches(options: LlamacppOptions) -> bool:
    """Whether --rope-scaling yarn makes positions of a longer context."""
    return options.rope_scaling == YARN and (options.rope_scale or Fraction(1)) != 1


def own_length(model: Model, options: LlamacppOptions) -> int | None:
    """n_ctx_train as the file says it, or --override-kv; None where neither does."""
    found = [length for key, length in overridden(options.override_kv).items() if key.endswith(_LENGTH)]
    return found[0] if found else model.max_model_len


def trained_length(model: Model, options: LlamacppOptions) -> int | None:
    """Tokens of the longest slot: the model's own length, or what YaRN makes of it."""
    own = own_length(model, options)
    if own is None or not stretches(options):
        return own
    return int((options.yarn_orig_ctx or own) * Fraction(options.rope_scale or 1))


def slot_length(model: Model, options: LlamacppOptions, context: Context) -> int:
    """Tokens that a slot holds of the context's cells."""
    longest = trained_length(model, options)
    return context.cells if longest is None else min(context.cells, longest)


def beyond_training(model: Model, options: LlamacppOptions, tokens: int) -> Refusal | None:
    """A request that is longer than every slot, whatever -c says."""
    longest = trained_length(model, options)
    if longest is None or tokens <= longest:
        return None
    times = -(-tokens // (options.yarn_orig_ctx or own_length(model, options) or tokens))
    return Refusal(
        "request-too-long",
        f"a request of {tokens:,} tokens is longer than the {longest:,} that the model was trained for:"
        " llama-server cuts every slot to them",
        largest_max_model_len=longest,
        help=(f"--tokens {longest}", f"--rope-scaling {YARN} --rope-scale {times}: where the model bears it"),
    )


def cut_short(model: Model, options: LlamacppOptions, context: Context) -> str | None:
    """A warning where a slot of its own has cells that no request uses."""
    slot = slot_length(model, options, context)
    if context.streams < context.slots or context.cells < slot + PAD:
        return None
    return (
        f"llama-server cuts every slot of {context.cells:,} cells to the {slot:,} that the model was trained"
        " for: the others are allocated, and stay empty"
    )
