"""The build that a name means of a model that has a card: ``RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic``.

Makers of quantised builds name them after the model: its own name, to the letter, then the format. The layers
are the card's, the weights those that builds of the format hold (`kvplan.architectures.builds`), and the
answer says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvplan.architectures.builders import BUILDER, FEWER, FP8_CACHE, WRITTEN, builder_of, habit_of
from kvplan.architectures.builds import (
    FORMS,
    as_another,
    as_build,
    as_foreign,
    as_gguf,
    as_text,
    as_trained,
    attention_saving,
    declaring_fp8,
)
from kvplan.errors import KvplanError
from kvplan.files.cards.formats import UNSAID, is_format, own_form, readings
from kvplan.files.cards.gguf_names import gguf_name, has_latents
from kvplan.files.cards.index import Target, key_of, packaged_index
from kvplan.files.cards.listed import Listed, listed, listed_as
from kvplan.later import regex
from kvplan.model import BY_NAME, Model
from kvplan.record import record, replace
from kvplan.units import gib
from kvplan.weights.stored import FOREIGN


@record()
class Layout:
    """of: the card's model. like: a packaged build that holds its matrices so, or "" for what builds of
    ``form`` hold. whole: modules left as trained beside those, by the ends of their paths. said: in words.
    fp8_cache: it declares such a cache.
    """

    of: str
    said: str
    like: str = ""
    form: str = ""
    whole: tuple[str, ...] = ()
    fp8_cache: bool = False


_NVIDIA = "nvidia/Qwen3.6-27B-NVFP4"
_MIXED = "NVFP4 in the MLPs, FP8 in attention"

LAYOUTS: Mapping[str, Layout] = {
    # Its files have 21,921,697,280 bytes (revision 482ca0f): those of Qwen3.6's build, tensor for tensor.
    "nvidia/qwen3.8-27b-nvfp4": Layout(
        "Qwen/Qwen3.8-27B", f"{_MIXED}, NVFP4 in the head", like=_NVIDIA, fp8_cache=True
    ),
    # modelopt_mixed with the head packed to NVFP4, as SGLang's cookbook lists it beside NVIDIA's.
    "radixark/qwen3.8-27b-nvfp4": Layout("Qwen/Qwen3.8-27B", f"{_MIXED}, NVFP4 in the head", like=_NVIDIA),
    # Its files have 23,749,332,688 bytes (revision 009632f).
    "radixark/qwen3.8-27b-nvfp4-bf16-lmhead": Layout(
        "Qwen/Qwen3.8-27B", _MIXED, like=_NVIDIA, whole=("lm_head",)
    ),
    # FP8 attention, NVFP4 MLPs, the encoder and 849 MB of MTP unquantised; vLLM printed 22.13 GiB with MTP
    # and, on two 5090, some 920,500 tokens, twice those of 16 bits (vllm-project/recipes#810).
    "unsloth/qwen3.8-27b-nvfp4": Layout(
        "Qwen/Qwen3.8-27B", _MIXED, like=_NVIDIA, whole=("lm_head",), fp8_cache=True
    ),
    # Its config's `ignore` has 244 entries: linear attention's inputs in 48 layers, head, encoder, MTP.
    # vLLM printed 23.94 GiB, 24.70 with MTP.
    "inferact/qwen3.8-27b-nvfp4": Layout(
        "Qwen/Qwen3.8-27B",
        "NVFP4 but for the inputs of linear attention",
        form="modelopt-nvfp4",
        whole=("linear_attn.in_proj_qkv", "linear_attn.in_proj_z"),
    ),
    # Experts and full attention in NVFP4, linear attention as trained; vLLM printed 21.86, 23.43 with MTP.
    "redhatai/qwen3.6-35b-a3b-nvfp4": Layout(
        "Qwen/Qwen3.6-35B-A3B",
        "NVFP4 but for linear attention",
        form="nvfp4",
        whole=("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
    ),
}
"""Key of a build's name → how it holds its weights, of published builds that mix formats and whose config is
not packaged: as the build's page or config was reported. tests/files/test_layouts.py checks each by the bytes
of its files, or by the GiB that vLLM printed when it had loaded it."""


_MAKERS: Mapping[str, Mapping[str, str]] = {
    "nvidia": {"fp8": "modelopt-fp8"},
    "redhatai": {"fp8": "fp8-tensor", "modelopt-nvfp4": "nvfp4"},
    "neuralmagic": {"fp8": "fp8-tensor", "modelopt-nvfp4": "nvfp4"},
    "zai-org": {"fp8": "fp8-dynamic"},
    "cyankiwi": {"awq": "w4a16-g32", "awq-int4": "w4a16-g32-asym"},
    "cpatonn": {"awq": "w4a16-g32"},
    "amd": {"fp8": "fp8-tensor", "mxfp4": "quark-mxfp4"},
    "poolside": {"w4a16": "w4a16-g32"},
}
"""Makers whose names mean another layout than the usual one. cyankiwi's: four 27B and 9B builds were loaded
by vLLM 0.30 in 18.37, 18.32, 12.90 (two GPUs) and 12.19 GiB, which these have to 0.02 GiB."""
_USUAL = {"awq-int4": "awq"}
"""The meaning of a name where its maker means nothing else by it."""
_REPUBLISHED = frozenset("unsloth redhatai neuralmagic nvidia lmstudio-community nousresearch".split())
"""Who publishes other makers' checkpoints under the same names, as they are."""
_FOUR_BITS = ("nvfp4", "modelopt-nvfp4", "mxfp4")
"""Formats of which some makers leave attention alone."""
_TRAINED = ("whole", "less")
_OWN_RULES = frozenset(("deepseek_v4",))
"""Model types whose checkpoints mix formats that no usual build has."""


