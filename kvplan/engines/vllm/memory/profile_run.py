"""Inputs of vLLM's memory budget: a release's coefficients, a start's settings."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.engines.vllm.memory.attention_buffers import FlashInfer
from kvplan.engines.vllm.memory.cuda_graphs import FULL_AND_PIECEWISE
from kvplan.engines.vllm.memory.expert_workspaces import ExpertRun
from kvplan.named import NamedTuple
from kvplan.record import record

if TYPE_CHECKING:
    from kvplan.engines.vllm.encoder_profile.estimate import EncoderRun

COLD, WARM, UNKNOWN = "cold", "warm", "unknown"


class Reserved(NamedTuple):
    """Memory that sparse attention reserves. kept: the workspace. passing: beside the layer's activations,
    given back."""

    kept: int = 0
    passing: int = 0


@record()
class Coefficients:
    """Named constants in force in one release, under one runner, on one kind of board.

    A default is the coefficient's zero, with which its term is as if it were not there: what a release's rows
    do not say has it, and a coefficient is born here, before the file knows it. ``_milli``: in thousandths.
    """

    calibrated: bool = False
    """Start-ups of the release were read; else the intervals are wide."""
    own_copies_milli: tuple[tuple[str, int], ...] = ()
    """(model type, hidden states) of what no line describes."""
    logit_millibytes: int = 0
    """The sampler's peak for one logit."""
    logit_unfused_millibytes: int = 0
    """The same where FlashInfer does not sample."""
    sampled_copies: int = 0
    """Hidden states of what is sampled, beside the logits."""
    kernel_always: bool = False
    """Triton's kernel samples in every start."""
    kernel_alone: bool = False
    """Triton's kernel samples where FlashInfer is not there."""
    rejection_millibytes: int = 0
    """Of one logit where drafts are rejected in the profile run."""
    hidden_copies_milli: int = 0
    """Hidden states alive at the forward pass's peak, by the formula."""
    traced_rest: int = 0
    """Bytes that start-ups show beyond a traced pass."""
    draft_copies_milli: int = 0
    """Hidden states of a draft that reads them."""
    workspace_milli: int = 1000
    """Share of the experts' workspace that is there."""
    workspace_kept: bool = False
    """The experts' workspace stays while the sampler runs."""
    multimodal_copies_milli: int = 0
    """Embeddings of the encoder cache, in hidden states."""
    states_counted: bool = False
    """Memory that the sampler keeps is taken off."""
    embeds_always: bool = False
    """The buffer of input embeddings is taken off, see `input_buffers`."""
    embeds_of_images: bool = False
    """The same for multimodal models alone."""
    first_table: bool = False
    """The first block table is taken off."""
    activation_margin: int = 0
    """Half-width of the activation's interval, in bytes."""
    activation_margin_milli: int = 0
    """The same, of the activation."""
    experts_margin_milli: int = 0
    """The same, of the experts' workspace."""
    encoder_margin_milli: int = 0
    """The same, of the encoder's outputs."""
    compile_copies_milli: int = -1
    """Hidden states beside a rank's share of the embedding while Inductor benchmarks combined kernels;
    -1: it does not."""
    compile_embeds: int = 0
    """Bytes at most where the compiled part takes embeddings, not tokens."""
    compile_states: int = 0
    """Bytes at most where linear attention tunes its kernels."""
    compile_states_likely: int = 0
    """Those in the middle."""
    compile_kept: bool = False
    """The part of the table's copy that the allocator keeps counts, see `kept_copy`."""
    non_torch_by_ranks: tuple[tuple[int, int], ...] = ((1, 0),)
    """(ranks, bytes) of context, NCCL and all-reduce buffers; the largest entry not above the rank count
    counts."""
    non_torch_pipeline: int = 0
    """Those bytes where only a pipeline divides the model."""
    multiprocessor_bytes: int = 0
    """For each multiprocessor beyond an H100's 132, or less."""
    one_low: int = 0
    """Margin of one rank downwards, in bytes."""
    one_high: int = 0
    """The same upwards."""
    several_low: int = 0
    """Margin of several ranks downwards, in bytes."""
    several_high: int = 0
    """The same upwards."""
    fusion: bool = False
    """FlashInfer's all-reduce workspace is beside the buffers."""
    fusion_stages: bool = False
    """Beside pipelines and data parallelism too."""
    graph_layer_bytes: int = 0
    """One CUDA graph of one layer; 0 where graphs are not estimated."""
    graph_latent_layer_bytes: int = 0
    """The same of latent attention; 0: as any other."""
    graph_indexed_layer_bytes: int = 0
    """The same of latents with index keys; 0: as other latents."""
    graph_split_layer_bytes: int = 0
    """The same under FlashAttention 3, whose partial sums are beside it then; 0: as any other."""
    graph_ranks_milli: int = 1000
    """The part of it that four ranks or more take."""
    draft_graph_bytes: int = 0
    """One graph of a draft; 0 where they are not estimated."""
    graph_margin: int = 0
    """Half-width of the graphs' interval, in bytes."""
    graph_margin_milli: int = 0
    """The same, of the graphs."""
    graph_low_milli: int = 0
    """The same downwards for multimodal models, whose starts print from a quarter of what others do."""
    graphs_wide: bool = False
    """Of the sizes, see `captured`."""
    graphs_by_request: bool = False
    """Of the sizes, see `captured`."""
    graphs_apart: bool = False
    """Of the sizes, see `captured`."""


