"""The flags of mlx_lm.server, with underscores: ml-explore/mlx-lm 0.32.2 mlx_lm/server.py."""

from __future__ import annotations

NAMES: dict[str, str] = {
    "decode_concurrency": "max_num_seqs",
    "prefill_step_size": "max_num_batched_tokens",
    "dtype": "dtype",
    "quantization": "quantization",
}
"""Flag → setting. The two last are no flags of the server, but which build it loads."""
SHORT: dict[str, str] = {
    "max_num_seqs": "decode_concurrency",
    "max_num_batched_tokens": "prefill_step_size",
}
"""Other spellings → flag."""
