"""The draft of a server that is started with speculative decoding, as far as kvplan can read it."""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.config.drafts import method_named
from kvplan.errors import KvplanError
from kvplan.files.launch.launch import Launch
from kvplan.files.sources import open_model
from kvplan.plans.flags import SPECULATION, shown
from kvplan.plans.serve import flag_for

_SETTING = "speculative"


def with_known_draft(launch: Launch) -> Launch:
    """The server with keys of its speculation that have no rule named, and without the model of a draft that
    cannot be read: the draft's method is kept, whose figures are then an estimate, and a note says so."""
    name = flag_for(launch.engine, _SETTING)
    entry = launch.serve.get(name) if name is not None else None
    if name is None or not isinstance(entry, dict):
        return launch
    kept = {key: value for key, value in entry.items() if key in SPECULATION}
    unread = tuple(f"{name}.{key} {shown(value)}" for key, value in entry.items() if key not in kept)
    draft, notes = kept.get("model"), ()
    if isinstance(draft, str) and not _is_readable(draft):
        kept = {"method": method_named(draft), **{key: one for key, one in kept.items() if key != "model"}}
        notes = (
            f"the draft {draft} is not a model that kvplan knows: its weights and cache are an estimate from"
            f" its method, {kept['method']}; model: in {name} takes its config.json or hf:{draft}",
        )
    served = {**launch.serve, name: kept}
    return replace(launch, serve=served, unread=(*launch.unread, *unread), notes=(*launch.notes, *notes))


def _is_readable(draft: str) -> bool:
    try:
        open_model(draft)
    except KvplanError:
        return False
    return True