@record()
class Load:
    """The settings of the profile run, resolved."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    gpu_memory_utilization: Fraction
    max_model_len: int = 0
    block_size: int = 16
    """tokens of a block, as asked for"""
    enforce_eager: bool = False
    enable_expert_parallel: bool = False
    samples: bool = True
    """this pipeline stage is the last, and the model generates: those that pool have no sampler"""
    has_adapters: bool = False
    """graphs are captured with LoRA adapters and without (cudagraph_specialize_lora)"""
    adapter_table: int = 0
    """bytes of the embedding's adapters, which Inductor's benchmarks copy as they copy its table"""
    data_parallel_size: int = 1
    """ranks that experts are divided over; 1 where the model has none"""
    drafts: int = 0
    """tokens proposed for each request"""
    reads_hidden: bool = False
    """by a draft that reads hidden states"""
    predicts: bool = False
    """by prediction layers of the model"""
    own_head: bool = False
    """by a head with a vocabulary of its own"""
    drafts_at_once: bool = False
    """all tokens in one pass"""
    draft_rows: int = 0
    """logits of one request that the profile run's proposal has (the V2 runner)"""
    states_read: int = 3
    """hidden states of so many of the target's layers"""
    largest_graph: int = 0
    """tokens, 0 by default"""
    cudagraph_mode: str = FULL_AND_PIECEWISE
    fine_graphs: bool = False
    """every size up to 32"""
    graphs_estimated: bool = True
    """they are taken off before the cache"""
    graph_sizes: tuple[int, ...] = ()
    """of each, where they are asked for"""
    compile_cache: str = UNKNOWN
    """one of "cold", "warm" or "unknown"."""
    capability: tuple[int, int] | None = None
    """capability, multiprocessors: of the GPU"""
    multiprocessors: int | None = None
    fused_sampler: bool = True
    """FlashInfer is there to sample"""
    pages: bool = False
    """torch's allocator has expandable segments"""
    spared: int = 0
    """see `kvplan.engines.vllm.memory.cold_compile`"""
    split_bytes: int = 0
    """see `memory.attention_buffers`"""
    indexer: Reserved = Reserved()
    """what sparse attention reserves, from 0.20 on"""
    model_type: str = ""
    encoder: EncoderRun | None = None
    """the profile run of the model's encoder on this stage"""
    encoder_known: bool = False
    """it stands for all that the encoder takes (else so many copies of the hidden states do)"""
    experts: ExpertRun = ExpertRun()
    """how the release runs them"""
    takes_tokens: bool = True
    """the compiled part takes token ids: text models, and multimodal ones that serve text alone"""
    has_states: bool = False
    """layers keep recurrent states"""
    eight_bits: bool = False
    """matrices are multiplied in FP8"""
    packed: bool = False
    """they are AWQ's or GPTQ's"""
    latent: bool = False
    """attention keeps latents"""
    indexed: bool = False
    """and chooses among them by keys of their own"""
    flashinfer: FlashInfer = FlashInfer()
    """what it keeps beside the graphs"""
    passes: tuple[tuple[int, int], ...] = ()
    """(bytes a token, bytes besides) of each place where a traced class's pass may be at its peak; none
    where the formula counts"""
