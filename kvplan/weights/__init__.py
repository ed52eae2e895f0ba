"""How many bytes of weights each GPU holds: tensors, formats, the division among ranks, checkpoints.

Pure: whole numbers in, whole numbers out. ``inventory`` lists a model's tensors, ``ranks`` divides them,
``formats`` and ``quantisation`` say how they are stored, ``stored`` and ``by_name`` start from a
checkpoint's headers, ``facts`` picks the best source.
"""

from __future__ import annotations

from kvplan.weights.facts import Index, WeightFacts, WeightSources, no_source, weights_per_rank
from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import ALONE, Parallel, bytes_by_stage, parameters_by_stage, stage_layers
from kvplan.weights.stored import Checkpoint, Stored

__all__ = [
    "ALONE",
    "Checkpoint",
    "Index",
    "Inventory",
    "Parallel",
    "Stored",
    "WeightFacts",
    "WeightSources",
    "bytes_by_stage",
    "no_source",
    "parameters_by_stage",
    "stage_layers",
    "weights_per_rank",
]
