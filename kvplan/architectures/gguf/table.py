"""llama.cpp's knowledge of an architecture beyond the keys of its GGUF file, as one table.

Source: ggml-org/llama.cpp at 0c1e57098 (the tree in llama-cpp-python 0.3.36): ``load_arch_hparams`` in
src/models/<architecture>.cpp (windows, recurrent layers, shared caches), ``llama_model::create_memory`` in
src/llama-model.cpp (which layers have which cache), src/llama-arch.cpp (names, recurrent and hybrid lists).
"""

from __future__ import annotations

from enum import Enum

from kvplan.record import record


class State(Enum):
    """The state of a recurrent layer: ``n_embd_r`` and ``n_embd_s`` of src/llama-hparams.cpp."""

    MAMBA = "mamba"
    DELTA = "delta"
    KDA = "kda"
    LIGHTNING = "lightning"
    SHORT_CONV = "short_conv"
    RWKV = "rwkv"


class Recurrent(Enum):
    """Which layers are recurrent.

    ALL: every layer. NO_KV_HEADS: those whose entry of attention.head_count_kv is 0. NO_KV_HEADS_NO_FFN:
    those whose feed_forward_length is 0 too (a layer with one has neither cache nor state). INTERVAL: by
    attention.recurrent_layers, else all but every full_attention_interval-th. BESIDE: every layer has both.
    """

    ALL = "all"
    NO_KV_HEADS = "no_kv_heads"
    NO_KV_HEADS_NO_FFN = "no_kv_heads_no_ffn"
    INTERVAL = "interval"
    BESIDE = "beside"


class Indexer(Enum):
    """Which layers have the index keys of sparse attention.

    ALL: every layer. GLM: where attention.indexer.types says so; absent: all, but with a context of 1,048,576
    tokens or more layers 0, 1 and from 2 on every fourth. OPTIONAL_TYPES: where attention.indexer.types says
    so, if attention.indexer.top_k is positive. AFTER_DENSE: from leading_dense_block_count on.
    """

    ALL = "all"
    GLM = "glm"
    OPTIONAL_TYPES = "optional_types"
    AFTER_DENSE = "after_dense"


@record()
class Window:
    """Sliding-window layers. ``pattern`` n: of n layers the last is dense (``dense_first``: the first); 0:
    every attention layer is windowed; None: the file has to list the layers. The file's own
    attention.sliding_window_pattern comes first.
    """

    pattern: int | None
    required: bool = False
    """attention.sliding_window must be there and positive; else 0 or absent means no window"""
    dense_first: bool = False
    default: int | None = None
    """the size where the key is absent"""
    fixed: int | None = None
    """llama.cpp takes this size whatever the key says"""
    only_layers: int | None = None
    """only a model of so many layers is windowed"""
    chunked: bool = False


@record()
class Architecture:
    """The rule of one ``general.architecture``. The plain decoder is ``Architecture()``."""

    window: Window | None = None
    recurrent: Recurrent | None = None
    state: State | None = None
    full_interval: int = 0
    """default of full_attention_interval"""
    mla: bool = False
    """attention.key_length_mla makes K and V one latent of key_length"""
    indexer: Indexer | None = None
    kv_layers: int | None = None
    """so many first layers have a cache, the others share it"""
    shared: bool = False
    """attention.shared_kv_layers says how many share"""
    loops: bool = False
    """num_loops runs of the same layers, each with its own cache"""
    router: bool = False
    """one more layer with a single head"""
    encoder_decoder: bool = False
    """T5"""
    compressed: bool = False
    """DeepSeek-V4"""
    window_off: str | None = None
    """why a window in the file has no effect"""


_LISTED = Window(pattern=None, required=True)
_EVERY_FOURTH = Window(pattern=4)
_HYBRID_DELTA = Architecture(recurrent=Recurrent.INTERVAL, state=State.DELTA, full_interval=4)
_HYBRID_KDA = Architecture(recurrent=Recurrent.NO_KV_HEADS, state=State.KDA, mla=True)
_HYBRID_MAMBA = Architecture(recurrent=Recurrent.NO_KV_HEADS, state=State.MAMBA)
_NEMOTRON_H = Architecture(recurrent=Recurrent.NO_KV_HEADS_NO_FFN, state=State.MAMBA)
_MAMBA = Architecture(recurrent=Recurrent.ALL, state=State.MAMBA)
_RWKV = Architecture(recurrent=Recurrent.ALL, state=State.RWKV)
_MLA = Architecture(mla=True)

