"""Ask the installed vLLM how it lays out a cache: run as a program, cases in, answers out (JSON lines).

Each case is one line: {"gpu", "config", "memory", "args": engine arguments, "usage"}. A case runs in a fork
of a process on the stage of `vllm_stage`, so that nothing of one case is left for the next. The answer has
the figures that kvplan gives, or "refused" with vLLM's own message.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


class Ranks:
    """A process group of which this process is one rank; collectives give back what they were given."""

    def __init__(self, size: int = 1, rank: int = 0) -> None:
        import torch

        self.world_size, self.rank, self.rank_in_group, self.local_rank = size, rank, rank, rank
        self.ranks = list(range(size))
        self.device, self.device_index = torch.device("cpu"), 0
        group = types.SimpleNamespace(
            size=lambda: size, rank=lambda: rank, world_size=size, rank_in_group=rank
        )
        self.device_group = self.cpu_group = group
        self.device_communicator = self.mq_broadcaster = None
        self.use_custom_op_call = self.use_cpu_custom_send_recv = False
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.first_rank, self.last_rank = 0, size - 1
        self.next_rank, self.prev_rank = (rank + 1) % size, (rank - 1) % size
        self.unique_name = "stage"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda value=None, *args, **kwargs: value


def _groups(tp: int, pp: int, stage: int, dcp: int, pcp: int = 1) -> None:
    import torch.distributed as dist
    import vllm.distributed.parallel_state as state

    state._WORLD = Ranks(tp * pp * pcp, stage * tp * pcp)
    state._TP, state._PP = Ranks(tp), Ranks(pp, stage)
    state._DCP, state._EP = Ranks(dcp), Ranks(tp)
    for name in ("_DP", "_PCP", "_ETP", "_EPLB", "_INNER_DP_WORLD", "_ENGRAM_DP"):
        if hasattr(state, name):
            setattr(state, name, Ranks({"_PCP": pcp, "_ETP": tp}.get(name, 1)))
    state.in_the_same_node_as = lambda group, source_rank=0: [True] * group.world_size
    if not dist.is_initialized():
        meeting = Path(tempfile.mkdtemp(prefix="stage-")) / "meeting"
        dist.init_process_group("gloo", init_method=f"file://{meeting}", world_size=1, rank=0)


def _meta_device() -> Any:
    """Tensors that ask for a CUDA device go to the meta device."""
    import torch
    from torch.overrides import TorchFunctionMode

    def moved(value: Any) -> Any:
        if type(value) is int or (isinstance(value, str) and value.startswith("cuda")):
            return "meta"
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("meta")
        return value

    class Redirect(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if "device" in named:
                named["device"] = moved(named["device"])
            if func is torch.Tensor.cuda:
                return args[0].to("meta")
            if func is torch.Tensor.to:
                args = tuple(value if type(value) is int else moved(value) for value in args)
            return func(*args, **named)

    return Redirect()


def _stage_specs(config: Any) -> tuple[dict[str, Any], list[str], list[int]]:
    """One pipeline stage: build the model (and the drafter), collect the specs of its layers.

    Also [parameters, their bytes] of the model on one rank of the stage.
    """
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import get_pp_group
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm.v1.worker.worker_base import WorkerBase

    try:
        from vllm.model_executor.model_loader.utils import initialize_model
    except ImportError:  # 0.8
        from vllm.model_executor.model_loader.loader import _initialize_model as initialize_model
    try:
        from vllm.utils.torch_utils import set_default_torch_dtype
    except ImportError:  # before 0.11.1
        from vllm.model_executor.model_loader.utils import set_default_torch_dtype

    with suppress(Exception):
        from vllm.v1.worker.workspace import init_workspace_manager

        init_workspace_manager(torch.device("meta"))
    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config, check_compile=False):
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"), _meta_device():
            kept = [initialize_model(vllm_config=config)]
            drafter = config.speculative_config if get_pp_group().is_last_rank else None
            if drafter is not None and drafter.method == "draft_model":
                kept.append(_draft_model(config))
            elif drafter is not None and drafter.draft_model_config is not config.model_config:
                # A lookup (ngram) has the target's own config, and no layers.
                kept.append(initialize_model(vllm_config=config, model_config=drafter.draft_model_config))
        if hasattr(type(current_platform), "update_block_size_for_backend"):  # 0.18 and later
            current_platform.update_block_size_for_backend(config)
        runner = importlib.import_module("vllm_planners").Runner(config, GPUModelRunner)
        specs = GPUModelRunner.get_kv_cache_spec(runner)
        layouts = []
        if hasattr(WorkerBase, "get_supported_kv_cache_layouts"):  # 0.29 and later
            layouts = WorkerBase.get_supported_kv_cache_layouts(types.SimpleNamespace(vllm_config=config))
    own = list(kept[0].parameters())
    sizes = [sum(one.numel() for one in own), sum(one.numel() * one.element_size() for one in own)]
    return specs, layouts, sizes


def _draft_model(config: Any) -> Any:
    """The draft as DraftModelProposer loads it: its own config, and a prefix that tells its layers apart."""
    from vllm.config import set_current_vllm_config
    from vllm.config.utils import replace
    from vllm.model_executor.model_loader.utils import initialize_model

    drafter = config.speculative_config
    own = replace(
        config,
        quant_config=None,
        parallel_config=replace(drafter.draft_parallel_config, rank=config.parallel_config.rank),
        model_config=drafter.draft_model_config,
    )
    with set_current_vllm_config(own, check_compile=False):
        return initialize_model(vllm_config=own, prefix="draft_model")


def _adapter_bytes(config: Any) -> int:
    """The buffers that vLLM's LoRA manager makes on one rank, before any adapter is loaded."""
    import torch
    import vllm.lora.model_manager as manager
    from vllm.config import set_current_vllm_config
    from vllm.lora.layers import fused_moe
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    class Idle:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: None

    def without_kernels(self: Any, base_layer: Any) -> None:
        """FusedMoEWithLoRA.__init__ less its kernels, which are made as weights are loaded."""
        torch.nn.Module.__init__(self)
        self.base_layer, self.moe_config = base_layer, base_layer.moe_config
        self._shared_experts = base_layer._shared_experts
        self.tp_size = self.moe_config.moe_parallel_config.tp_size
        self.tp_rank, self.device = 0, torch.device("meta")
        self._w13_slices = 2 if self.moe_config.is_act_and_mul else 1
        self.enable_moe_shared_loras = False
        self.n_slices = self.local_num_experts * (self._w13_slices + 1)

    manager.get_punica_wrapper = lambda *args, **kwargs: Idle()
    fused_moe.FusedMoEWithLoRA.__init__ = without_kernels
    fused_moe.FusedMoEWithLoRA.set_mapping = lambda self, wrapper: None
    config.compilation_config.static_forward_context.clear()
    with (
        set_current_vllm_config(config, check_compile=False),
        set_default_torch_dtype(config.model_config.dtype),
        torch.device("meta"),
        _meta_device(),
    ):
        model = initialize_model(vllm_config=config)
        made = manager.LoRAModelManager(
            model,
            config.scheduler_config.max_num_seqs,
            config.scheduler_config.max_num_batched_tokens,
            config.model_config.get_vocab_size(),
            config.lora_config,
            torch.device("meta"),
            config,
        )
        stored: dict[int, Any] = {}
        for module in made.modules.values():
            kept = [value for name, value in vars(module).items() if not name.startswith("_")]
            while kept:
                value = kept.pop()
                if isinstance(value, (list, tuple)):
                    kept.extend(value)
                elif isinstance(value, torch.Tensor):
                    storage = value.untyped_storage()
                    stored[storage._cdata] = storage
    return sum(int(storage.nbytes()) for storage in stored.values())


