"""The operations of one forward pass of vLLM's own model class on the meta device, and what each keeps.

Custom operations of vLLM run their own code, without metadata of attention, as in a profile run; what they
do inside is not compiled. Routed experts stand for their result: their workspaces are a line of their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VIEWS = frozenset(
    "view reshape slice split split_with_sizes transpose permute expand squeeze unsqueeze select detach t"
    " alias as_strided unbind chunk _unsafe_view unfold narrow _reshape_alias".split()
)
HEAVY = ("mm", "addmm", "bmm", "baddbmm", "linear", "empty", "new_empty", "sort", "topk", "conv", "cumsum")
"""Kernels of their own, and memory that one is given; the rest is fused (gathers and copies too)."""


class Operation(NamedTuple):
    """One operation: its name, the storages that it reads and gives, whether it is compiled with others, and
    whether vLLM splits the graph at it."""

    name: str
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    compiled: bool
    splits: bool

    @property
    def kind(self) -> str:
        """view, point (fused with its neighbours) or heavy (a kernel with a result in memory)."""
        space, _, base = self.name.partition("::")
        if base in VIEWS and set(self.gives) <= set(self.reads):
            return "view"
        heavy = space not in ("aten", "vllm_ir") or not self.compiled or base.startswith(HEAVY)
        return "heavy" if heavy else "point"


class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """operations: in order. sizes: bytes of each storage, by its number."""

    def __init__(self, functions: dict[str, Callable[..., Any]], splits: frozenset[str]) -> None:
        super().__init__()
        self._functions, self._splits = functions, splits
        self.restart()

    def restart(self) -> None:
        """Forget what was run."""
        self.operations: list[Operation] = []
        self.sizes: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that numbers of storages stay unique
        self._opaque = self._quiet = 0

    def number(self, tensor: Any) -> int:
        """The number of a tensor's storage."""
        return int(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named, name = kwargs or {}, func._schema.name
        own = self._functions.get(name)
        if own is None:
            made = func(*args, **named)
        else:
            if name in self._splits and not self._opaque:
                self.see(f"{name}.begin", (args, named), (), splits=True)
            self._opaque += 1
            try:
                with self:
                    made = own(*args, **named)
            finally:
                self._opaque -= 1
        if not self._quiet:
            self.see(name, (args, named), made, splits=name in self._splits)
        return made

    def see(self, name: str, given: Any, made: Any, *, splits: bool = False) -> None:
        """Take down one operation."""
        found: list[int] = []
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                key = self.number(tensor)
                if key not in self.sizes:
                    self.sizes[key] = tensor.untyped_storage().nbytes()
                    self._kept.append(tensor)
                found.append(key)
        reads = tuple(self.number(one) for one in tree_leaves(given) if isinstance(one, torch.Tensor))
        self.operations.append(Operation(name, reads, tuple(found), not self._opaque, splits))

    def one_kernel(self, func: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function as one kernel where nothing is compiled around it."""

        def run(*args: Any, **named: Any) -> Any:
            if not self._opaque:
                return func(*args, **named)
            self._quiet += 1
            try:
                made = func(*args, **named)
            finally:
                self._quiet -= 1
            self.see(f"vllm::{name}", (args, named), made)
            return made

        return run


def functions_of_vllm() -> dict[str, Callable[..., Any]]:
    """Name → code of every custom operation that is registered from now on."""
    module: Any = importlib.import_module("vllm.utils.torch_utils")
    real, found = module.direct_register_custom_op, {}

    def register(op_name: str, op_func: Callable[..., Any], *args: Any, **named: Any) -> Any:
        found[f"vllm::{op_name}"] = op_func
        return real(op_name, op_func, *args, **named)

    module.direct_register_custom_op = register
    return found


def experts_stand_in() -> None:
    """Routed experts give a result as large as what they take; shared experts run."""
    runner = importlib.import_module("vllm.model_executor.layers.fused_moe.runner.moe_runner").MoERunner

    def apply(
        self: Any, hidden_states: Any, router_logits: Any, shared_experts_input: Any, *rest: Any, **named: Any
    ) -> Any:
        shared = None
        if self._shared_experts is not None:
            shared = self._shared_experts._layer(shared_experts_input)
        return shared, torch.empty_like(hidden_states)

    runner._apply_quant_method = apply
    layer = importlib.import_module("vllm.model_executor.layers.fused_moe.routed_experts")
    with suppress(AttributeError):
        layer.RoutedExperts._ensure_moe_quant_config_init = lambda self: None
