"""What the lines of vLLM's memory budget are computed from: a release's coefficients, a start's settings."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from kvplan.engines.vllm.memory.attention_buffers import FlashInfer
from kvplan.engines.vllm.memory.cuda_graphs import FULL_AND_PIECEWISE
from kvplan.engines.vllm.memory.expert_workspaces import ExpertRun
from kvplan.record import record

if TYPE_CHECKING:
    from kvplan.engines.vllm.encoder_profile.estimate import EncoderRun

COLD, WARM, UNKNOWN = "cold", "warm", "unknown"


class Reserved(NamedTuple):
    """What sparse attention reserves. kept: the workspace. passing: beside the layer's activations,
    given back."""

    kept: int = 0
    passing: int = 0


@record()
class Coefficients:
    """Named constants in force in one release, under one runner, on one kind of board. ``_milli``: in
    thousandths; margins are half-widths of intervals, ``_low`` and ``_high`` where they differ.

    own_copies_milli: (model type, hidden states) of what no line describes. logit_millibytes: the sampler's
    peak for one logit; logit_unfused_millibytes: where FlashInfer does not sample. sampled_copies: hidden
    states of what is sampled, beside it. kernel_always, kernel_alone: Triton's kernel samples, in every start
    or where FlashInfer is not there. rejection_millibytes: of one logit where drafts are rejected in the run.
    states_counted: what the sampler keeps is taken off; embeds_always,
    embeds_of_images, first_table: so are buffers of the inputs, see `input_buffers`. hidden_copies_milli:
    hidden states alive at the forward pass's peak, by the formula. traced_rest: bytes that start-ups show
    beyond a traced pass. draft_copies_milli: hidden states of a draft that reads them. workspace_milli: of
    the experts' workspace; workspace_kept: it stays while the sampler runs. multimodal_copies_milli:
    embeddings of the encoder cache, in hidden states. experts_margin_milli, encoder_margin_milli: of the
    workspace, of the encoder's outputs. compile_copies_milli: hidden states beside a rank's share of the
    embedding while Inductor benchmarks combined kernels; negative: it does not. compile_embeds: bytes at most
    where the compiled part takes embeddings, not tokens; compile_states: and linear attention tunes its
    kernels, compile_states_likely of them in the middle. compile_kept: what the allocator keeps of the
    table's copy counts (`kept_copy`). one_low, one_high, several_low, several_high: margins of one rank, of
    several. non_torch_by_ranks: (ranks, bytes) of context, NCCL and all-reduce buffers; the largest entry not
    above the rank count counts. fusion:
    FlashInfer's all-reduce workspace is beside them; fusion_stages: beside pipelines and data parallelism
    too. non_torch_pipeline: bytes where only a pipeline divides the model. multiprocessor_bytes: for each
    multiprocessor beyond an H100's 132, or less. graph_layer_bytes: one CUDA graph of one layer, 0 where the
    estimate is; graph_latent_layer_bytes: of latent attention, 0: as any other; graph_indexed_layer_bytes: of
    latents with index keys, 0: as other latents; graph_split_layer_bytes:
    under FlashAttention 3, whose partial sums are beside it then; 0: as any other; graph_ranks_milli: of four
    ranks or more; draft_graph_bytes: one graph of a draft, 0 where they are not estimated; graphs_wide,
    graphs_by_request, graphs_apart: of the sizes, see `captured`. graph_low_milli: the margin downwards of
    multimodal models, whose starts print from a quarter of what others do for a layer.
    """

    calibrated: bool
    own_copies_milli: tuple[tuple[str, int], ...]
    logit_millibytes: int
    logit_unfused_millibytes: int
    sampled_copies: int
    kernel_always: bool
    kernel_alone: bool
    rejection_millibytes: int
    hidden_copies_milli: int
    traced_rest: int
    draft_copies_milli: int
    workspace_milli: int
    workspace_kept: bool
    multimodal_copies_milli: int
    states_counted: bool
    embeds_always: bool
    embeds_of_images: bool
    first_table: bool
    activation_margin: int
    activation_margin_milli: int
    experts_margin_milli: int
    encoder_margin_milli: int
    compile_copies_milli: int
    compile_embeds: int
    compile_states: int
    compile_states_likely: int
    compile_kept: bool
    non_torch_by_ranks: tuple[tuple[int, int], ...]
    non_torch_pipeline: int
    multiprocessor_bytes: int
    one_low: int
    one_high: int
    several_low: int
    several_high: int
    fusion: bool
    fusion_stages: bool
    graph_layer_bytes: int
    graph_latent_layer_bytes: int
    graph_indexed_layer_bytes: int
    graph_split_layer_bytes: int
    graph_ranks_milli: int
    draft_graph_bytes: int
    graph_margin: int
    graph_margin_milli: int
    graph_low_milli: int
    graphs_wide: bool
    graphs_by_request: bool
    graphs_apart: bool


@record()
class Load:
    """The settings of the profile run, resolved. block_size: tokens of a block, as asked for. samples: this
    pipeline stage is the last, and the model generates: those that pool have no sampler.

    data_parallel_size: ranks that experts are divided over; 1 where the model has none. has_adapters: graphs
    are captured with LoRA adapters and without (cudagraph_specialize_lora). adapter_table: bytes of the
    embedding's adapters, which Inductor's benchmarks copy as they copy its table. drafts: tokens proposed for
    each request; reads_hidden: by a draft that reads hidden states; predicts: by prediction layers of the
    model; own_head: by a head with a vocabulary of its own; drafts_at_once: all tokens in one pass;
    draft_rows: logits of one request that the profile run's proposal has (the V2 runner); states_read: hidden
    states of so many of the target's layers. largest_graph: tokens, 0 by default;
    fine_graphs: every size up to 32; graph_sizes: of each, where they are asked for; graphs_estimated: they
    are taken off before the cache.
    compile_cache: "cold", "warm" or "unknown". capability, multiprocessors: of the GPU. passes: (bytes a
    token, bytes besides) of each place where a traced class's pass may be at its peak; none where the formula
    counts. fused_sampler: FlashInfer is there to sample. split_bytes: see `memory.attention_buffers`.
    pages: torch's allocator has expandable segments. spared: see `kvplan.engines.vllm.memory.cold_compile`.
    indexer: what sparse attention reserves, from 0.20 on. encoder: the profile run of the model's encoder on
    this stage; encoder_known: it stands for all that the encoder takes (else so many copies of the hidden
    states do). experts: how the release runs them. takes_tokens: the compiled part takes token ids: text
    models, and multimodal ones that serve text alone. has_states: layers keep recurrent states. eight_bits:
    matrices are multiplied in FP8; packed: they are AWQ's or GPTQ's. latent: attention keeps latents;
    indexed: and chooses among them by keys of their own.
    flashinfer: what it keeps beside the graphs.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    gpu_memory_utilization: Fraction
    max_model_len: int = 0
    block_size: int = 16
    enforce_eager: bool = False
    enable_expert_parallel: bool = False
    samples: bool = True
    has_adapters: bool = False
    adapter_table: int = 0
    data_parallel_size: int = 1
    drafts: int = 0
    reads_hidden: bool = False
    predicts: bool = False
    own_head: bool = False
    drafts_at_once: bool = False
    draft_rows: int = 0
    states_read: int = 3
    largest_graph: int = 0
    cudagraph_mode: str = FULL_AND_PIECEWISE
    fine_graphs: bool = False
    graphs_estimated: bool = True
    graph_sizes: tuple[int, ...] = ()
    compile_cache: str = UNKNOWN
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    fused_sampler: bool = True
    pages: bool = False
    spared: int = 0
    split_bytes: int = 0
    indexer: Reserved = Reserved()
    model_type: str = ""
    encoder: EncoderRun | None = None
    encoder_known: bool = False
    experts: ExpertRun = ExpertRun()
    takes_tokens: bool = True
    has_states: bool = False
    eight_bits: bool = False
    packed: bool = False
    latent: bool = False
    indexed: bool = False
    flashinfer: FlashInfer = FlashInfer()
    passes: tuple[tuple[int, int], ...] = ()
