"""The keys of the GGUF file that llama.cpp's own converter makes of a config: run as a program.

    python llamacpp_keys.py FOLDER_OF_LLAMA_CPP < CONFIGS > KEYS

A line in: ``{"name": …, "config": {…}}``; a line out: ``{"keys": {…}}`` or ``{"refused": …}``. The classes
are those of conversion/*.py in the folder; no weights and no tokenizer are there, so what they would say is
left out. Wants torch and transformers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

_UNSAID = {
    "logit_scale": 1.0, "rms_norm_eps": 1e-6, "layer_norm_eps": 1e-5, "layer_norm_epsilon": 1e-5,
    "rotary_pct": 1.0, "scale_emb": 1.0, "scale_depth": 1.0, "dim_model_base": 256,
    "routed_scaling_factor": 1.0, "norm_topk_prob": True, "mscale_all_dim": 1.0, "partial_rotary_factor": 1.0,
    "topk_method": "noaux_tc", "moe_router_activation_func": "sigmoid", "expert_weights_scale": 1.0,
    "swiglu_limit": 10.0, "decoder_start_token_id": 0, "mla_use_nope": True,
    "relative_attention_num_buckets": 32, "sparse_topk_blocks": 16,
}  # fmt: skip
"""Numbers that a shortened config may leave out, and that bear on no size."""


def keys_of(config: dict[str, Any], *, plainly: bool, with_mtp: bool) -> dict[str, Any]:
    """What ``set_gguf_parameters`` writes. plainly: of config.json as it is, else as transformers reads it;
    with_mtp: not with ``--no-mtp``."""
    import conversion  # type: ignore[import-not-found, unused-ignore]
    import gguf  # type: ignore[import-not-found, unused-ignore]

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        base = conversion.ModelBase
        hparams = _renamed(config) if plainly else base.load_hparams(Path(folder), False)
        name = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
        kind = conversion.get_model_class(name)
        hparams = {**_UNSAID, "n_ctx": hparams.get("n_positions"), **hparams}
        base.no_mtp = not with_mtp
        made = kind(Path(folder), gguf.LlamaFileType.MOSTLY_F16, Path(folder, "out"), hparams=hparams)
        made = getattr(made, "impl", made)
        made.set_gguf_parameters()
        found = {
            key: float(value.value) if value.type is gguf.GGUFValueType.FLOAT32 else value.value
            for part in made.gguf_writer.kv_data
            for key, value in part.items()
            if not key.startswith("tokenizer.")
        }
    if not any(key.endswith(".vocab_size") for key in found):
        found[f"{found['general.architecture']}.vocab_size"] = (
            made.hparams.get("vocab_size") or made.hparams.get("padded_vocab_size") or 32_000
        )
    return found


def _renamed(config: dict[str, Any]) -> dict[str, Any]:
    """As ``load_hparams`` calls the text part."""
    found = dict(config)
    for word in ("llm_config", "lm_config", "language_config", "lfm"):
        if word in found:
            found["text_config"] = found[word]
    if "thinker_config" in found:
        found["text_config"] = found["thinker_config"]["text_config"]
    return found


def answer(config: dict[str, Any]) -> dict[str, Any]:
    """The keys, or why there are none as transformers reads the config."""
    said = [
        _tried(config, with_mtp, plainly)
        for with_mtp, plainly in ((True, False), (True, True), (False, False))
    ]
    return next((one for one in said if "keys" in one), said[0])


def _tried(config: dict[str, Any], with_mtp: bool, plainly: bool) -> dict[str, Any]:
    try:
        return {"keys": keys_of(json.loads(json.dumps(config)), plainly=plainly, with_mtp=with_mtp)}
    except Exception as error:  # whatever a class of the converter raises is its answer
        return {"refused": f"{type(error).__name__}: {error}"[:120]}


def main() -> None:
    """Answers every line of stdin."""
    folder = Path(sys.argv[1])
    sys.path[:0] = [str(folder), str(folder / "gguf-py")]
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps({"name": case["name"], **answer(case["config"])}, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    """Numbers of numpy, and values of the converter's own types."""
    return value.item() if hasattr(value, "item") else getattr(value, "value", str(value))


if __name__ == "__main__":
    main()
