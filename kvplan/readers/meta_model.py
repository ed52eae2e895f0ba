"""The tensors of a model that transformers builds without memory, on torch's meta device.

For model types that have no inventory rule: names and shapes are then those of a checkpoint in the served
dtype. Needs the extras ``hf`` and ``gpu``; no weights are read and no code of a repository is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.weights.facts import COUNT
from kvplan.weights.stored import Checkpoint, Stored

_NAMES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16", "torch.float64": "F64"}


def tensors_on_meta(raw: Mapping[str, Any]) -> Checkpoint:
    """Every parameter of the class that the config's architecture (or model type) names.

    Raises CannotRunHere(missing-extra), KvplanError(no-weights).
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "counting parameters by building the model needs transformers and torch",
            help="pip install 'kvplan[hf,gpu]'",
        ) from error
    model_type = str(raw.get("model_type"))
    values = {key: value for key, value in raw.items() if key not in ("model_type", "auto_map")}
    values.pop("quantization_config", None)
    try:
        config = transformers.AutoConfig.for_model(model_type, **values)
        build = _class(transformers, raw)
        with torch.device("meta"):
            model = build._from_config(config) if build else _auto(transformers, config)
    except Exception as error:  # the library's classes raise whatever they like
        text = " ".join(str(error).split())[:160]
        raise KvplanError(
            "no-weights",
            f"transformers {transformers.__version__} cannot build {model_type[:80]!r}",
            detail=f"{type(error).__name__}: {text}",
            help="give the weights of one GPU yourself: --weights 15GiB",
        ) from error
    tensors = tuple(
        Stored(name, _NAMES.get(str(entry.dtype), "F32"), tuple(entry.shape))
        for name, entry in model.named_parameters()
    )
    return Checkpoint(tensors, f"built by transformers {transformers.__version__}", COUNT)


def _class(transformers: Any, raw: Mapping[str, Any]) -> Any:
    """The class that ``architectures`` names, where the library has it."""
    names = raw.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    found = getattr(transformers, first, None) if isinstance(first, str) and first.isidentifier() else None
    return found if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel) else None


def _auto(transformers: Any, config: Any) -> Any:
    """The first automatic class that knows the config."""
    for name in ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForSeq2SeqLM", "AutoModel"):
        auto = getattr(transformers, name, None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto.from_config(config)
    raise ValueError(f"no automatic class for {type(config).__name__}")
