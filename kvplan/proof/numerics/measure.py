"""Attention over stored keys and values beside attention over the numbers themselves, in float64."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.dtypes import KvDtype
from kvplan.proof.numerics.results import FormatError
from kvplan.proof.numerics.schemes import Scheme, scheme_of
from kvplan.proof.tensor import Tensor
from kvplan.record import record


@record()
class Sample:
    """The input of one layer's attention, as float32."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    rope: Tensor = None
    scale: float = 1.0
    window: int | None = None
    """only the newest tokens are seen"""


def errors(sample: Sample, formats: Sequence[KvDtype], *, calibrated: bool) -> tuple[FormatError, ...]:
    """The error of each format on one sample."""
    reference = _read(sample, sample.keys, sample.values, sample.rope)
    return tuple(_error(sample, reference, scheme_of(form), calibrated) for form in formats)


def _error(sample: Sample, reference: tuple[Tensor, Tensor], scheme: Scheme, calibrated: bool) -> FormatError:
    if sample.values is None:
        latent = scheme.latent(sample.keys, calibrated)
        rope = scheme.rope(sample.rope, calibrated)
        output, weight = _read(sample, latent, None, rope)
        key = _relative((latent, sample.keys), (rope, sample.rope))
        value = _relative((latent, sample.keys))
    else:
        keys, values = scheme.key(sample.keys, calibrated), scheme.value(sample.values, calibrated)
        output, weight = _read(sample, keys, values, None)
        key, value = _relative((keys, sample.keys)), _relative((values, sample.values))
    moved = weight.sub_(reference[1]).abs_().sum(-1).mean().item() / 2
    return FormatError(key, value, _relative((output, reference[0])), moved)


def _relative(*pairs: tuple[Tensor, Tensor]) -> float:
    """Root of the squares of the differences over those of the right ones; 0 of nothing."""
    wrong = sum(_squares(found - right) for found, right in pairs)
    whole = sum(_squares(right) for _, right in pairs)
    return float((wrong / whole) ** 0.5) if whole else 0.0


def _squares(one: Tensor) -> float:
    import torch

    return float(torch.linalg.vector_norm(one, dtype=torch.float64).item() ** 2)


def _read(sample: Sample, keys: Tensor, values: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
    """Attention's output [heads, n, value width] and its weights, causal, in float64."""
    import torch

    if values is None:
        keys, values = torch.cat([keys, rope], dim=-1), keys
    heads, count, width = sample.queries.shape
    # The queries that share a key head side by side: keys and values are not copied for each.
    side = (keys.shape[0], heads // keys.shape[0] * count, width)
    scores = (sample.queries.double() * sample.scale).reshape(side) @ keys.double().transpose(-1, -2)
    unseen = ~_seen(sample).to(scores.device)
    weight = scores.view(heads, count, -1).masked_fill_(unseen, -torch.inf).softmax(-1)
    output = weight.view(*side[:2], -1) @ values.double()
    return output.view(heads, count, -1), weight


def _seen(sample: Sample) -> Tensor:
    """[n, tokens]: what each of the newest tokens may look at."""
    import torch

    count, tokens = sample.queries.shape[-2], sample.keys.shape[-2]
    own = torch.arange(tokens - count, tokens)[:, None]
    place = torch.arange(tokens)[None, :]
    seen = place <= own
    return seen if sample.window is None else seen & (place > own - sample.window)
