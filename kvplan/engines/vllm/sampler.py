"""What sampling takes in vLLM's profile run.

vllm-project/vllm v1/worker/gpu_model_runner.py and v1/worker/gpu/model_runner.py, _dummy_sampler_run. For one
logit: 2 bytes as the head leaves it, 4 in float32, 4 once masked (FlashInfer's top_k_mask_logits) or of its
exponential noise (random_sample), 4 of its probability: 14, as an H100 with 0.33 showed block by block, under
both runners. vllm/v1/sample/ops/topk_topp_triton.py keeps a row of the vocabulary in float32 for every
program that it starts, and starts one for each multiprocessor; the V1 runner calls it beside FlashInfer
(0.21 on) or in its place, from eight requests on (apply_top_k_top_p). Where tokens are drafted, however they
are, the V1 runner rejects them in the dummy run too, one draft of every request: 30 bytes for each logit. Two
EAGLE-3 starts of 0.20 on an H100 (1,024 requests, 151,936 words) kept 2.34 GiB more than without: 2.31 so.

What vLLM's V2 runner keeps for the sampler: tables of the vocabulary for every place of the batch.

vllm-project/vllm vllm/v1/worker/gpu/sample/penalties.py, PenaltiesState: a count of every token that a
request has produced, int32, and a bit for every token of its prompt;
vllm/v1/worker/gpu/structured_outputs.py, StructuredOutputsWorker: a bit for every token that a grammar
allows, of every sampled position. They are made once the model is loaded, so "Model loading took" has them
not, on the stage that samples, and not for models that pool (0.22 to 0.33, alike). Until 0.26 the engine
takes off weights, growth of torch's peak and what is outside torch, and they are none of these; since 0.27
what stays is mem_get_info's difference, and they are in it (vllm/utils/mem_utils.py, total_consumed). Seen so
on a GPU with 0.33 (docs/accuracy.md).
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import exact
from kvplan.engines.vllm.load import Coefficients, Load
from kvplan.gpu import Gpu
from kvplan.results import BudgetLine
from kvplan.units import ceil_div

H100_MULTIPROCESSORS = 132
"""Of the GPUs that most constants were learnt on; taken where a spec does not say."""
_SORTED_BELOW = 8
"""Fewer requests are sorted by torch."""
_FLOAT32 = 4


def sampler_peak(shape: Shape, load: Load, known: Coefficients) -> int:
    """rows · vocabulary · bytes per logit + hidden states of the batch and of what is sampled + the kernel's
    buffer, bytes; rows = min(max_num_seqs, max_num_batched_tokens), 0 where nothing is sampled."""
    rows = sampled(load)
    width = shape.hidden_size * shape.element_bytes
    logit = known.logit_millibytes if load.fused_sampler else known.logit_unfused_millibytes
    logit = max(logit, known.rejection_millibytes if load.drafts else 0)
    states = (load.max_num_batched_tokens + rows * known.sampled_copies) * width
    return ceil_div(rows * shape.vocab_size * logit, 1000) + states + kernel_buffer(shape, load, known)


def kernel_buffer(shape: Shape, load: Load, known: Coefficients) -> int:
    """programs · vocabulary · 4 bytes, programs = min(multiprocessors, 2^ceil(log2(min(multiprocessors,
    rows)))); 0 where Triton does not sample. It stays."""
    rows = sampled(load)
    runs = known.kernel_always or (known.kernel_alone and not load.fused_sampler)
    if not runs or rows < _SORTED_BELOW:
        return 0
    most = load.multiprocessors or H100_MULTIPROCESSORS
    programs = min(most, 1 << (min(most, rows) - 1).bit_length())
    return programs * shape.vocab_size * _FLOAT32


def flashinfer_samples(gpu: Gpu | None) -> bool:
    """Whether FlashInfer, which vLLM's wheels bring, samples on a GPU (topk_topp_sampler.py,
    flashinfer_sampler_supported): NVIDIA's, with more than 16 multiprocessors."""
    if gpu is None:
        return True
    return gpu.vendor.lower() == "nvidia" and (gpu.multiprocessors or H100_MULTIPROCESSORS) > _FEW


_FEW = 16


def sampled(load: Load) -> int:
    """Requests whose logits the run samples."""
    return min(load.max_num_seqs, load.max_num_batched_tokens) if load.samples else 0


_COUNT = 4
"""Bytes of one token's count, and of a word of 32 bits."""
_WORD = 32


def sampler_states(seqs: int, vocabulary: int, drafts: int) -> int:
    """seqs · vocabulary · 4 + seqs · (2 + drafts) · ceil(vocabulary / 32) · 4, bytes.

    seqs: max_num_seqs; drafts: tokens proposed for each request, which are sampled too.
    """
    mask = ceil_div(vocabulary, _WORD) * _COUNT
    return seqs * (vocabulary * _COUNT + mask * (2 + drafts))


def states_line(seqs: int, vocabulary: int, drafts: int) -> BudgetLine:
    """The line of the budget."""
    source = f"counts and masks of {vocabulary:,} tokens for {seqs:,} requests"
    return exact("sampler states", sampler_states(seqs, vocabulary, drafts), source)
