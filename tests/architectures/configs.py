"""Configs that the tests read, and how."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.architectures.config.read import read_config
from kvplan.errors import KvplanError
from kvplan.model import Model

PLAIN = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}


def read(config: dict[str, Any]) -> Model:
    return read_config(config, id="m", source="test")


def families(config: dict[str, Any]) -> list[str]:
    return [layer.family for layer in read(config).layers()]


def refused(config: dict[str, Any]) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        read(config)
    return caught.value
