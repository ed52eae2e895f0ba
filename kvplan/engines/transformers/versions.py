"""Changes between releases of transformers: a row a rule (`kvplan.engines.release_rules`)."""

from __future__ import annotations

from kvplan.engines.release_rules import ReleaseRules, flag


class Rules(ReleaseRules):
    """The rules of one release. Files are below ``transformers/``."""

    latent_kept = flag(
        "MLA keeps its latents, before the expanded keys and values", "models/deepseek_v3/", since="5.15"
    )
    sectors = flag(
        "continuous batching has a pool of sectors; before, one of another form that is not known here",
        "generation/continuous_batching/cache_allocators/",
        since="5.20",
    )
    overlap_gate_float32 = flag(
        "DeepSeek-V4's compressors keep the gate of the last finished group in float32, the type of the"
        " position bias that was added to it",
        "models/deepseek_v4/modeling_deepseek_v4.py",
        since="5.24",
    )


rules_of = Rules.of
