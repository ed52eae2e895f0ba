"""The weights of what speculates: a draft model, the model's own prediction layers, or a head nobody named.

A draft model (vLLM's ``draft_model``, SGLang's STANDALONE) is loaded whole, embedding and output head too, on
as many tensor-parallel ranks as its target (vllm-project/vllm 0.32 vllm/config/speculative.py
_verify_and_get_draft_tp, vllm/v1/spec_decode/draft_model.py). An EAGLE head borrows the target's embedding
unless its checkpoint has one of its own. What is not known is an interval, never nothing: from 0 to a bound
that is made of the target's largest layer.
"""

from __future__ import annotations

from kvplan.architectures.heads import ASSISTED, DFLASH, assistant_tensors, head_tensors
from kvplan.architectures.weights import sources_of
from kvplan.dtypes import Packing
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import record
from kvplan.results import BudgetLine, exact
from kvplan.settings import HEAD_METHODS, LOOKUP_METHODS, Serving
from kvplan.units import ceil_div
from kvplan.weights.facts import WeightFacts, WeightSources, weights_per_rank
from kvplan.weights.inventory import Role
from kvplan.weights.ranks import Parallel, block_bytes, elements_on_rank, tensor_bytes

DSPARK = "dspark"
NAME, OWN = "draft model", "draft layers (MTP)"
_DRAFT_VOCABULARY = 32_000
"""Tokens that published EAGLE-3 heads choose from."""
_DENSE = 13
"""Squares of a dense decoder's layer: Llama 3.1 8B has 13.0 (attention 2.5, a perceptron of 3.5 × hidden)."""
_UNEVEN = 4
"""Without a list of tensors: a quarter of the layers, at least, are as large as the largest."""


@record()
class Guess:
    """The weights that a method loads, counted in the target's parts.

    layers: as large as the largest, or those of a dense decoder. squares: hidden × hidden matrices.
    rows: of a table as wide as the hidden state, None for the whole vocabulary.
    each: once for every proposed token.
    """

    layers: int
    squares: int
    rows: int | None
    each: bool = False
    dense: bool = False


_GUESSES = {
    "dflash": Guess(5, 5, 0, dense=True),
    "eagle": Guess(1, 2, 0, dense=True),
    "eagle3": Guess(1, 5, _DRAFT_VOCABULARY, dense=True),
    "medusa": Guess(0, 1, None, each=True),
    "mlp_speculator": Guess(0, 2, None, each=True),
}
_MODULE = Guess(1, 2, 0)
_ASSISTANT, _SMALL_ASSISTANT, _NARROW = 470_000_000, 80_000_000, 2560


@record()
class Sizes:
    """Bytes on one rank: the target's largest layer, one of a dense decoder, a hidden × hidden matrix, a row
    of the vocabulary's table (of so many rows), and all of the target. how: the largest layer is known.
    """

    layer: int
    dense: int
    square: int
    row: int
    vocabulary: int
    whole: int
    how: str

    def likely(self, guess: Guess) -> int:
        rows = self.vocabulary if guess.rows is None else min(guess.rows, self.vocabulary)
        layer = self.dense if guess.dense else self.layer
        return guess.layers * layer + guess.squares * self.square + rows * self.row

    def highest(self, guess: Guess) -> int:
        """The layers, eight squares for what joins them, an embedding and an output head."""
        layer = max(self.layer, self.dense)
        return guess.layers * layer + 8 * self.square + 2 * self.vocabulary * self.row


