"""The keys of one architecture in a GGUF header, seen like a config."""

from __future__ import annotations

from typing import Any

from kvplan.architectures.config.view import MAX_LAYERS, ConfigView, Sourced, check_integer
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.record import Json

HEADS, KV_HEADS = "attention.head_count", "attention.head_count_kv"
WINDOW = "attention.sliding_window"

# Keys that go with windows, states, latents, sharing, compression or patterns of layers.
_TELLTALE = regex(
    r"^(ssm|wkv|shortconv|kda|hyper_connection|ple|altup)\.|sliding_window|_swa$|_mla$|kv_lora_rank|\.indexer\."
    r"|compress|recurrent_layers|full_attention_interval|shared_kv|decoder_block_count|num_loops|attn_type"
    r"|layer_types|linear|recurrent"
)


class GgufView(ConfigView):
    """Typed access to ``<architecture>.…``; keys are written without the architecture.

    block_count: all layers of the file; trunk: without the nextn_predict_layers at its end.
    """

    def __init__(self, values: Json, architecture: str) -> None:
        prefix = f"{architecture}."
        own = {key[len(prefix) :]: value for key, value in values.items() if key.startswith(prefix)}
        super().__init__(own, model_type=architecture, defaults={}, path=prefix)
        self.block_count = int(self.integer("block_count", highest=MAX_LAYERS))
        drafts = self.optional_integer("nextn_predict_layers", lowest=0, highest=self.block_count) or 0
        self.trunk = self.block_count - drafts

    def per_layer(self, key: str, *, lowest: int = 1) -> list[int] | None:
        """One whole number a layer: a list of block_count numbers, or one for all. None where absent."""
        value, origin = self.find(key)
        if value is None:
            return None
        if not isinstance(value, list):
            return [Sourced(check_integer(value, origin, lowest), origin)] * self.block_count
        self._check_length(key, value, self.block_count)
        return [Sourced(check_integer(entry, origin, lowest), origin) for entry in value]

    def per_layer_flags(self, key: str) -> list[bool] | None:
        """As `per_layer`, but true (or not 0) and false (or 0)."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            return [bool(value)] * self.block_count
        self._check_length(key, value, self.block_count)
        return [bool(entry) for entry in value]

    def layer_flags(self, key: str, least: int) -> list[bool] | None:
        """A list of at least so many flags, or None where the key is absent or no list."""
        value = self.get(key)
        if not isinstance(value, list):
            return None
        self._check_length(key, value, least, exactly=False)
        return [bool(entry) for entry in value]

    def telltale(self) -> str | None:
        """The first key that speaks against "full attention in every layer"; a key that is 0 says nothing."""
        for key, value in self.raw.items():
            if value and _TELLTALE.search(key):
                return key
        return None

    def missing(self, *keys: str) -> KvplanError:
        return KvplanError(
            "missing-key",
            f"the GGUF header has no {' or '.join(self.path + key for key in keys)}",
            help="convert the model again with a newer llama.cpp; a value is never guessed",
        )

    def _check_length(self, key: str, value: list[Any], count: int, *, exactly: bool = True) -> None:
        if len(value) < count or (exactly and len(value) != count):
            raise KvplanError("bad-config", f"{self.path}{key} has {len(value)} entries for {count} layers")
