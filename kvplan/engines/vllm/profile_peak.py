"""The activation peak of vLLM's profile run: its sampler, its forward pass, workspaces.

vllm-project/vllm v1/worker/gpu_model_runner.py, and v1/worker/gpu/model_runner.py of the V2 runner:
profile_run and _dummy_sampler_run.
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import about
from kvplan.engines.vllm.expert_run import expert_bytes
from kvplan.engines.vllm.forward import forward_bytes
from kvplan.engines.vllm.load import Coefficients, Load
from kvplan.engines.vllm.sampler import sampled, sampler_peak
from kvplan.results import BudgetLine


def activation_peak(shape: Shape, load: Load, known: Coefficients) -> int:
    """max(sampler, draft's sampler, forward pass) with the experts' workspace and the encoder's outputs,
    bytes; the compiled code at hand.

    forward: gate, up and their product, or what attention has (kvplan.engines.vllm.forward).
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
    """What of it lies beside the model's own pass: the layers' states that the draft will read, three of them
    under EAGLE-3 (eagle3_utils.py, auxiliary layers). Before anything is sampled they are free again: the
    allocations of an EAGLE-3 start on an H100 show none of them at the sampler's peak."""
    copies = min(1000 * load.states_read, known.draft_copies_milli)
    return _hidden_of_draft(shape, load) * (_PREDICTION_COPIES if load.predicts else copies) // 1000


_BESIDE_LOGITS = 4
"""What the draft's own pass holds beside its logits is not read, and taken for up to a fourth of them."""
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