SPECIAL: dict[str, Architecture] = {
    # Windows.
    "afmoe": Architecture(window=_EVERY_FOURTH),
    "cohere2": Architecture(window=Window(4, required=True)),
    "cohere2moe": Architecture(window=Window(4, required=True, dense_first=True)),
    "exaone4": Architecture(window=Window(4, default=4096, only_layers=64)),
    "exaone-moe": Architecture(window=Window(4, required=True)),
    "gemma2": Architecture(window=Window(2, required=True, default=4096)),
    "gemma3": Architecture(window=Window(6)),
    "gemma3n": Architecture(window=Window(5, required=True), kv_layers=20),
    "gemma4": Architecture(window=_LISTED, shared=True),
    "gpt-oss": Architecture(window=Window(2, required=True)),
    "granite_swa": Architecture(window=_LISTED),
    "laguna": Architecture(window=Window(4, dense_first=True)),
    "llama4": Architecture(window=Window(4, default=8192, fixed=8192, chunked=True)),
    "maple": Architecture(window=_LISTED),
    "mellum": Architecture(window=_EVERY_FOURTH),
    "mimo2": Architecture(window=_LISTED),
    "muse-glimmer": Architecture(window=Window(4, required=True)),
    "olmo2": Architecture(window=_EVERY_FOURTH),
    "plamo3": Architecture(window=Window(8)),
    "smallthinker": Architecture(window=Window(4, dense_first=True, fixed=4096)),
    "spark2_5": Architecture(window=_LISTED),
    "step35": Architecture(window=_LISTED),
    "phi3": Architecture(
        window_off="llama.cpp leaves phi3's window off (ggml-org/llama.cpp pull request 13676)"
    ),
    # Latent attention, sparse attention.
    "bailingmoe3": _HYBRID_KDA,
    "deepseek2": _MLA,
    "mistral4": _MLA,
    "deepseek32": Architecture(mla=True, indexer=Indexer.ALL),
    "glm-dsa": Architecture(mla=True, indexer=Indexer.GLM),
    "hy_v4": Architecture(mla=True, indexer=Indexer.OPTIONAL_TYPES),
    "minimax-m3": Architecture(indexer=Indexer.AFTER_DENSE),
    "deepseek4": Architecture(compressed=True),
    # Recurrent and hybrid.
    "mamba": _MAMBA,
    "mamba2": _MAMBA,
    "rwkv6": _RWKV,
    "rwkv6qwen2": _RWKV,
    "rwkv7": _RWKV,
    "arwkv7": _RWKV,
    "jamba": _HYBRID_MAMBA,
    "granitehybrid": _HYBRID_MAMBA,
    "plamo2": _HYBRID_MAMBA,
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "falcon-h1": Architecture(recurrent=Recurrent.BESIDE, state=State.MAMBA),
    "lfm2": Architecture(recurrent=Recurrent.NO_KV_HEADS, state=State.SHORT_CONV, window=Window(0)),
    "lfm2moe": Architecture(recurrent=Recurrent.NO_KV_HEADS, state=State.SHORT_CONV),
    "qwen3next": _HYBRID_DELTA,
    "qwen35": _HYBRID_DELTA,
    "qwen35moe": _HYBRID_DELTA,
    "kimi-linear": _HYBRID_KDA,
    "kimi-k3": _HYBRID_KDA,
    "minimax-01": Architecture(recurrent=Recurrent.INTERVAL, state=State.LIGHTNING, full_interval=8),
    # Others.
    "graniteswitch": Architecture(router=True),
    "nanbeige": Architecture(loops=True),
    "t5": Architecture(encoder_decoder=True),
}

_PLAIN_NAMES = """
apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm
command-r dbrx deci deepseek deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 glm4moe
gpt2 gptneox granite granitemoe grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3
internlm2 jais jais2 llama llama-embed maincoder minicpm minicpm3 minimax-m2 mistral3 mpt nemotron olmo
olmoe openelm orion paddleocr pangu-embedded phi2 phimoe plamo plm qwen qwen2 qwen2moe qwen2vl qwen3
qwen3moe qwen3tts qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 talkie xverse
"""
PLAIN = frozenset(_PLAIN_NAMES.split())

# llama_model::create_memory makes no cache for these.
_ENCODER = "it is an encoder, which keeps nothing between steps"
_DIFFUSION = "it is a diffusion model, for which llama.cpp keeps no cache"
NO_CACHE: dict[str, str] = {
    **dict.fromkeys(
        (
            "bert",
            "eurobert",
            "gemma-embedding",
            "jina-bert-v2",
            "jina-bert-v3",
            "modern-bert",
            "neo-bert",
            "nomic-bert",
            "nomic-bert-moe",
            "t5encoder",
            "wavtokenizer-dec",
        ),
        _ENCODER,
    ),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
}

# Known to llama.cpp, with a cache that no family here describes, or not a model that runs by itself.
_DRAFT = "is a draft model, whose cache is that of the model it drafts for: give that one"
REFUSED: dict[str, str] = {
    "clip": "is a vision or audio projector, not a language model: give the model's own GGUF file",
    "eagle3": "is a head that drafts for a model: give that one, and this with --speculative-model",
    "dflash": _DRAFT,
    "gemma4-assistant": _DRAFT,
    "dots3note": "keeps latents of two sizes beside index keys, which no rule here describes",
    "gptj": "has a name in llama.cpp and no graph",
    "glm5-next": "pools its index keys, which no rule here describes",
    "qwen4exp": "keeps the history of its n-gram embeddings, which no rule here describes",
    "pockettts": "is a speech decoder, which no rule here describes",
}


def known_architectures() -> list[str]:
    """Every architecture that is read, sorted."""
    return sorted({*SPECIAL, *PLAIN, *NO_CACHE})
