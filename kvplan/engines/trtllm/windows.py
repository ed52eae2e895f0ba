"""Windows of TensorRT-LLM: max_attention_window, and what is kept of a request (``kv_retention``)."""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.options import RETENTION
from kvplan.engines.retention import accuracy, retention_of
from kvplan.engines.trtllm.options import TrtllmOptions
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model


def windows_of(options: TrtllmOptions) -> tuple[int, ...]:
    retention = retention_of(options)
    if retention is not None:
        return (retention.window,)
    return tuple(int(entry) for entry in options.max_attention_window)


def check_retention(model: Model, options: TrtllmOptions) -> None:
    """Raises KvplanError(unsupported-setting) for tokens that this backend does not keep or drop.

    NVIDIA/TensorRT-LLM#14275: since attention reads paged blocks, sink_token_length has been ignored by the
    kernels of the PyTorch backend, while the cache manager went on reserving blocks for sinks. MLA has one
    window of max_seq_len (resource_manager.py, a cache of type SELFKONLY).
    """
    retention = retention_of(options)
    if retention is None:
        return
    if options.max_attention_window:
        raise KvplanError(
            "bad-setting", f"max_attention_window and {RETENTION.name} both say the window", help="give one"
        )
    if retention.sinks:
        raise KvplanError(
            "unsupported-setting",
            "TensorRT-LLM's PyTorch backend keeps no first tokens: its attention ignores sink_token_length"
            " (NVIDIA/TensorRT-LLM#14275)",
            help=f"--kv-retention window:{retention.kept}",
        )
    if has_kind(model, Kind.MLA):
        raise KvplanError(
            "unsupported-setting",
            "TensorRT-LLM keeps every token of MLA layers, whatever max_attention_window says",
            help="leave kv_retention out",
        )


def warnings_of(model: Model, options: TrtllmOptions) -> list[str]:
    """Notes on windows for the reader."""
    windows = [
        (part.window or 0) if part.kind is Kind.SLIDING else 0
        for layer in model.layers()
        for part in layer.parts
        if part.kind in (Kind.FULL, Kind.SLIDING, Kind.CHUNKED)
    ]
    found = []
    retention = retention_of(options)
    if retention is not None and not any(windows):
        found.append(
            f"blocks behind the window of {retention.window:,} tokens are freed; attention is told of a"
            " window only by classes that have one (NVIDIA/TensorRT-LLM#11244): compare the answers"
        )
    if retention is not None:
        found.append(accuracy(retention))
    if any(windows) and not windows_of(options):
        longest = model.max_model_len or 0
        pattern = ",".join(str(size or longest) for size in windows[: _period(windows)])
        found.append(f"every layer keeps all tokens unless --max-attention-window says otherwise: {pattern}")
    if has_kind(model, Kind.CHUNKED):
        found.append("TensorRT-LLM keeps all tokens of chunked layers")
    return found


def _period(windows: list[int]) -> int:
    """The length of the shortest pattern that repeats over all layers."""
    for period in range(1, len(windows)):
        if all(size == windows[index % period] for index, size in enumerate(windows)):
            return period
    return len(windows)
