"""Drafts of llama.cpp's server: prediction layers of the model itself (``--spec-type draft-mtp``), a model of
its own (``-md``), or an EAGLE-3 head, which reads hidden states of the model (``draft-eagle3``).

ggml-org/llama.cpp at 0c1e57098: common/speculative.cpp (the draft has a context of its own, as long as the
target's, its cache in f16 whatever the target's), common/common.h (need_n_rs_seq: states of so many tokens
more), src/llama-memory-recurrent.cpp, src/llama-arch.cpp (llm_arch_supports_rs_rollback), conversion/glm.py.
"""

from __future__ import annotations

from kvplan.engines.llamacpp.cache_layout.caches import Cache, Layout, caches_of
from kvplan.engines.llamacpp.gguf_file.converted import WITH_PREDICTION
from kvplan.engines.llamacpp.gguf_file.heads import is_head
from kvplan.engines.llamacpp.start.models import name_of
from kvplan.errors import KvplanError
from kvplan.model import Layer, Model
from kvplan.record import replace
from kvplan.settings import Layout as Settings

METHOD, NAMED, HEAD = "mtp", "draft_model", "eagle3"
LOOKUPS = ("ngram", "ngram_gpu", "suffix")
"""Methods that look drafts up in what is there: they take no memory of a GPU (``--spec-type ngram-…``)."""
MOST = 3
"""--spec-draft-n-max, where nobody says otherwise (common/common.h)."""
ROLLS_BACK = frozenset(
    """
    bailing_moe_v3 glm5_next kimi_k3 lfm2 lfm2_moe lfm2moe nemotron_h nemotron_h_moe qwen3_5 qwen3_5_moe
    qwen3_5_moe_text qwen3_5_text qwen35 qwen35moe qwen4_exp
    """.split()
)
"""Types whose states are kept for each drafted token as well."""


def layers_in_file(model: Model) -> int:
    """The layers that are dealt: prediction layers that the file has count, though only a draft loads them
    (src/llama-model.cpp, n_layer_all)."""
    has = model.architecture is None or model.model_type in WITH_PREDICTION
    return model.num_layers + (len(model.draft_layers) if has else 0)


def drafts(settings: Settings) -> bool:
    """Whether the model's own prediction layers draft."""
    return settings.speculative_method == METHOD and settings.num_speculative_tokens > 0


def named_draft(settings: Settings) -> Model | None:
    """The draft model (``-md``), where there is one."""
    return settings.speculative_model if settings.num_speculative_tokens else None


def has_head(settings: Settings) -> bool:
    """Whether an EAGLE-3 head drafts, for which the model keeps hidden states."""
    return settings.speculative_method == HEAD and named_draft(settings) is not None


def check_draft(model: Model, settings: Settings) -> None:
    """Raises KvplanError(unsupported-setting) for a draft that is not counted."""
    method, named = settings.speculative_method, settings.speculative_model
    if method in LOOKUPS or (method is None and named is None):
        return
    if method not in (METHOD, NAMED, HEAD, None) or (method in (NAMED, HEAD) and named is None):
        raise _not_counted(str(method))
    if named is not None:
        if (method == HEAD) is not is_head(named):
            raise _other_kind(named, method)
        if method == METHOD:
            raise KvplanError(
                "unsupported-setting",
                f"a draft of prediction layers in a file of its own, {named.id}, is not counted",
                help=f"--speculative mtp:{MOST}: those of the model's own file",
            )
        return
    if layers_in_file(model) == model.num_layers:
        raise KvplanError(
            "unsupported-setting",
            f"llama.cpp's file of {model.id} has no prediction layers: draft-mtp does not start",
            help="leave the draft out",
        )


def _not_counted(method: str) -> KvplanError:
    beside = method in (NAMED, HEAD)
    own = f"--speculative-model: its .gguf file, or hf:org/{'model' if method == NAMED else 'head'}"
    said = f"{method} drafts with a model of its own, and none that can be read here is named"
    unknown = f"what a draft of the kind {method} takes under llama.cpp is not known"
    return KvplanError(
        "unsupported-setting",
        said if beside else unknown,
        help=(
            *((own,) if beside else ()),
            f"--speculative mtp:{MOST}, where the model has such layers",
            f"--speculative draft_model:{MOST} --speculative-model qwen3-0.6b",
            "leave the draft out, and keep free what it prints by itself: --gpu 20GiB",
        ),
    )


def _other_kind(named: Model, method: str | None) -> KvplanError:
    """A head that is to draft as a model, or what is no head as one."""
    if method == HEAD:
        said = f"{named.id} is no EAGLE-3 head that llama.cpp converts: one layer with draft_vocab_size"
        return KvplanError("unsupported-setting", said, help=f"--speculative draft_model:{MOST}, of a model")
    said = f"{named.id} is an EAGLE-3 head, which drafts as no model by itself"
    return KvplanError("unsupported-setting", said, help=f"--speculative {HEAD}:{MOST}")


def states_of(model: Model, settings: Settings) -> int:
    """How many states a slot has: one, and one for each drafted token where the graph can go back."""
    rolls = (drafts(settings) or has_head(settings)) and name_of(model) in ROLLS_BACK
    return 1 + settings.num_speculative_tokens if rolls else 1


def with_states(caches: tuple[Cache, ...], times: int) -> tuple[Cache, ...]:
    """The caches with so many states a slot."""
    if times == 1:
        return caches
    return tuple(
        replace(one, tensor=replace(one.tensor, entry_bytes=one.tensor.entry_bytes * times))
        if one.tensor.group == "state"
        else one
        for one in caches
    )


def draft_caches(model: Model, layout: Layout) -> tuple[Cache, ...]:
    """The caches of the prediction layers. layout: with a store in f16."""
    layers: dict[Layer, int] = {}
    for layer in model.draft_layers:
        layers[layer] = layers.get(layer, 0) + 1
    return as_draft(caches_of(layout, layers))


def as_draft(caches: tuple[Cache, ...]) -> tuple[Cache, ...]:
    """Caches of the draft's own context, which has no states of drafted tokens."""
    return tuple(
        one if one.tensor.group == "state" else replace(one, tensor=replace(one.tensor, group="draft"))
        for one in caches
    )
