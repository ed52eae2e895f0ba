"""The library's PagedAttentionCache, its allocators and its scheduler, as tests ask them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from kvplan.architectures.config.view import split_quant
from kvplan.engines.transformers.paged import Paged
from kvplan.engines.transformers.sectors import Batch, Geometry
from kvplan.model import Model

HAVE = (
    all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    and version("transformers").startswith("5.24.")
)  # fmt: skip
SHARE = 0.8


class _OneRank:
    tp_size = 1

    def are_kv_heads_tp_ed(self) -> bool:
        return False


@dataclass
class Library:
    """A text config of the library's. page_bytes: K and V of a page of one layer."""

    config: Any
    page_bytes: int = 0
    page: int = 256
    dtype: str = "bfloat16"

    @classmethod
    def of(cls, model: Model, paged: Paged | None) -> Library | None:
        """The model's config as the library's class; None where the library has no such class. What a card
        leaves out of its layers is filled in."""
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        if paged is None or not model.config:
            return None
        raw = dict(split_quant(model.config)[0])
        if raw.get("model_type") not in CONFIG_MAPPING:
            return None
        try:
            config = CONFIG_MAPPING[raw["model_type"]].from_dict(raw).get_text_config()
        except Exception:
            return None  # classes check what a part of a config cannot fulfil
        if config.num_hidden_layers != model.num_layers:
            return None  # of several text parts kvplan took another
        windows = [kind.window for kind in paged.geometry.kinds]
        names = ["full_attention" if window is None else "sliding_attention" for window in windows]
        config.layer_types = [names[place] for place in paged.order]
        config.sliding_window = next((window for window in windows if window), None)
        return cls(config, dtype=paged.element.name)

    @classmethod
    def made(cls, kinds: list[tuple[int, int | None]], page: int) -> Library:
        """A small llama-like config with so many layers of each kind."""
        names = [
            "full_attention" if window is None else "sliding_attention"
            for layers, window in kinds
            for _ in range(layers)
        ]
        config = SimpleNamespace(
            num_hidden_layers=len(names), layer_types=names, num_key_value_heads=2, head_dim=16,
            num_attention_heads=4, hidden_size=64, vocab_size=100, _attn_implementation="sdpa",
            sliding_window=next((window for _, window in kinds if window), None),
        )  # fmt: skip
        return cls(config, 2 * 2 * 16 * 2 * page, page)

    def batch(self, *, tokens: int, requests: int) -> Batch:
        config = self.config
        return Batch(
            tokens=tokens, requests=requests, hidden_size=config.hidden_size, vocab_size=config.vocab_size,
            num_heads=config.num_attention_heads, num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim, element_bytes=2, flash=False, doubled=False, table_blocks=0,
            sliced=True,
        )  # fmt: skip

    def cache(self, memory: int, paged: Paged) -> Any:
        """The cache that so many free bytes make, without memory."""
        return self._cache(memory, paged.batch, paged.geometry.page, "meta")

    def with_sectors(self, sectors: int, geometry: Geometry, batch: Batch | None = None) -> Any:
        blocks = geometry.num_blocks_of(sectors)
        blocks += geometry.sectors_of(blocks) < sectors
        return self._cache(
            1 << 40, batch or self.batch(tokens=512, requests=1024), self.page, "cpu", num_blocks=blocks
        )

    def _cache(self, memory: int, batch: Batch, page: int, device: str, **more: Any) -> Any:
        import torch
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
        from transformers.generation.continuous_batching import cache

        self.config._attn_implementation = "flash_attention_2" if batch.flash else "sdpa"
        asked = ContinuousBatchingConfig(
            page_size=page,
            max_batch_tokens=batch.tokens,
            max_memory_percent=SHARE,
            max_requests_per_batch=batch.requests,
            max_blocks_per_request=batch.table_blocks,
            use_async_batching=batch.doubled,
            return_logprobs=batch.output_rows == 2,
            **more,
        )
        seen, cache.get_device_and_memory_breakdown = (
            cache.get_device_and_memory_breakdown,
            lambda: (None, memory, 0, 0),
        )
        try:
            return cache.PagedAttentionCache(
                self.config, asked, device, _OneRank(), getattr(torch, self.dtype), batch.sliced
            )
        finally:
            cache.get_device_and_memory_breakdown = seen

    @staticmethod
    def admitted(cache: Any, tokens: int) -> int:
        """Requests at their full length until one gets no sector."""
        for count in range(100_000):
            state = SimpleNamespace(request_id=str(count), current_len=lambda: 0)
            if not cache.can_store_request_tokens(state, tokens):
                return count
        raise AssertionError(tokens)

    def at_once(self, cache: Any, batch: Batch, prompt: int, answer: int, arriving: int) -> int:
        """Requests whose prompts are computed when the first one ends."""
        from transformers.generation.continuous_batching.requests import RequestState
        from transformers.generation.continuous_batching.scheduler import FIFOScheduler

        scheduler = FIFOScheduler(cache, None, min(batch.requests, batch.tokens))
        states = [
            RequestState(str(number), [number + 1] + [0] * (prompt - 1), max_new_tokens=answer)
            for number in range(arriving)
        ]
        cache.use_prefix_sharing = False
        for state in states:
            scheduler.add_waiting_request(state)
        done: dict[str, int] = {}
        while len(done) < arriving and max(done.values(), default=0) < answer:
            plan, *_ = scheduler.schedule_batch(batch.tokens, cache.max_tokens_read)
            assert plan
            for one in plan:
                one.state.position_offset += one.query_length
                if one.has_new_token:
                    done[one.state.request_id] = done.get(one.state.request_id, 0) + 1
                    one.state.tokens_to_process = [0]
        return len(done)