LAID_OUT = "by its layout"
"""How a model's provenance begins whose build's layout is known (`kvplan.files.cards.builds`)."""
_OTHER = dict.fromkeys(
    (
        "hugging-quants/meta-llama-3.1-405b-instruct-awq-int4",
        "hugging-quants/meta-llama-3.1-405b-instruct-gptq-int4",
    ),
    "16 KV heads, as the model's first release had: twice the cache",
)
"""Builds whose names name a card that they are not: what their own config says instead
(AlexsJones/llmfit 1.1.17 llmfit-core/data/hf_models.json)."""


@record()
class NamedBuild:
    """The parts of a build's name: the card's target, and the format (``whole``: as it was trained,
    ``gguf:q4_k_m``: a GGUF file of that mixture). listed: what a public list says of it, or of what it is a
    build of. layout: what is known of how it holds its weights."""

    target: Target
    form: str
    listed: Listed | None = None
    layout: Layout | None = None

    @property
    def like(self) -> Target | None:
        """The packaged build whose matrices are held as this one's."""
        return _packaged(self.layout.like) if self.layout is not None and self.layout.like else None


def named_build(name: str) -> NamedBuild | None:
    """Read a build's name; None where it is not one."""
    key = key_of(name)
    layout = LAYOUTS.get(key)
    if layout is not None:
        return NamedBuild(_packaged(layout.of), layout.form, layout=layout)
    exact = listed(key)
    if exact is not None:
        return _of_the_list(exact, exact.form)
    gguf = gguf_name(key)
    if gguf is not None:
        base, mixture = gguf
        maker, _, rest = base.rpartition("/")
        target = _target(rest, maker) or _of_the_catalogue(rest, maker)
        return _tuned(base, f"gguf:{mixture}") if target is None else NamedBuild(target, f"gguf:{mixture}")
    maker, _, rest = key.rpartition("/")
    read = [(base, meant(maker, form)) for base, form in readings(rest, maker)]
    for base, form in read:
        target = _target(base, maker) or _target(f"{base}-bf16", maker) or _quantised(f"{maker}/{base}")
        if target is not None:
            return NamedBuild(target, form)
    one = own_form(maker)
    if one is not None:
        target = _target(rest, maker)
        return _tuned(key, one) if target is None else NamedBuild(target, one)
    target = _target(rest, maker) if maker in _REPUBLISHED else None
    target = target or _quantised(key) or _instructed(key)
    if target is not None:
        return NamedBuild(target, "whole")
    return next(filter(None, (_tuned(f"{maker}/{base}", form) for base, form in read)), None)