def _register(model_type: str, like: str) -> None:
    """A type whose class lies beside its checkpoint: transformers reads its config as another type's, or
    (``like`` plain) keeps every key as it stands."""
    from transformers import AutoConfig, PreTrainedConfig

    base = PreTrainedConfig if like == "plain" else type(AutoConfig.for_model(like))
    AutoConfig.register(model_type, type("Remote", (base,), {"model_type": model_type}), exist_ok=True)


def _prediction_tensors(config: Any) -> dict[str, list[Any]]:
    """The parameters of the target's own prediction layers on one rank: name → [shape, bytes].

    What the proposer makes the target's (embedding, output head) is gone, as in a start.
    """
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    from vllm.v1.spec_decode.step3p5 import Step3p5MTPProposer

    config.compilation_config.static_forward_context.clear()
    drafter = config.speculative_config.draft_model_config
    with (
        set_current_vllm_config(config, check_compile=False),
        set_default_torch_dtype(config.model_config.dtype),
        torch.device("meta"),
        _meta_device(),
    ):
        target = initialize_model(vllm_config=config)
        own = initialize_model(vllm_config=config, model_config=drafter)
        text = target.get_language_model() if hasattr(target, "get_language_model") else target
        kind = Step3p5MTPProposer if "Step3p5MTP" in drafter.architectures else SpecDecodeBaseProposer
        proposer = types.SimpleNamespace(
            model=own, vllm_config=config, use_local_argmax_reduction=False, _share_mtp_indices=False
        )
        kind._maybe_share_embeddings(proposer, text)
        kind._maybe_share_lm_head(proposer, text)
    theirs = {id(tensor) for tensor in target.parameters()}
    return {
        name: [list(tensor.shape), tensor.numel() * tensor.element_size()]
        for name, tensor in own.named_parameters()
        if id(tensor) not in theirs
    }


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """vLLM's own figures for one case."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    folder = Path(tempfile.mkdtemp(prefix="stage-"))
    for name, body in {**case.get("files", {}), "config.json": case["config"]}.items():
        (folder / name).write_text(json.dumps(body))
    if "like" in case:
        _register(case["config"]["model_type"], case["like"])
    args = dict(case.get("args", {}))
    if "draft" in case:
        own = Path(tempfile.mkdtemp(prefix="draft-"))
        (own / "config.json").write_text(json.dumps(case["draft"]))
        args["speculative_config"] = {**args["speculative_config"], "model": str(own)}
    tp, pp = args.get("tensor_parallel_size", 1), args.get("pipeline_parallel_size", 1)
    dcp, pcp = (args.get(f"{kind}_context_parallel_size", 1) for kind in ("decode", "prefill"))
    usage = UsageContext.LLM_CLASS if case.get("usage") == "llm" else UsageContext.OPENAI_API_SERVER
    known = EngineArgs.__dataclass_fields__
    strange = sorted(name for name in args if name not in known)
    if strange:
        return {"refused": f"KeyError: no argument {strange}"}
    if "engram_config" in known and case["config"].get("ple_layer_ids"):
        args.setdefault("engram_config", {"cpu_offload": False})  # pinned memory needs a GPU beside it
    if "swap_space" in known:  # before 0.18; of the machine's memory, not the GPU's
        args.setdefault("swap_space", 0)
    for name, kind in (("kv_transfer_config", "KVTransferConfig"), ("kv_events_config", "KVEventsConfig")):
        if name in args:
            args[name] = getattr(importlib.import_module("vllm.config"), kind)(**args[name])
    engine = EngineArgs(
        model=str(folder),
        skip_tokenizer_init="tokenizer.json" not in case.get("files", {}),
        load_format="dummy",
        enforce_eager=True,
        distributed_executor_backend="mp" if tp * pp * pcp > 1 else None,
        **args,
    )
    stages: list[dict[str, Any]] = []
    adapters: list[int] = []
    layouts: list[str] = []
    configs: list[Any] = []
    weights: list[list[int]] = []
    for stage in range(pp):
        # Every worker has a config of its own, and fits the block size to its own layers.
        _groups(tp, pp, stage, dcp, pcp)
        configs.append(engine.create_engine_config(usage_context=usage))
        configs[-1].parallel_config.rank = stage * tp * pcp
        if case.get("predicts"):
            for name in case.get("restore", ()):  # what the config's class cuts off or leaves out
                for whose in (configs[-1].model_config, configs[-1].speculative_config.draft_model_config):
                    setattr(whose.hf_config, name, case["config"][name])
            return {"tensors": _prediction_tensors(configs[-1])}
        specs, layouts, sizes = _stage_specs(configs[-1])
        stages.append(specs)
        weights.append(sizes)
        if args.get("enable_lora"):
            adapters.append(_adapter_bytes(configs[-1]))
    config = max(configs, key=lambda one: one.cache_config.block_size)
    planner = importlib.import_module("vllm_planners")
    plans, scheduled, tokens, concurrency = planner.planned(config, stages, layouts, case["memory"])
    groups = [
        [
            len(own.layer_names),
            own.kv_cache_spec.block_size,
            own.kv_cache_spec.page_size_bytes,
            -(-shown.kv_cache_spec.max_memory_usage_bytes(config) // shown.kv_cache_spec.page_size_bytes),
        ]
        for own, shown in zip(plans[0].kv_cache_groups, scheduled.kv_cache_groups, strict=True)
    ]
    largest = max((planner.allocated(plan, one_block=bool(layouts)) for plan in plans), default=0)
    return {
        "num_blocks": scheduled.num_blocks,
        "bytes_per_block": largest // scheduled.num_blocks,
        "kv_tokens": tokens,
        "max_concurrency": concurrency,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "block_size": config.cache_config.block_size,
        "groups": groups,
        **({"views": [planner.placed(config, plan) for plan in plans[::tp]]} if case.get("views") else {}),
        **({"adapters": adapters} if adapters else {}),
        **({"weights": weights} if case.get("weights") else {}),
    }


def ask_all(cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every case in a fork of its own, on the stage that this process has set."""
    for case in cases:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                found = answer(case)
            except BaseException as error:  # whatever vLLM raises is its answer
                found = {"refused": f"{type(error).__name__}: {error}"[:600]}
            with os.fdopen(writer, "w") as pipe:
                json.dump(found, pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        yield json.loads(said) if said else {"refused": f"the process ended: {_how(ended)}"}


def _how(code: int) -> str:
    """A status, or the signal (SIGKILL: the machine ran out of memory)."""
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def main() -> int:
    os.environ.update(QUIET)
    sys.path.insert(0, str(Path(__file__).parent))
    cases = [json.loads(line) for line in sys.stdin if line.strip()]
    if not cases:
        return 0
    importlib.import_module("vllm_stage").set_stage(cases[0]["gpu"])
    import vllm.model_executor.models.llama
    import vllm.v1.worker.gpu_model_runner  # noqa: F401 - imported once for all forks

    out = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(out, "w") as stream:
        for found in ask_all(cases):
            stream.write(json.dumps(found) + "\n")
            stream.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
