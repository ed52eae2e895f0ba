"""Ask the installed SGLang how it sizes its pools: run as a program, cases in, answers out (JSON lines).

    python tests/engines/sglang_ask.py h100 < CASES

Each case is one line: {"name", "gpu", "config", "quant", "args": fields of ServerArgs, "rest_memory": bytes
left for the cache}. All GPUs of a call have one compute capability. A case runs in a fork of a process on the
stage of `sglang_stage`, so that nothing of one case is left for the next. SGLang's own code resolves the
arguments, reads the config and sizes the pools; no formula is written again. The answer has the figures that
kvplan gives, or "refused" with SGLang's own words and the step in which it said so.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import tempfile
import types
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
OPTIONAL = ("custom code", "does not recognize this architecture")
"""What transformers says of a config whose class is in its repository."""


def loaded(config: Any) -> Any:
    """What pool sizing asks of the loaded model: its class's own window, and its quantisation."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader.utils import get_model_architecture

    found, _ = get_model_architecture(config)
    model = types.SimpleNamespace(modules=list, forward=lambda: None)  # no layer has been built
    ask = getattr(found, "get_attention_sliding_window_size", None)
    if ask is not None:
        window = _window(ask, found, config)
        model.get_attention_sliding_window_size = lambda: window
    if config.quantization is not None:
        loader = importlib.import_module("sglang.srt.model_loader.loader")
        ask, given = loader._get_quantization_config, (config, LoadConfig())
        model.quant_config = ask(*given, *[{}] * (ask.__code__.co_argcount - 2 - len(ask.__defaults__ or ())))
    return model


def _window(ask: Any, found: Any, config: Any) -> Any:
    """The method is asked of something that has the config in the places where classes look for it."""
    inside = [
        one
        for one in vars(sys.modules[found.__module__]).values()
        if isinstance(one, type) and one is not found and hasattr(one, ask.__name__)
    ]
    for own in (config.hf_config, config.hf_text_config):
        shell = types.SimpleNamespace(config=own, text_config=config.hf_text_config)
        shell.model = shell.language_model = shell
        if inside:  # a wrapper asks its language model
            text = types.SimpleNamespace(config=config.hf_text_config)
            method = getattr(inside[0], ask.__name__)
            setattr(text, ask.__name__, lambda method=method, text=text: method(text))
            shell.language_model = text
        with suppress(AttributeError, TypeError):
            return ask(shell)
    return None


def _generic(folder: Path) -> None:
    """A config class of the file's own keys, where the class lies in the model's repository."""
    from transformers import AutoConfig, PretrainedConfig

    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    AutoConfig.register(kind, type("Generic", (PretrainedConfig,), {"model_type": kind}), exist_ok=True)


def _arguments(folder: Path, args: dict[str, Any]) -> Any:
    from sglang.srt.server_args import ServerArgs

    try:
        return _resolved(ServerArgs, folder, args)
    except ValueError as error:
        if not any(words in str(error) for words in OPTIONAL):
            raise
        _generic(folder)
        return _resolved(ServerArgs, folder, args)


def _resolved(kind: Any, folder: Path, args: dict[str, Any]) -> Any:
    made = kind(model_path=str(folder), **args)
    if hasattr(made, "resolve_once"):  # before 0.5.19 all of it is done in __post_init__
        made.resolve_once()
    return made


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """SGLang's figures for one case, or its refusal."""
    step = ["arguments"]
    try:
        with tempfile.TemporaryDirectory(prefix="case-") as name:
            # The folder's name is the model's path, which one of SGLang's rules looks at.
            folder = Path(name) / case["name"].replace("/", "__")
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
            if case.get("quant"):
                (folder / "hf_quant_config.json").write_text(json.dumps(case["quant"]), encoding="utf-8")
            if case.get("draft"):
                (folder / "draft").mkdir()
                (folder / "draft" / "config.json").write_text(json.dumps(case["draft"]), encoding="utf-8")
                case["args"]["speculative_draft_model_path"] = str(folder / "draft")
            args = _arguments(folder, case["args"])
            return dict(importlib.import_module(_planner()).sized(case, args, loaded, step))
    except ZeroDivisionError:
        return {"refused": "pools: no memory is left for the cache"}  # its message divides by what is 0 here
    except BaseException as error:
        return {"refused": f"{step[0]}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"}


def _planner() -> str:
    """The module beside this one that asks the release's planner."""
    own = find_spec("sglang.srt.mem_cache.kv_cache_configurator")  # 0.5.16 and later
    return "sglang_runner" if own is None else "sglang_configurator"


def _forked(case: dict[str, Any]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(answer(case)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said or json.dumps({"refused": "the process died"})


def main() -> int:
    """Import once, fork a case."""
    import gc

    os.environ.update(QUIET)
    set_up = importlib.import_module("sglang_stage")
    stage = set_up.Stage(sys.argv[1])
    logging.disable(logging.WARNING)
    if find_spec("sglang.srt.mem_cache.kv_cache_configurator") is not None:
        importlib.import_module("sglang.srt.mem_cache.kv_cache_configurator")
    import sglang.srt.model_executor.model_runner
    import sglang.srt.server_args  # noqa: F401
    from sglang.srt.models.registry import ModelRegistry

    ModelRegistry.resolve_model_cls(["LlamaForCausalLM"])
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        case = json.loads(line)
        card = set_up.CARDS[case["gpu"]]
        if card.capability != stage.card.capability:
            raise SystemExit(f"{case['gpu']} has another compute capability than {sys.argv[1]}")
        stage.card = card
        sys.__stdout__.write(_forked(case) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