def draft_lines(
    model: Model,
    settings: Serving,
    facts: WeightFacts,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
    *,
    own: bool,
) -> tuple[tuple[BudgetLine, ...], tuple[str, ...]]:
    """Weights that speculation adds to the last stage, and the notes on them.

    own: the method runs the model's own prediction layers, where no draft is named.
    Raises KvplanError(no-weights | cannot-shard) for a draft that was named.
    """
    method = settings.speculative_method
    if method is None or not settings.num_speculative_tokens or method in LOOKUP_METHODS:
        return (), ()
    if settings.speculative_model is not None:
        line = draft_line(model, settings, parallel, dtype)
        return ((line,) if line is not None else ()), ()
    if sources.stated_bytes is not None:
        what = "prediction layers" if own else f"draft ({method})"
        return (), (f"the {what} must be in the weights that were stated",)
    if own and model.architecture in ASSISTED:
        return (_assistant(model, parallel, dtype),), (
            f"the assistant of {model.id} is a guess, and the engine has to be told which it is: name it with"
            " --speculative-model",
        )
    if own:
        amount = own_bytes(facts, sources, parallel, dtype)
        if amount is not None:
            return (exact(OWN, amount, facts.source),), ()
        sizes = sizes_of(model, facts, sources, parallel, dtype)
        line = _guessed(OWN, _MODULE, len(model.draft_layers), sizes)
        return (line,), (
            f"the weights of {model.id}'s prediction layers are not known: mind their interval, or give the"
            " checkpoint's directory",
        )
    if method == DSPARK and (found := _carried(sources, parallel, dtype)) is not None:
        return (found,), (f"{method}: how many layers the checkpoint's own draft has is not known: 2 or 3",)
    sizes = sizes_of(model, facts, sources, parallel, dtype)
    guess = _GUESSES.get(method)
    if guess is None:
        how = f"{method} without a name: anything up to the target's own weights"
        line = BudgetLine(NAME, min(sizes.layer, sizes.whole), 0, sizes.whole, how)
    else:
        line = _guessed(NAME, guess, settings.num_speculative_tokens if guess.each else 1, sizes)
    return (line,), (f"{method}: the weights of the draft are a guess: name it with --speculative-model",)


def _carried(sources: WeightSources, parallel: Parallel, dtype: Packing) -> BudgetLine | None:
    """The DSpark draft that a checkpoint of DeepSeek-V4 carries: layers like its prediction layer, and while
    they are loaded an embedding and an output head of their own; None where that layer is not known.

    vllm-project/vllm 0.32 vllm/models/deepseek_v4/nvidia/dspark.py: n_mtp_layers, else 3. The one start that
    was read prints 4.30 GiB over two GH200, which is two layers and both tables.
    """
    inventory = sources.inventory
    if inventory is None or len(inventory.draft) != 1:
        return None
    layer = sum(block_bytes(block.tensors, parallel, dtype) for block in inventory.draft)
    tables = 2 * _table(sources, parallel, dtype)
    how = "the checkpoint's own: two of its prediction layers and two tables; or three, or no tables"
    return BudgetLine(NAME, 2 * layer + tables, 2 * layer, 3 * layer + tables, how)


def own_bytes(facts: WeightFacts, sources: WeightSources, parallel: Parallel, dtype: Packing) -> int | None:
    """The model's own prediction layers on one rank; None where nothing says how large they are.

    Behind a pipeline the last stage has an embedding for them as well (vllm/v1/spec_decode/
    llm_base_proposer.py, _maybe_share_embeddings).
    """
    inventory = sources.inventory
    if inventory is not None and inventory.draft:
        own = sum(block_bytes(block.tensors, parallel, dtype) for block in inventory.draft)
        return own + (_table(sources, parallel, dtype) if parallel.pipeline_parallel_size > 1 else 0)
    if facts.draft_bytes:
        return ceil_div(facts.draft_bytes, parallel.tensor_parallel_size)
    return None


def _table(sources: WeightSources, parallel: Parallel, dtype: Packing) -> int:
    ends = sources.inventory.ends if sources.inventory is not None else ()
    found = (entry.tensor for entry in ends if entry.tensor.role is Role.EMBEDDING)
    return sum(tensor_bytes(tensor, parallel, dtype) for tensor in list(found)[:1])


