"""Mixtures of experts: how many, how wide, what is shared, which layers have them."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.architectures.blocks.frame import Flag, holds
from kvplan.architectures.blocks.parts import Tensors, experts, linear, mlp, router, whole
from kvplan.architectures.config.view import ConfigView
from kvplan.record import record
from kvplan.weights.inventory import Split


def shared_by_width(key: str) -> Callable[[ConfigView], int]:
    """The shared expert's width has a key of its own; 0 or missing for none."""
    return lambda view: int(view.optional_integer(key, default=0, lowest=0) or 0)


def by_step(view: ConfigView, index: int) -> bool:
    """Every decoder_sparse_step-th layer that mlp_only_layers does not name (qwen2_moe.py)."""
    step = view.optional_integer("decoder_sparse_step", default=1) or 1
    return (
        bool(view.get("num_experts"))
        and (index + 1) % step == 0
        and index not in (view.sequence("mlp_only_layers") or ())
    )


def always(view: ConfigView, index: int) -> bool:
    """Every layer has experts."""
    return True


Sparse = Callable[[ConfigView, int], bool]


@record()
class Moe:
    """The experts of one architecture.

    shared: width of the shared expert, 0 for none. gate_dtype: the router's element type where the
    engine fixes it. correction: the path of the router's correction bias, kept where correction_if.
    """

    experts: str = "mlp.experts"
    gate: str = "mlp.gate"
    count: tuple[str, ...] = ("num_experts",)
    width: tuple[str, ...] = ("moe_intermediate_size",)
    layer_is_sparse: Sparse = always
    gated: bool = True
    bias: bool = False
    gate_bias: bool = False
    gate_dtype: str | None = None
    correction: str = ""
    correction_if: Flag = True
    correction_dtype: str = "float32"
    shared: Callable[[ConfigView], int] | None = None
    shared_path: str = "mlp.shared_experts"
    shared_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    shared_gate: str = ""
    shared_bias: Flag = False
    shared_split: Split = Split.EVEN
    hidden: tuple[str, ...] = ("hidden_size", "d_model")

    def tensors(self, view: ConfigView) -> Tensors:
        """Router, experts and shared expert of one layer."""
        hidden = int(view.integer(*self.hidden))
        count, width = int(view.integer(*self.count)), int(view.integer(*self.width))
        made = router(
            self.gate,
            count,
            hidden,
            bias=self.gate_bias,
            dtype=self.gate_dtype,
            correction=self.correction if self.correction and holds(view, self.correction_if) else None,
            correction_dtype=self.correction_dtype,
        )
        made += experts(self.experts, count, hidden, width, gated=self.gated, bias=self.bias)
        beside = self.shared(view) if self.shared else 0
        if beside:
            made += mlp(
                self.shared_path,
                hidden,
                beside,
                gated=self.gated,
                bias=holds(view, self.shared_bias),
                names=self.shared_names,
                width_name="shared expert width",
                split=self.shared_split,
            )
            if self.shared_gate:
                made += linear(self.shared_gate, whole("shared gate", 1), whole("hidden_size", hidden))
        return made


STEP_MOE = Moe(
    layer_is_sparse=by_step,
    shared=shared_by_width("shared_expert_intermediate_size"),
    shared_path="mlp.shared_expert",
    shared_gate="mlp.shared_expert_gate",
)


def shared_by_count(*counts: str, width: str = "moe_intermediate_size") -> Callable[[ConfigView], int]:
    """The shared expert is as wide as its number of experts together."""

    def total(view: ConfigView) -> int:
        number = view.optional_integer(*counts, default=0, lowest=0) or 0
        return int(number) * int(view.integer(width)) if number else 0

    return total


def after_first(view: ConfigView, index: int) -> bool:
    """Layers from first_k_dense_replace on, every moe_layer_freq-th of them (deepseek_v2.py)."""
    if not view.get("n_routed_experts", "num_experts"):
        return False
    first = view.optional_integer("first_k_dense_replace", default=0, lowest=0) or 0
    every = view.optional_integer("moe_layer_freq", default=1) or 1
    return index >= first and index % every == 0


GLM_MOE = Moe(
    count=("n_routed_experts",),
    layer_is_sparse=after_first,
    gate_dtype="float32",
    correction="mlp.gate.e_score_correction_bias",
    shared=shared_by_count("n_shared_experts"),
)


def by_types(view: ConfigView, index: int) -> bool:
    """Layers that mlp_layer_types calls sparse."""
    kinds = view.sequence("mlp_layer_types")
    if kinds is None:
        raise view.missing("mlp_layer_types")
    if index >= len(kinds):
        raise view.refuse("mlp_layer_types", f"{len(kinds)} entries, fewer than layers")
    return bool(kinds[index] == "sparse")


def by_types_or(first: int) -> Sparse:
    """mlp_layer_types where the config has it, else from first_k_dense_replace (or this default) on."""

    def is_sparse(view: ConfigView, index: int) -> bool:
        if view.sequence("mlp_layer_types") is not None:
            return by_types(view, index)
        start = view.optional_integer("first_k_dense_replace", default=first, lowest=0)
        every = view.optional_integer("moe_layer_freq", default=1) or 1
        return index >= (first if start is None else start) and index % every == 0

    return is_sparse


def after_dense(view: ConfigView, index: int) -> bool:
    """The first num_dense_layers layers have no experts."""
    return index >= (view.optional_integer("num_dense_layers", default=0, lowest=0) or 0)


FLOAT32 = "float32"

CORRECTION = "mlp.gate.e_score_correction_bias"

MIXTRAL_KEYS = Moe(count=("num_local_experts",), width=("intermediate_size",))
"""Experts in Mixtral's keys."""


def with_shared(sparse: Sparse, *, correction: str = CORRECTION) -> Moe:
    """Routed experts with a correction bias, shared ones as wide as their number."""
    return Moe(
        layer_is_sparse=sparse,
        correction=correction,
        shared=shared_by_count("num_shared_experts", "n_shared_experts"),
        shared_bias="mlp_bias",
    )
