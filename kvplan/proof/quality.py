"""The error of each KV format, on drawn inputs or a model's own activations (torch), and its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvplan.deployment.counts import ask, kv_dtypes_to_compare
from kvplan.dtypes import KV_DTYPES, KvDtype, kv_dtype
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.errors import CannotRunHere, KvplanError, did_you_mean
from kvplan.model import Model
from kvplan.proof.numerics import drawn
from kvplan.proof.numerics.results import FormatCost, FormatError, InputErrors, LayerErrors, QualityResult
from kvplan.settings import Settings

FORMATS = (
    "fp8", "int8_per_token_head", "nvfp4", "turboquant_k8v4", "turboquant_4bit_nc", "int4_per_token_head",
    "q8_0", "q4_0", "fp8_ds_mla", "nvfp4_ds_mla",
)  # fmt: skip
"""Measured where none is named, as far as the model can have them."""
PLAIN = "bfloat16"
TOKENS, SAMPLE, QUERIES = 8192, 1024, 64
MOST_SAMPLE = 65_536
ALL = "all"


def measured(
    model: Model, formats: str | Sequence[str] | None, *, tokens: int, activations: str | Path | None,
    text: str | Path | None, sample_tokens: int, calibrated: bool, device: str, seed: int,
) -> QualityResult:  # fmt: skip
    """The answer of `kvplan.quality`, which says what each of these means."""
    if not 2 <= sample_tokens <= MOST_SAMPLE:
        raise KvplanError("bad-setting", f"a sample of {sample_tokens:,} tokens", help=f"2 … {MOST_SAMPLE:,}")
    if tokens < 1:
        raise KvplanError("bad-setting", f"a request of {tokens:,} tokens")
    shapes = drawn.shapes_of(model)
    if not shapes:
        raise KvplanError("no-kv", f"{model.id} has no layer whose K and V a KV format would store")
    forms = formats_of(model, formats)
    torch = _torch()
    _check_device(torch, device)
    queries = min(QUERIES, sample_tokens)
    found = (
        _drawn(model, forms, sample_tokens, queries, calibrated, seed, device)
        if activations is None
        else (_watched(str(activations), text, forms, sample_tokens, queries, calibrated, device),)
    )
    choice = choose("generic")
    return QualityResult(
        model.id, choice.engine.name, tokens, sample_tokens, queries, calibrated, seed, device,
        _versions(torch, activations is not None),
        _costs(model, choice, forms, tokens), found, _notes(model, shapes),
    )  # fmt: skip


def formats_of(model: Model, words: str | Sequence[str] | None) -> tuple[KvDtype, ...]:
    """The formats that words name, 16 bit before all. Raises KvplanError(unknown-dtype)."""
    possible = tuple(name for name in kv_dtypes_to_compare(model) if name in KV_DTYPES)
    listed = words.split(",") if isinstance(words, str) else list(words or ())
    asked = [word.strip().lower() for word in listed if word.strip()]
    if words is None:
        names = [kv_dtype(word).name for word in FORMATS]
        names = [name for name in names if name in possible]
    elif not asked:
        raise KvplanError("unknown-dtype", "no format was named", help="--formats fp8,nvfp4")
    else:
        names = [name for word in asked for name in _named(word, possible)]
    return tuple(KV_DTYPES[name] for name in dict.fromkeys((PLAIN, *names)))


def _named(word: str, possible: tuple[str, ...]) -> tuple[str, ...]:
    if word == ALL:
        return possible
    try:
        form = kv_dtype(word)
    except KvplanError:
        if begun := tuple(name for name in possible if name.startswith(word)):
            return begun
        raise
    if form.name not in possible:
        near = did_you_mean(word, possible)
        raise KvplanError(
            "unknown-dtype",
            f"{word} stores records of an MLA latent, which this model has none of",
            help=f"did you mean {near}?" if near else "known: " + ", ".join(possible),
        )
    return (form.name,)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra", "measuring a format needs torch", help="pip install 'kvplan[gpu]'"
        ) from error
    return torch


def _check_device(torch: Any, device: str) -> None:
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()) or (kind == "cpu" and number):
        raise KvplanError("bad-setting", f"there is no device {device!r}", help="cpu, cuda or cuda:1")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise CannotRunHere("no-gpu", f"torch sees {torch.cuda.device_count()} GPUs", help="--device cpu")


def _drawn(
    model: Model,
    forms: tuple[KvDtype, ...],
    tokens: int,
    queries: int,
    calibrated: bool,
    seed: int,
    device: str,
) -> tuple[InputErrors, ...]:
    from kvplan.proof.numerics.measure import errors

    return tuple(
        InputErrors(
            inputs,
            said,
            tuple(
                LayerErrors(shape.label, shape.words(), layers, errors(sample, forms, calibrated=calibrated))
                for shape, layers, sample in drawn.samples(model, inputs, tokens, queries, seed, device)
            ),
        )
        for inputs, said in drawn.DESCRIPTIONS.items()
    )


def _watched(
    path: str, text: str | Path | None, forms: tuple[KvDtype, ...], tokens: int, queries: int,
    calibrated: bool, device: str,
) -> InputErrors:  # fmt: skip
    from kvplan.proof.numerics.activations import manual_text, read_text, watch
    from kvplan.proof.numerics.measure import Sample, errors

    found: list[tuple[int, str, tuple[FormatError, ...]]] = []

    def seen(layer: int, sample: Sample) -> None:
        heads, width, value = sample.keys.shape[0], sample.keys.shape[-1], sample.values.shape[-1]
        shape = f"{heads} × {width}" + (f" / {value}" if value != width else "")
        found.append((layer, shape, errors(sample, forms, calibrated=calibrated)))

    words = manual_text() if text is None else read_text(Path(text))
    said = watch(path, words, tokens, queries, device, seen)
    if not found:
        raise KvplanError("bad-model", f"{path} has no attention that could be looked at")
    layers = tuple(LayerErrors(str(layer), shape, 1, each) for layer, shape, each in sorted(found))
    return InputErrors("activations", said, layers)


def _costs(model: Model, choice: Choice, forms: tuple[KvDtype, ...], tokens: int) -> tuple[FormatCost, ...]:
    length = tokens if model.max_model_len is None else min(tokens, model.max_model_len)
    taken = [_bytes(model, choice, Settings(tokens=length, kv_cache_dtype=form.name)) for form in forms]
    whole = taken[0]
    return tuple(
        FormatCost(form.name, size, None if size is None or not whole else 1 - size / whole)
        for form, size in zip(forms, taken, strict=True)
    )


def _bytes(model: Model, choice: Choice, settings: Settings) -> int | None:
    try:
        answer = ask(model, choice, settings)
    except KvplanError:
        return None
    return None if answer.refusal else answer.per_gpu.kv_bytes_per_request


def _versions(torch: Any, ran: bool) -> dict[str, str]:
    from kvplan.version import __version__

    found = {"kvplan": __version__, "torch": str(torch.__version__)}
    if ran:
        import transformers

        found["transformers"] = str(transformers.__version__)
    return found


def _notes(model: Model, shapes: dict[drawn.Shape, int]) -> tuple[str, ...]:
    rest = sum(run.count for run in model.runs) - sum(shapes.values())
    if rest <= 0:
        return ()
    return (f"{rest} layers keep no K and V in such a format (states, shared caches, compressed latents)",)
