"""The layout of a GPU spec file as pydantic models: what judges a file, and the JSON Schema.

A packaged spec is judged when the index is built, and loaded as it is: no command waits for pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvplan.errors import KvplanError
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.validation import explain_validation

Value = TypeVar("Value")
PositiveInt = Annotated[int, Field(gt=0)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Figure(_Strict, Generic[Value]):
    """One figure with where it comes from; `unverified` means typed without a page or output at hand."""

    value: Value | None = Field(description="null where nobody published it")
    source: Text
    note: Text | None = None


class DenseTflops(_Strict):
    """10**12 operations per second, without sparsity."""

    fp16: Figure[PositiveNumber] | None = None
    bf16: Figure[PositiveNumber] | None = None
    fp8: Figure[PositiveNumber] | None = None
    fp4: Figure[PositiveNumber] | None = None
    int8: Figure[PositiveNumber] | None = None


class Interconnect(_Strict):
    """Links of one device: scale-up link (both directions together) and PCIe (one direction)."""

    nvlink_bytes_per_second: Figure[PositiveInt] | None = None
    pcie_generation: Figure[PositiveInt] | None = None
    pcie_bytes_per_second: Figure[PositiveInt] | None = None


class MigSlice(_Strict):
    """The GPU that a slice is cut from, and NVIDIA's name of the profile."""

    parent: Slug
    profile: Text


class GpuSpecFile(_Strict):
    """One accelerator, or one MIG slice of one."""

    slug: Slug
    name: Text = Field(description="the vendor's name; never used in arithmetic")
    vendor: Text
    arch: Text
    market: Literal["datacenter", "workstation", "desktop", "laptop", "embedded", "regional"] | None = Field(
        default=None,
        description="whom it is made for (regional: sold in one country, under export control); plans"
        " without --gpu choose among the first two",
    )
    announced: bool = Field(
        default=False, description="only its maker's announcement is known: no plan proposes it by itself"
    )
    note: Text | None = None
    aliases: list[Text] = []
    nvml_names: list[Text] = []
    default_for: list[Slug] = Field(default=[], description="families whose bare name means this GPU")
    unified_memory: bool = False
    mig: MigSlice | None = None
    memory_marketing: Figure[Text]
    memory_total_bytes: Figure[PositiveInt] = Field(description="as the CUDA or HIP runtime reports it")
    memory_totals_seen: list[Figure[PositiveInt]] = Field(
        default=[], description="totals in bytes that the runtime reports under other drivers"
    )
    memory_settable_bytes: Figure[PositiveInt] | None = Field(
        default=None, description="the most that the total was set to, where the kernel's limit decides it"
    )
    memory_free_seen: list[Figure[PositiveInt]] = Field(
        default=[], description="bytes that were free before anything was loaded, nothing else on the GPU"
    )
    memory_nvml_bytes: Figure[PositiveInt] = Field(description="as nvidia-smi or the vendor's tool shows it")
    bandwidth_bytes_per_second: Figure[PositiveInt]
    compute_capability: Figure[Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")]] | None = None
    multiprocessors: Figure[PositiveInt] | None = Field(default=None, description="SMs, as CUDA counts them")
    device_target: Figure[Text] | None = None
    dense_tflops: DenseTflops | None = None
    fp8_tensor_cores: Figure[bool] | None = None
    fp4_tensor_cores: Figure[bool] | None = None
    power_watts: Figure[PositiveNumber] | None = Field(
        default=None, description="the board's or module's limit (TDP, TBP)"
    )
    interconnect: Interconnect | None = None
    gpus_per_node: Figure[PositiveInt] | None = None


def lint_gpu_spec(located: Located) -> list[KvplanError]:
    """Everything that is wrong with a spec file; an empty list means nothing."""
    try:
        GpuSpecFile.model_validate(located.data)
    except ValidationError as error:
        return explain_validation(error, located, model=GpuSpecFile, code="invalid-gpu-spec")
    return []


def gpu_spec_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **GpuSpecFile.model_json_schema(),
        "title": "kvplan GPU spec",
    }
