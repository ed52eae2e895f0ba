"""How TensorRT-LLM's server is called: NVIDIA/TensorRT-LLM 1.2 tensorrt_llm/commands/serve.py.

Dynamo's wrapper has two options under other names: ai-dynamo/dynamo recipes/deepseek-r1/trtllm/agg/b200.
"""

from __future__ import annotations

from kvplan.engines.launch import Serve, Server, as_object
from kvplan.record import Json

_SPECULATION = "--speculative-config"
"""Of the options file alone; what `.command` writes for prediction layers."""
_LENGTHS = ("num_nextn_predict_layers", "max_draft_len")


def translate(serve: Serve, options: Json) -> tuple[str, ...]:
    """The model's own prediction layers (MTPDecodingConfig, llmapi/llm_args.py: one where no number is
    given); of other decoding types the draft is in no figure."""
    given = as_object(options.get(_SPECULATION))
    if given is None:
        return ()
    kind = str(given.get("decoding_type"))
    drafted = next((given[key] for key in _LENGTHS if given.get(key) is not None), 1)
    if kind != "MTP" or not str(drafted).isdecimal() or not int(drafted):
        return (f"the draft of speculative_config, decoding_type {kind}",)
    serve["speculative_config"] = {"method": "mtp", "num_speculative_tokens": int(drafted)}
    left = {key: value for key, value in given.items() if key not in ("decoding_type", *_LENGTHS)}
    return tuple(f"speculative_config.{key}: {value}" for key, value in left.items())


SERVER = Server(
    "trtllm",
    starts=(("trtllm-serve", "serve"), ("trtllm-serve",), ("-m", "dynamo.trtllm")),
    model=("--model",),
    images=("tensorrt-llm", "tensorrtllm"),
    renamed=(("--model-path", "--model"), ("--extra-engine-args", "--config")),
    tagged=("tensorrt-llm/release",),
    positional=True,
    translate=translate,
    translated=(_SPECULATION,),
    options_file="--config",
    variables=("TRTLLM_", "TLLM_"),
    quiet=("LOG_*", "LLM_PORT", "WORKER_USE_SINGLE_PROCESS"),
    package="tensorrt_llm",
    calls=("LLM",),
)
