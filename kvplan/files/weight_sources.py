"""The handles that doors give a model on its weights: nothing is read before somebody asks."""

from __future__ import annotations

from pathlib import Path

from kvplan.model import Model
from kvplan.record import record
from kvplan.weights.facts import WeightSources, no_source


@record()
class Beside:
    """Headers or index in the directory of a config.json."""

    directory: Path

    def sources(self, model: Model) -> WeightSources:
        from kvplan.architectures.weights import sources_of_model
        from kvplan.files.safetensors_header import read_checkpoint

        return sources_of_model(model, read_checkpoint(self.directory))


@record()
class OnHub:
    """The headers of the commit on the hub; without headers the config alone."""

    name: str

    def sources(self, model: Model) -> WeightSources:
        from kvplan.architectures.weights import sources_of_config
        from kvplan.files.hub.model import open_hub_config
        from kvplan.files.hub.weights import hub_checkpoint

        raw, quant, commit = open_hub_config(self.name, None)
        found = hub_checkpoint(self.name.partition("@")[0], commit)
        return sources_of_config(raw, hf_quant_config=quant, found=found, model=model)


@record()
class InGguf:
    """The tensors that a GGUF file lists."""

    path: Path

    def sources(self, model: Model) -> WeightSources:
        from kvplan.files.gguf.header import tensor_bytes

        return WeightSources(problem=no_source(model.id), named=lambda: tensor_bytes(self.path))
