"""The draft of a server that is started with speculative decoding, as far as kvplan can read it."""

from __future__ import annotations

from kvplan.architectures.config.drafts import method_named
from kvplan.errors import KvplanError
from kvplan.files.launch.launch import Launch
from kvplan.files.sources import open_model
from kvplan.plans.serve import flag_for
from kvplan.record import replace

_SETTING = "speculative"


def with_known_draft(launch: Launch) -> Launch:
    """The server without the model of a draft that cannot be read: the draft's method is kept, whose figures
    are then an estimate, and a note says so."""
    name = flag_for(launch.engine, _SETTING)
    entry = launch.serve.get(name) if name is not None else None
    draft = entry.get("model") if isinstance(entry, dict) else None
    if name is None or not isinstance(entry, dict) or not isinstance(draft, str) or _is_readable(draft):
        return launch
    kept = {"method": method_named(draft), **{key: one for key, one in entry.items() if key != "model"}}
    note = (
        f"the draft {draft} is not a model that kvplan knows: its weights and cache are an estimate from"
        f" its method, {kept['method']}; model: in {name} takes its config.json or hf:{draft}"
    )
    return replace(launch, serve={**launch.serve, name: kept}, notes=(*launch.notes, note))


def _is_readable(draft: str) -> bool:
    try:
        open_model(draft)
    except KvplanError:
        return False
    return True