def sizes_of(
    model: Model, facts: WeightFacts, sources: WeightSources, parallel: Parallel, dtype: Packing
) -> Sizes:
    """The target's parts: of its tensors, unquantised, or of its mean layer."""
    tp, inventory = parallel.tensor_parallel_size, sources.inventory
    row = ceil_div(model.hidden_size * dtype.bytes, tp)
    square = model.hidden_size * model.hidden_size * dtype.bytes
    if inventory is not None and inventory.layers:
        kinds = {block.tensors for block in inventory.layers}
        layer = max(sum(elements_on_rank(one, parallel) for one in kind) for kind in kinds) * dtype.bytes
        how = "the largest layer"
    else:
        layers = ceil_div(max(model.num_layers, 1), parallel.pipeline_parallel_size)
        layer = _UNEVEN * ceil_div(facts.bytes_per_gpu, layers)
        how = f"{_UNEVEN} mean layers"
    return Sizes(
        layer, ceil_div(_DENSE * square, tp), square, row, model.vocab_size, facts.bytes_per_gpu, how
    )


def _assistant(model: Model, parallel: Parallel, dtype: Packing) -> BudgetLine:
    """Gemma 4's: published ones have 0.47 billion parameters, and 0.08 billion beside targets as narrow as
    E4B's."""
    parameters = _ASSISTANT if model.hidden_size > _NARROW else _SMALL_ASSISTANT
    likely = ceil_div(dtype.bytes * parameters, parallel.tensor_parallel_size)
    return BudgetLine(NAME, likely, 0, 2 * likely, "not known: as large as published assistants")


def _guessed(name: str, guess: Guess, count: int, sizes: Sizes) -> BudgetLine:
    likely, highest = count * sizes.likely(guess), count * sizes.highest(guess)
    if guess.dense:
        parts = f"{count * guess.layers} of a dense decoder's layers as wide as the target"
    else:
        parts = f"{count} × {sizes.how} of the target"
    how = f"not known: {parts}, and what joins them; at most tables of their own"
    return BudgetLine(name, likely, 0, highest, how)


def draft_line(model: Model, settings: Serving, parallel: Parallel, dtype: Packing) -> BudgetLine | None:
    """The draft's weights on one rank; None without a draft.

    Raises KvplanError(no-weights | cannot-shard).
    """
    draft, method = settings.speculative_model, settings.speculative_method
    if draft is None or method is None:
        return None
    alone = Parallel(
        tensor_parallel_size=parallel.tensor_parallel_size,
        compute_capability=parallel.compute_capability,
        enable_expert_parallel=parallel.enable_expert_parallel,
    )
    if method == "mtp" and model.architecture in ASSISTED:
        amount = sum(tensor_bytes(tensor, alone, dtype) for tensor in assistant_tensors(draft))
        return exact(NAME, amount, f"{draft.id}: an assistant")
    if method not in HEAD_METHODS and not (method == "dflash" and draft.architecture in DFLASH):
        facts = weights_per_rank(sources_of(draft), alone, dtype)
        return exact(NAME, facts.bytes_per_gpu, f"{draft.id}: {facts.source}")
    own, table = head_tensors(draft, method, model)
    amount, shared = block_bytes(own, alone, dtype), tensor_bytes(table, alone, dtype)
    stored = _stores_embedding(draft)
    if stored is None:
        return BudgetLine(
            NAME, amount, amount, amount + shared, f"{draft.id}: the embedding is the target's, or its own"
        )
    return exact(NAME, amount + (shared if stored else 0), f"{draft.id}: {method} head")


def _stores_embedding(draft: Model) -> bool | None:
    """Whether the checkpoint has an embedding of its own; None where its tensors are not known."""
    try:
        checkpoint = sources_of(draft).checkpoint
    except KvplanError:
        return None
    if checkpoint is None:
        return None
    return any("embed_tokens" in tensor.name for tensor in checkpoint.tensors)
