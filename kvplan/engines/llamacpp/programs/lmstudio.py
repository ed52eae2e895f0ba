"""The options with which LM Studio loads a GGUF model into llama.cpp; its own source is not public.

Followed: lmstudio-ai/lms src/subcommands/load.ts (``lms load``: --context-length, --parallel, --gpu) and the
load settings in lmstudio-ai/lmstudio-js packages/lms-kv-config/src/schema.ts.
"""

from __future__ import annotations

from kvplan.engines.doors import Begun, Door, Wish
from kvplan.engines.llamacpp.memory.image_encoder import sees
from kvplan.engines.llamacpp.programs.loaded import all_of_it
from kvplan.engines.llamacpp.programs.stored import in_build, of_file
from kvplan.engines.traits import usual_build
from kvplan.model import Model
from kvplan.settings import Settings

# schema.ts (four predictions at once in one cache that they share); the context and flash attention:
# lmstudio-ai/docs 1_developer/2_rest/list.md.
CONTEXT, PARALLEL, PHYSICAL_BATCH = 4_096, 4, 512


def begin(model: Model, settings: Settings, wish: Wish) -> Begun:
    """The options of llama.cpp, and all GPUs."""
    usual = min(CONTEXT, model.max_model_len or CONTEXT)
    notes = []
    options: dict[str, object] = {
        "kv_unified": True,
        "ubatch_size": wish.batch or PHYSICAL_BATCH,
        "fit": True,  # what its guardrails keep free is not public
    }
    if sees(model):
        options["mmproj"] = True  # a model's folder has its vision adapter
    layers = wish.gpu_layers
    if wish.gpu_part == 1:
        layers = model.num_layers + 1
    elif wish.gpu_part:
        layers = round(wish.gpu_part * model.num_layers)
        notes.append(
            f"--gpu {float(wish.gpu_part):g} is read as {layers} of {model.num_layers} layers: how LM Studio"
            " rounds is not public"
        )
    if layers is not None:
        options["n_gpu_layers"] = layers
    if wish.flash_attn is False:
        options["flash_attn"] = False
    return Begun(
        wish.context or usual, usual, wish.parallel or PARALLEL, options, settings.pipeline_parallel_size,
        tuple(notes),
    )  # fmt: skip


def build_of(model: Model) -> str:
    """The file that it takes by itself: of gpt-oss the one of lmstudio-community."""
    return usual_build("llamacpp", model) or ""


DOOR = Door(
    "lmstudio",
    "LM Studio",
    "llamacpp",
    (),
    build_of,
    begin,
    "--context-length ",
    "--parallel ",
    PARALLEL,
    (
        "LM Studio's source is not public: llama.cpp's rules with its documented defaults; its guardrails are"
        " not counted",
    ),
    loaded=all_of_it,
    stored=of_file,
    in_build=in_build,
)
