"""The log of what happened to a model, as gensim keeps it in `lifecycle_events`."""

import copy
import logging
import platform
import sys
from datetime import datetime
from typing import Any

GENSIM_VERSION = "4.4.0"
"""The version of gensim whose interface this is."""

_log = logging.getLogger("gensim.utils")


def add_event(model: Any, name: str, log_level: int | bool, **event: Any) -> None:
    """Logs an event, and appends it to `model.lifecycle_events` unless that is None."""
    facts = copy.deepcopy(event) | {
        "datetime": datetime.now().isoformat(),
        "gensim": GENSIM_VERSION,
        "python": sys.version,
        "platform": platform.platform(),
        "event": name,
    }
    if not hasattr(model, "lifecycle_events"):
        model.lifecycle_events = []
    if log_level:
        kind = type(model).__name__
        _log.log(int(log_level), "%s lifecycle event %s", kind, facts)
    if model.lifecycle_events is not None:
        model.lifecycle_events.append(facts)
