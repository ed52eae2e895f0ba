"""Torch's types by the names that annotations have for them: torch itself is loaded by what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"
Dtype: TypeAlias = "torch.dtype"
