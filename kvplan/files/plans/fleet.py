"""Fleet files: the GPUs that one has or may rent, how many, in what nodes, at what price."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, WithJsonSchema

from kvplan.errors import KvplanError
from kvplan.files.gpus.find import gpu_of_size, load_gpu
from kvplan.files.gpus.listed import load_gpu_file
from kvplan.files.json_input import read_limited
from kvplan.files.plans.file import together
from kvplan.files.plans.schema import Strict
from kvplan.files.plans.values import MOST_GPUS, Amount, GpuName, Text, by, wrong
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import MAX_BYTES, load_yaml
from kvplan.files.yaml.validation import explain_validation
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.plans.fleet import FLEET_FORMAT, Fleet, Offer
from kvplan.units import parse_bytes

_RATE = regex(r"([\d.]{1,30}\s*[A-Za-z]{1,3})\s*/\s*s", re.ASCII)


def rate(value: Any) -> int:
    """``50GB/s`` in bytes per second."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise wrong(value, "bytes per second", "write, for example, 50GB/s")
    amount = parse_bytes(match[1])
    if not 0 < amount <= 10**16:
        raise wrong(value, "a bandwidth above 0")
    return amount


Rate = Annotated[
    Any, by(rate), WithJsonSchema({"type": "string", "pattern": r"^[\d.]+\s*[A-Za-z]+\s*/\s*s$"})
]


class OfferEntry(Strict):
    """One kind of GPU in one place."""

    gpu: GpuName = Field(description="slug, alias, 80GiB, or a spec file beside this file")
    where: Text | None = Field(default=None, description="cloud, region, rack: only shown")
    available: Annotated[int, Field(ge=0, le=MOST_GPUS)] | None = Field(
        default=None, description="how many GPUs; default: as many as asked for"
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="GPUs that share the fast links; default: as the GPU's file says"
    )
    node_bandwidth: Rate = Field(default=None, description="between nodes, one GPU's share: 50GB/s")
    price_per_gpu_hour: Amount = Field(default=None, description="what one GPU costs in an hour")


class FleetFile(Strict):
    """GPUs that may be used."""

    kvplan: Literal[FLEET_FORMAT]  # type: ignore[valid-type]
    currency: Text | None = Field(default=None, description="only shown: USD")
    spare: Annotated[int, Field(ge=0, le=MOST_GPUS)] = Field(
        default=0, description="engines of each kind that may be lost: kvplan check counts so many more"
    )
    offers: Annotated[list[OfferEntry], Field(min_length=1, max_length=10_000)]


def read_fleet(path: Path | str, *, name: str | None = None) -> Fleet:
    """The fleet in a file. Raises KvplanError with every mistake, each with its line."""
    path = Path(path)
    shown = name if name is not None else str(path)
    return fleet_from_located(load_yaml(read_limited(path, MAX_BYTES), name=shown), path.parent)


def fleet_from_located(located: Located, directory: Path) -> Fleet:
    """The fleet of a file that was read. directory: against which spec files are meant."""
    data = located.mapping("a fleet")
    if not str(data.get("kvplan")).startswith("fleet/"):
        raise located.error(
            "not-a-fleet",
            f"{located.name} is not a fleet",
            ("kvplan",),
            help=f"begin it with kvplan: {FLEET_FORMAT}",
        )
    try:
        file = FleetFile.model_validate(data)
    except ValidationError as error:
        raise together(explain_validation(error, located, model=FleetFile, code="invalid-fleet")) from None
    gpus = [
        gpu_at(str(entry.gpu), directory, located, ("offers", index, "gpu"))
        for index, entry in enumerate(file.offers)
    ]
    errors = [gpu for gpu in gpus if isinstance(gpu, KvplanError)]
    if errors:
        raise together(errors)
    offers = (_offer(entry, gpu) for entry, gpu in zip(file.offers, gpus) if isinstance(gpu, Gpu))
    return Fleet(tuple(offers), file.currency or "", located.name, file.spare)


def _offer(entry: OfferEntry, gpu: Gpu) -> Offer:
    price: Fraction | None = entry.price_per_gpu_hour
    return Offer(
        gpu=gpu,
        where=entry.where or "",
        available=entry.available,
        gpus_per_node=entry.gpus_per_node if entry.gpus_per_node is not None else gpu.gpus_per_node,
        node_bytes_per_second=entry.node_bandwidth,
        price_per_gpu_hour=price,
    )


def gpu_at(text: str, directory: Path, located: Located, place: tuple[int | str, ...]) -> Gpu | KvplanError:
    """The GPU that a file names, a spec file against its folder; else the error with its place."""
    try:
        if text.lower().endswith((".yaml", ".yml")):
            return load_gpu_file(directory / text)
        return gpu_of_size(text) or load_gpu(text)
    except KvplanError as error:
        return located.error(error.code, error.message, place, help=error.help)


def fleet_schema() -> dict[str, Any]:
    """The JSON Schema of a fleet file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **FleetFile.model_json_schema(),
        "title": "kvplan fleet",
    }
