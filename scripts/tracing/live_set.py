"""The storages that are alive while vLLM's own code runs eagerly, and the most of them at once.

Every tensor that an operation makes is counted from then until nothing refers to its storage: what PyTorch's
allocator on a GPU would have given out, without its rounding and its cache. Operations that a GPU runs as one
kernel (`fused`) count for their results alone.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_HEAVY = frozenset(
    f"aten.{name}"
    for name in (
        "linear.default addmm.default matmul.default mm.default bmm.default convolution.default"
        " layer_norm.default gelu.default sigmoid.default silu.default add.Tensor mul.Tensor"
        " pow.Tensor_Scalar"
    ).split()
)
_SMALL = 1 << 16
"""Of products and large elementwise operations the shape alone is wanted."""


def _shape_alone(func: Any, args: Any, kwargs: Any) -> Any:
    def abstract(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    made = func(*(abstract(value) for value in args), **(kwargs or {}))
    return torch.empty(made.shape, dtype=made.dtype)


class LiveSet(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """now, peak: bytes alive and the most so far. largest: (bytes, shape, operation) at the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.largest: list[tuple[int, tuple[int, ...], str]] = []
        self._alive: dict[int, tuple[int, tuple[int, ...], str]] = {}
        self._known: Any = weakref.WeakKeyDictionary()
        self._inside = self._round = 0

    def restart(self, model: Any) -> None:
        """Count from nothing: what is alive now no longer counts, nor do the model's own weights."""
        for tensor in (*model.parameters(), *model.buffers()):
            self._known[tensor.untyped_storage()] = 0
        self.now = self.peak = 0
        self._round += 1
        self._alive.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        heavy = str(func) in _HEAVY and isinstance(args[0], torch.Tensor) and args[0].numel() > _SMALL
        made = _shape_alone(func, args, kwargs) if heavy else func(*args, **(kwargs or {}))
        if not self._inside:
            self.see(made, str(func))
        return made

    def see(self, made: Any, name: str) -> None:
        """Count the tensors of a result."""
        for tensor in tree_leaves(made):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            if storage in self._known:
                continue
            size = storage.nbytes()
            self._known[storage] = size
            self.now += size
            self._alive[id(storage)] = (size, tuple(tensor.shape), name)
            weakref.finalize(storage, self._gone, size, id(storage), self._round)
            if self.now > self.peak:
                self.peak = self.now
                self.largest = sorted(self._alive.values(), reverse=True)[:24]

    def _gone(self, size: int, key: int, of_round: int) -> None:
        if of_round == self._round:
            self.now -= size
            self._alive.pop(key, None)

    def fused(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function as one kernel: what it makes inside is not counted."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._inside += 1
            try:
                made = func(*args, **kwargs)
            finally:
                self._inside -= 1
            if not self._inside:
                self.see(made, getattr(func, "__qualname__", "fused"))
            return made

        return run


def print_peaks(
    live: LiveSet, model: Any, inputs: Callable[[int], Any], run: Callable[[Any], Any], *around: Any
) -> None:
    """For one, two and four images: the most bytes alive beside the inputs, and those that stay.

    inputs: of so many images. run: the model's own answer to them. around: contexts, made anew for each run.
    """
    for images in (1, 1, 2, 4):  # the first run fills caches
        given = inputs(images)
        gc.collect()
        live.restart(model)
        with ExitStack() as stack:
            for make in (torch.inference_mode, *around):
                stack.enter_context(make())
            stack.enter_context(live)
            made = run(given)
            gc.collect()
        print(images, "images:", f"{live.peak:,} bytes at most, {live.now:,} stay", flush=True)
        del made, given
