"""Nemotron-H: Mamba-2, attention, experts and perceptrons, a block each.

Sources: huggingface/transformers 5.23.0 models/nemotron_h; vllm-project/vllm 0.32
vllm/model_executor/models/nemotron_h.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import (
    AttentionNames,
    Tensors,
    attention,
    experts,
    linear,
    mlp,
    norm,
    router,
    whole,
)
from kvplan.architectures.blocks.plain import heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Parts, known_word, layers_of
from kvplan.architectures.blocks.state_space import Mamba2Sizes, mamba2
from kvplan.architectures.blocks.words import by_word
from kvplan.architectures.config.custom_types import VLLM_MODELS, wrapper_of
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.prediction import FINAL_NORMS, MTP_PATH, Joins, Prediction, Project
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import Mamba2
from kvplan.model import Layer
from kvplan.weights.inventory import ROUTER_FLOAT32, Split

_NEMOTRON_LETTERS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def _nemotron_kinds(view: ConfigView) -> list[str]:
    """layers_block_type, else hybrid_override_pattern, else one of each; num_hidden_layers is not read."""
    given = view.sequence("layers_block_type") if view.given("layers_block_type") else None
    if given is not None:
        return [known_word(view, "layers_block_type", word) for word in given]
    pattern = view.word("hybrid_override_pattern")
    if pattern is None:
        return list(_NEMOTRON_LETTERS.values())
    unknown = set(pattern) - set(_NEMOTRON_LETTERS)
    if unknown:
        raise view.refuse("hybrid_override_pattern", f"unknown letter {min(unknown)!r}")
    if len(pattern) > 4096:
        raise view.refuse("hybrid_override_pattern", f"{len(pattern):,} layers")
    return [_NEMOTRON_LETTERS[letter] for letter in pattern]


def _nemotron_mamba(view: ConfigView) -> Parts:
    # Older files use Bamba's names; where both stand, the older name wins (configuration_nemotron_h.py).
    groups = view.integer("mamba_n_groups" if view.given("mamba_n_groups") else "n_groups")
    kernel = view.integer("mamba_d_conv" if view.given("mamba_d_conv") else "conv_kernel")
    return (
        Mamba2(
            num_heads=view.integer("mamba_num_heads"),
            head_dim=view.integer("mamba_head_dim"),
            state_size=view.integer("ssm_state_size"),
            n_groups=groups,
            conv_kernel=kernel,
            ssm_dtype=view.word("mamba_ssm_cache_dtype"),
        ),
    )


def nemotron_h_layers(view: ConfigView) -> list[Layer]:
    """Raises KvplanError(unknown-layer-type) for Puzzle's layers with sizes of their own, which the
    checkpoint's class gives out (get_nemotron_h_config_for_layer)."""
    if view.raw.get("block_configs"):
        raise view.refuse("block_configs", "what layers with sizes of their own hold is not described")
    return layers_of(view, _nemotron_kinds(view), {**ATTENTION, LINEAR: _nemotron_mamba})


MIXER_NAMES = AttentionNames("mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj")

NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}

# The library's words of today for the same layers.
NEMOTRON_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}


def nemotron_h_tensors(view: ConfigView) -> Decoder:
    """One mixer a layer: Mamba-2, attention, a plain perceptron or experts (behind a latent projection)."""
    pattern = view.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        words = [NEMOTRON_LETTERS.get(letter, letter) for letter in pattern]
    else:
        given = [str(word) for word in view.sequence("layers_block_type", "layer_types") or ()]
        words = [NEMOTRON_WORDS.get(word, word) for word in given]
    if not words:
        raise view.missing("hybrid_override_pattern")
    hidden = hidden_size(view)
    around = norm("norm", whole("hidden_size", hidden))
    bias = view.flag("mlp_bias")

    def make(word: str) -> Tensors:
        if word == "attention":
            return attention(heads_of(view), hidden, names=MIXER_NAMES) + around
        if word == "mlp":
            wide = view.get("intermediate_size")
            if isinstance(wide, list):
                if len(set(wide)) != 1:
                    raise view.refuse("intermediate_size", "a list of different widths")
                wide = wide[0]
            width = check_integer(wide, "intermediate_size")
            return mlp("mixer", hidden, width, gated=False, bias=bias) + around
        if word == "moe":
            return _nemotron_moe(view, hidden, bias=bias) + around
        if word != "mamba":
            raise view.refuse("hybrid_override_pattern", f"unknown layer {word!r}")
        heads = int(view.integer("mamba_num_heads"))
        sizes = Mamba2Sizes(
            hidden=hidden,
            inner=heads * int(view.integer("mamba_head_dim")),
            heads=heads,
            groups=int(view.integer("n_groups")),
            state=int(view.integer("ssm_state_size")),
            kernel=int(view.integer("conv_kernel")),
            bias=view.flag("use_bias"),
            conv_bias=view.flag("use_conv_bias", default=True),
        )
        return mamba2("mixer", sizes) + around

    frame = Frame(
        layers="backbone.layers", embed="backbone.embeddings", final_norm="backbone.norm_f", everywhere=True
    )
    return Decoder(frame, by_word(words, make))


def _nemotron_moe(view: ConfigView, hidden: int, *, bias: bool) -> Tensors:
    count, width = int(view.integer("n_routed_experts")), int(view.integer("moe_intermediate_size"))
    made = router(
        "mixer.gate", count, hidden, dtype=ROUTER_FLOAT32, correction="mixer.gate.e_score_correction_bias"
    )
    inner = int(view.optional_integer("moe_latent_size") or hidden)
    if inner != hidden:
        model, latent = whole("hidden_size", hidden), whole("moe_latent_size", inner)
        made += linear("mixer.fc1_latent_proj", latent, model, bias=bias)
        made += linear("mixer.fc2_latent_proj", model, latent, bias=bias)
    made += experts("mixer.experts", count, inner, width, gated=False)
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)
    if shared:
        wide = shared * int(view.integer("moe_shared_expert_intermediate_size"))
        made += mlp("mixer.shared_experts", hidden, wide, gated=False, split=Split.SHARED_EXPERT)
    return made


lineage(
    "nemotron_h",
    layers=nemotron_h_layers,
    tensors=nemotron_h_tensors,
    prediction=Prediction(
        pattern="mtp_hybrid_override_pattern",
        joins=Joins(FINAL_NORMS, project=Project.DIVIDED),
        path=MTP_PATH,
    ),
)
lineage(
    "NemotronH_Nano_VL_V2", reads=wrapper_of(VLLM_MODELS + "nano_nemotron_vl.py", "llm_config", "nemotron_h")
)
