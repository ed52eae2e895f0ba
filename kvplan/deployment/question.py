"""A question: what somebody wants to run, as they said it."""

from __future__ import annotations

from kvplan.engines.base import Choice
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import Settings


@record()
class Question:
    """Does this hold so many requests of such a length?

    `resolve` turns it into the servers that would be started. ``settings.gpus`` GPUs run as many replicas as
    they make up, and ``settings.requests`` is the load of all of them.
    """

    model: Model
    choice: Choice
    """the engine and its release; ``choice.pool``: whether the likely pool has to hold the load, or the safe
    one"""
    settings: Settings
    """as they were given: flags of one server, and the shape of the requests"""
    lengths: tuple[int, ...] = ()
    """other lengths that the same server is asked for: it is started for the longest"""
    written: bool = False
    """the server's start is written down whole (a plan, a command, a log): what it leaves out is the engine's
    default, and no length is chosen for it"""