def _packaged(name: str) -> Target:
    names: Mapping[str, str] = packaged_index()["names"]
    return Target.parse(names[key_of(name)])


def meant(maker: str, form: str) -> str:
    """The layout that a maker means by the format that a name says."""
    return _MAKERS.get(maker, {}).get(form) or _USUAL.get(form, form)


def _tuned(base: str, form: str) -> NamedBuild | None:
    """A build of what a public list has: under its maker's name, or another's where only one model has it."""
    found = listed_as(base)
    return None if found is None or found.form not in _TRAINED else _of_the_list(found, form)


def _of_the_list(found: Listed, form: str) -> NamedBuild | None:
    names: Mapping[str, str] = packaged_index()["names"]
    return NamedBuild(Target.parse(names[found.card]), form, found) if found.card in names else None


def _target(base: str, maker: str) -> Target | None:
    """The card, or its variant, of exactly this name; ``meta-`` and an organisation before it aside."""
    names: Mapping[str, str] = packaged_index()["names"]
    ways = [f"{maker}/{base}", base, base.removeprefix("meta-"), f"meta-{base}"]
    found = next((way for way in ways if way in names), None)
    if found is None:  # bartowski writes the organisation before the name: meta-llama_Llama-3.3-70B-Instruct
        found = next((known for known in names if "/" in known and known.replace("/", "-") == base), None)
    return None if found is None else Target.parse(names[found])


_ENDS = regex(r"(?:-(?:a\d{1,3}b|instruct|it|chat))+", re.ASCII)


def _of_the_catalogue(base: str, maker: str) -> Target | None:
    """The one model that LM Studio's catalogue calls without its ends: ``qwen/qwen3-coder-30b`` is
    Qwen3-Coder-30B-A3B-Instruct."""
    names: Mapping[str, str] = packaged_index()["names"]
    begins = f"{maker}/{base}-" if maker else f"{base}-"
    found = {
        names[one] for one in names if one.startswith(begins) and _ENDS.fullmatch(one[len(begins) - 1 :])
    }
    return Target.parse(found.pop()) if len(found) == 1 else None


def _instructed(key: str) -> Target | None:
    """The instructed model of the same maker, where only that has a card: it was trained from the base."""
    names: Mapping[str, str] = packaged_index()["names"]
    stem = next((key.removesuffix(end) for end in ("-base", "-pt") if key.endswith(end) and "/" in key), None)
    ends = () if stem is None else ("-instruct", "-it", "-chat")
    return next((Target.parse(names[f"{stem}{end}"]) for end in ends if f"{stem}{end}" in names), None)


def _quantised(key: str) -> Target | None:
    """The quantised build of the model with this very name, where only builds of it have a card."""
    names: Mapping[str, str] = packaged_index()["names"]
    ends = (known for known in names if known.startswith(key) and is_format(known[len(key) :]))
    return next((Target.parse(names[known]) for known in ends), None)


