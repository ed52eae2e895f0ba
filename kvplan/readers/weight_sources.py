"""Everything that is known about a model's weights, gathered from where the model came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.readers.json_input import parse_json, read_limited
from kvplan.readers.safetensors_header import read_checkpoint
from kvplan.weights.by_name import Shape
from kvplan.weights.facts import CARD, Index, WeightSources, no_source
from kvplan.weights.inventory import Inventory
from kvplan.weights.stored import Checkpoint

NO_INVENTORY = frozenset(
    "no-weights unknown-model-type missing-key bad-config unknown-quantization unknown-layer-type".split()
)


def sources_of_config(
    raw: Mapping[str, Any],
    *,
    hf_quant_config: Mapping[str, Any] | None = None,
    found: Checkpoint | Index | None = None,
    model: Model | None = None,
) -> WeightSources:
    """The inventory of a config, what was found beside it, or why there is no inventory."""
    inventory: Inventory | None = None
    problem: KvplanError | None = None
    try:
        inventory = inventory_of(raw, hf_quant_config=hf_quant_config)
    except KvplanError as error:
        if error.code not in NO_INVENTORY:
            raise
        problem = error
        if isinstance(found, Checkpoint) and error.code == "unknown-quantization":
            # The headers have the bytes; only the division among GPUs comes from the inventory.
            inventory = inventory_of(unquantised(raw))
    return WeightSources(
        checkpoint=found if isinstance(found, Checkpoint) else None,
        index=found if isinstance(found, Index) else None,
        inventory=inventory,
        shape=_shape(raw, model) if inventory is None and model is not None else None,
        problem=problem,
    )


def sources_of_directory(path: Path, model: Model | None = None) -> WeightSources:
    """A checkpoint's directory (or its config.json): headers, index, config and hf_quant_config.json."""
    directory = path if path.is_dir() else path.parent
    config = directory / "config.json" if path.is_dir() else path
    raw = parse_json(read_limited(config), name=str(config))
    beside = directory / "hf_quant_config.json"
    quant = parse_json(read_limited(beside), name=str(beside)) if beside.is_file() else None
    return sources_of_config(raw, hf_quant_config=quant, found=read_checkpoint(directory), model=model)


def unquantised(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The config without its quantisation, on the top and in the parts."""
    return {
        key: unquantised(value) if isinstance(value, Mapping) else value
        for key, value in raw.items()
        if key not in ("quantization_config", "compression_config")
    }


def _shape(raw: Mapping[str, Any], model: Model) -> Shape:
    """What names cannot say, from the model: layers, KV heads, a tied head."""
    heads = [
        int(getattr(part, "num_kv_heads", 0))
        for layer in model.distinct()
        for part in layer.parts
        if getattr(part, "num_kv_heads", 0)
    ]
    return Shape(model.num_layers, min(heads, default=1), raw.get("tie_word_embeddings") is True)


def open_sources(
    name: str, *, revision: str | None = None, endpoint: str | None = None, model: Model | None = None
) -> WeightSources:
    """What is known of the weights behind a name as a user types it: ``hf:org/name``, a directory or file,
    a card. Raises what reading them raises; a model without any source is an empty answer.
    """
    if name.startswith("hf:"):
        return _of_hub(name.removeprefix("hf:"), revision, endpoint, model)
    path = Path(name).expanduser()
    if path.suffix.lower() in (".yaml", ".yml", ".gguf") or name == "-":
        return WeightSources(problem=no_source(name))
    if path.is_dir() or path.is_file():
        return sources_of_directory(path, model)
    return _of_card(name)


def _of_hub(name: str, revision: str | None, endpoint: str | None, model: Model | None) -> WeightSources:
    """The config as for the model itself, the headers of its commit; without headers the config alone."""
    from kvplan.readers.hub.model import open_hub_config
    from kvplan.readers.hub.weights import hub_checkpoint

    raw, quant, commit = open_hub_config(name, revision, endpoint=endpoint)
    found = hub_checkpoint(name.partition("@")[0], commit, endpoint=endpoint)
    return sources_of_config(raw, hf_quant_config=quant, found=found, model=model)


def _of_card(name: str) -> WeightSources:
    """A card's bytes; how they are divided is known where the card lists its tensors."""
    from kvplan.readers.cards.find import load_weights

    weights = load_weights(name)
    if weights.total_bytes is None:
        return WeightSources(problem=no_source(name))
    where = f"the card of {name} ({weights.how})"
    return WeightSources(index=Index(weights.total_bytes, (), where, CARD), problem=no_source(name))
