"""The activation peak of vLLM's profile run: its sampler, its forward pass, workspaces.

vllm-project/vllm v1/worker/gpu_model_runner.py, and v1/worker/gpu/model_runner.py of the V2 runner:
profile_run and _dummy_sampler_run.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.architectures.weights import sources_of
from kvplan.engines.vllm.encoder_profile.multimodal import has_encoder
from kvplan.engines.vllm.memory.expert_workspaces import expert_bytes
from kvplan.engines.vllm.memory.profile_run import Coefficients, Load
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import BudgetLine, about, exact
from kvplan.units import ceil_div
from kvplan.weights.inventory import Inventory, Role
from kvplan.weights.parts import Part, part_of


def activation_peak(shape: Shape, load: Load, known: Coefficients) -> int:
    """max(sampler, draft's sampler, forward pass) with the experts' workspace and the encoder's outputs,
    bytes; the compiled code at hand.

    forward: gate, up and their product, or what attention has (kvplan.engines.vllm.memory.profile_peak).
    """
    tokens, tp = load.max_num_batched_tokens, load.tensor_parallel_size
    sampler = max(sampler_peak(shape, load, known), drafted_peak(shape, load))
    if load.passes:
        forward = max(tokens * each + besides for each, besides in load.passes)
        forward += max(0, known.traced_rest - load.spared)
    else:
        forward = forward_bytes(shape, tokens=tokens, tp=tp, copies_milli=known.hidden_copies_milli)
    forward += read_states(shape, load, known)
    workspace = workspaces(shape, load) * known.workspace_milli // 1000
    beside = _encoder(shape, load, known)
    if known.workspace_kept:
        workspace = max(workspace, load.indexer.kept)  # one workspace, as large as its largest use
        return max(sampler, forward + load.indexer.passing) + workspace + beside
    return max(sampler, forward + workspace) + beside


def _encoder(shape: Shape, load: Load, known: Coefficients) -> int:
    """Of an encoder without a rule the embeddings alone, as many as one batch has tokens."""
    copies = known.multimodal_copies_milli if shape.is_multimodal and not load.encoder_known else 0
    return load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes * copies // 1000


def draft_states(shape: Shape, load: Load, known: Coefficients) -> int:
    """Hidden states of several layers for a draft that reads them, and its own pass (profile runs draft).

    A prediction layer is like the model's own and runs after them, when what they took is free again: what
    the model hands over is all that comes on top (v1/spec_decode/llm_base_proposer.py, dummy_run; the V2
    runner's v1/worker/gpu/spec_decode/autoregressive/speculator.py: the draft reads a buffer of its own)."""
    copies = (
        _PREDICTION_COPIES if load.predicts else known.draft_copies_milli * load.states_read // _AUXILIARY
    )
    return _hidden_of_draft(shape, load) * copies // 1000


def drafted_peak(shape: Shape, load: Load) -> int:
    """requests · their rows · vocabulary · element, beside the states that the draft has read and the last
    one; 0 of drafts that propose one token after the other, whose rows are the sampler's own.

    The V2 runner's profile run proposes (v1/worker/gpu/spec_decode/dflash/speculator.py, propose and
    _generate_draft). DFlash with Qwen3-4B on an L4, 0.29, eager: 0.45 GiB printed, 0.42 so.
    """
    if not load.draft_rows:
        return 0
    return _draft_logits(shape, load) + (1 + load.states_read) * _hidden_of_draft(shape, load)


def _draft_logits(shape: Shape, load: Load) -> int:
    return sampled(load) * load.draft_rows * shape.vocab_size * shape.element_bytes


def read_states(shape: Shape, load: Load, known: Coefficients) -> int:
    """The part of it that lies next to the model's own pass: the layers' states that the draft will read,
    three of them under EAGLE-3 (eagle3_utils.py, auxiliary layers). Before anything is sampled they are free
    again: the allocations of an EAGLE-3 start on an H100 show none of them at the sampler's peak."""
    copies = min(1000 * load.states_read, known.draft_copies_milli)
    return _hidden_of_draft(shape, load) * (_PREDICTION_COPIES if load.predicts else copies) // 1000


_BESIDE_LOGITS = 4
"""The memory of the draft's own pass besides its logits is not read, and taken for up to a fourth of them."""
_PREDICTION_COPIES = 1000
_AUXILIARY = 3
"""Hidden states that the drafts read which draft_copies_milli was fitted on (EAGLE-3)."""


def _hidden_of_draft(shape: Shape, load: Load) -> int:
    """The batch's hidden states; 0 without a draft that reads them on this stage."""
    if not (load.reads_hidden and load.samples):
        return 0
    return load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes


def workspaces(shape: Shape, load: Load) -> int:
    """The experts' workspaces: whole experts with expert parallelism, else divided in width."""
    dp = load.data_parallel_size
    ways = 1 if load.enable_expert_parallel else load.tensor_parallel_size * dp
    return expert_bytes(shape, load.experts, tokens=load.max_num_batched_tokens, ways=ways, dp=dp)


def activation_line(shape: Shape, load: Load, known: Coefficients, how: str) -> BudgetLine:
    """The peak of a start that finds its compiled code; wider where experts or an encoder are in it."""
    peak = activation_peak(shape, load, known)
    margin = known.activation_margin + peak * known.activation_margin_milli // 1000
    margin += workspaces(shape, load) * known.experts_margin_milli // 1000
    margin += _encoder(shape, load, known) * known.encoder_margin_milli // 1000
    margin += _hidden_of_draft(shape, load) * known.draft_copies_milli // 3000
    margin += _draft_logits(shape, load) // _BESIDE_LOGITS
    seen = f"{load.max_num_batched_tokens:,} tokens, {load.max_num_seqs if load.samples else 0:,} sampled"
    seen = f"{seen}; forward pass {'traced' if load.passes else 'by the formula'}"
    return about("activation peak", peak, margin, f"profile run: {seen}; {how}")


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


@lru_cache(maxsize=1024)
def served_shape(model: Model, element_bytes: int) -> Shape:
    """The widths of a model as its layers are built: of attention, and of what is no routed expert."""
    shape = replace(shape_of(model, element_bytes), attention_width=attention_width(model))
    shape = replace(shape, is_multimodal=shape.is_multimodal or has_encoder(model))
    if not shape.experts_per_token:
        return shape
    try:
        inventory = sources_of(model).inventory
    except KvplanError:
        return shape
    if inventory is None:
        return shape
    hidden, ungated = routed_width(inventory)
    dense = dense_width(inventory, shape.hidden_size)
    return replace(shape, mlp_width=dense, expert_hidden=hidden, ungated=ungated)


def routed_width(inventory: Inventory) -> tuple[int, bool]:
    """(what routed experts give back, whether none of them has a gate); (0, False) where there are none."""
    experts = [t for block in inventory.layers for t in block.tensors if t.role is Role.EXPERT]
    out = (t.rows for t in experts if t.name.endswith("down_proj"))
    hidden = max((_product(rows) for rows in out), default=0)
    return hidden, bool(experts) and not any("gate" in t.name.rpartition(".experts.")[2] for t in experts)


def attention_width(model: Model) -> int:
    """Elements of q and k of one token in the widest layer; 0 where no layer has K and V of its own."""
    widths = [0]
    for run in model.runs:
        for part in run.layer.parts:
            heads, dim = getattr(part, "num_kv_heads", None), getattr(part, "head_dim", None)
            if isinstance(heads, int) and isinstance(dim, int):
                widths.append((heads + model.num_attention_heads) * dim)
    return max(widths)


def dense_width(inventory: Inventory, hidden: int) -> int:
    """The widest perceptron outside the routed experts, between the hidden states: 0 where there is none."""
    widest = 0
    for block in inventory.layers:
        for tensor in block.tensors:
            if tensor.role is not Role.LINEAR or part_of(tensor.name) not in (Part.DENSE, Part.SHARED):
                continue
            rows, columns = (_product(dims) for dims in (tensor.rows, tensor.columns))
            if columns == hidden:
                widest = max(widest, rows // 2 if "gate_up" in tensor.name else rows)
    return widest


def _product(dims: tuple[object, ...]) -> int:
    found = 1
    for dim in dims:
        found *= int(getattr(dim, "value", 1))
    return found


def forward_bytes(shape: Shape, *, tokens: int, tp: int, copies_milli: int) -> int:
    """The peak of one forward pass on a rank of ``tp``, bytes. copies_milli: hidden states in thousandths."""
    hidden = tokens * shape.hidden_size * shape.element_bytes
    a_width = 3 * tokens * shape.element_bytes
    perceptron = a_width * ceil_div(shape.mlp_width, tp) + hidden * copies_milli // 1000
    attention = a_width * ceil_div(shape.attention_width, tp) + hidden * max(0, copies_milli - 1000) // 1000
    return max(perceptron, attention)