def build_of(name: str, build: NamedBuild, base: Model, like: Model | None = None) -> Model:
    """The model of a build's name. base: the card's; like: the build's whose matrices are held so.

    Raises KvplanError(unknown-model) for a lineage whose builds follow rules of their own.
    """
    if key_of(name) in _OTHER:
        raise KvplanError(
            "unknown-model",
            f"`{name}` is not {base.id} quantised: {_OTHER[key_of(name)]}",
            help="give its own config.json, or hf:org/name",
        )
    if base.model_type in _OWN_RULES:
        raise KvplanError(
            "unknown-model",
            f"`{name}` is no card's name, and builds of {base.id} follow rules of their own",
            help=f"hf:{name} reads its config.json from the Hugging Face hub",
        )
    if build.layout is not None:
        return _laid_out(name, build.layout, base, like)
    if build.form.startswith("gguf:"):
        mixture = build.form.removeprefix("gguf:")
        latents, said = has_latents(name, base.id)
        made, words = as_gguf(base, mixture, name, latents=latents), f"a GGUF file of {mixture}"
        made = replace(made, warnings=(said, *made.warnings)) if said else made
        if base.quantization == "mxfp4" and mixture in ("bf16", "f16"):
            words += " with its experts in MXFP4"
    elif build.form in UNSAID:
        made, words = (
            as_foreign(base, UNSAID[build.form], name),
            "weights in a number of bits that no rule has",
        )
    elif build.form in FOREIGN:
        made = as_foreign(base, build.form, name)
        words = f"weights in {FOREIGN[build.form]}: for another engine name {base.id}, with -q for a format"
    elif build.form == "less":
        made, words = as_trained(base, name), "weights as that has them, of which it has up to 15 % fewer"
        made = _by(FEWER, made)
    elif build.form == "whole":
        made = as_trained(base, name)
        words = f"weights as {base.dtype or 'trained'}" if base.quantization else "the same weights"
    else:
        made, words = _as_its_builder_does(name, build.form, base)
    how = BY_NAME if build.listed is None else f"{BY_NAME} and its sizes in AlexsJones/llmfit's list"
    text = f"{name} {how}: the layers of {base.id}, {words}; its own config was not read"
    unwritten = made.facts.get(BUILDER) not in (WRITTEN, None) and build.form in _FOUR_BITS
    more = attention_saving(made) if unwritten else 0
    if more:
        text += f"; one that keeps attention as it was trained holds {gib(more)} more"
    provenance = replace(made.provenance, how=f"{how}: {base.id}, {base.provenance.how}", revision=None)
    length = None if build.listed is None else build.listed.max_model_len
    made = replace(made, max_model_len=length or made.max_model_len)
    return replace(made, provenance=provenance, warnings=(text, *made.warnings))


def _as_its_builder_does(name: str, form: str, base: Model) -> tuple[Model, str]:
    """The build as whoever made it makes such builds, and that in words."""
    habit = habit_of(name, form, base)
    of = as_text(as_trained(base, base.id)) if habit.text else base
    made = as_build(of, habit.means, name, habit.whole, fp8_cache=habit.cache == FP8_CACHE)
    words = f"weights as builds hold {FORMS[habit.means].words}"
    if habit.text:
        words += ", without the encoder"
    if habit.whole:
        words += ", " + ", ".join(dict.fromkeys(end.partition(".")[0] for end in habit.whole)) + " as trained"
    if habit.cache == FP8_CACHE:
        words += ", with an fp8 cache"
    elif habit.cache is None:
        words += " (some declare an fp8 cache, which holds twice the tokens: --kv-cache-dtype fp8)"
    return _by(builder_of(name, habit, base), made), words


def _by(builder: str, model: Model) -> Model:
    return replace(model, facts={**model.facts, BUILDER: builder})


def _laid_out(name: str, layout: Layout, base: Model, like: Model | None) -> Model:
    """A build of which it is known how it holds its weights, and whether it declares an fp8 cache."""
    if like is not None:
        made = as_another(base, like, name, layout.whole)
    else:
        made = as_build(base, layout.form, name, layout.whole)
    if layout.fp8_cache:
        made = declaring_fp8(made)
    text = (
        f"{name}: the layers of {base.id}, {layout.said}{', fp8 cache' if layout.fp8_cache else ''}, as was"
        " reported of it; its own config was not read"
    )
    how = f"{LAID_OUT}: {base.id}, {base.provenance.how}"
    return replace(
        made,
        provenance=replace(made.provenance, how=how, revision=None),
        warnings=(text, *made.warnings),
    )
