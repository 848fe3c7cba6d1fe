"""What a worker may say while it serves a request: variants reach its pipe, so every field is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

_STAGES = ("start", "build", "inputs", "check", "measure", "profile")
_VERDICTS = ("ok", "wrong", "error", "skipped", "stale")
_TRIALS = ("rounds", "turns", "start_ns", "device_us", "host_us")  # of one length
Known = Callable[[Any], bool]


def sound(request: str, arguments: Mapping[str, Any], announced: int | None, event: dict[str, Any]) -> bool:
    """Whether an event is one that the harness sends while it serves this request.

    `announced` is the entry whose step was announced last: after it no step is of nobody, and none is ever of
    an entry that the request is not about.
    """
    name = event["event"]
    fields = _DONE.get(request, {}) if name == "done" else _EVENTS.get(name, {})
    if not _conforms(event, fields) or (name == "done" and not _whole_answer(request, arguments, event)):
        return False
    entries = _entries(arguments)
    if name == "step":
        return event["index"] in entries or (event["index"] is None and announced is None)
    if name == "output":
        return event["index"] in entries and event["position"] in _positions(arguments)
    if name == "series":
        return request == "measure" and event["index"] in entries and _trials(event)
    return name != "fresh" or request == "measure"


def most_steps(request: str, arguments: Mapping[str, Any]) -> float:
    """How many steps a request has at most: each has its limit of time, and no check goes on for ever."""
    return math.inf if request == "measure" else 3 + len(_positions(arguments))


def _entries(arguments: Mapping[str, Any]) -> list[int]:
    return arguments.get("indices", [arguments["index"]] if "index" in arguments else [])


def _positions(arguments: Mapping[str, Any]) -> Mapping[int, Any]:
    return arguments.get("draws") or {0: None}


def _conforms(event: Mapping[str, Any], fields: Mapping[str, Known]) -> bool:
    """Whether every declared field that is there is of its kind, and those of an event are all there."""
    needed = event["event"] != "done"
    return all(known(event[name]) if name in event else not needed for name, known in fields.items())


def _whole_answer(request: str, arguments: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether the last event of a request has what it must have, and nothing that is the judge's to say."""
    if request == "prove":
        known = event.get("position", 0) in {0, *_positions(arguments)}
        return known and {"status", "stage", "reason"} <= event.keys() <= {*_DONE["prove"], *_ALWAYS}
    if request == "measure" and "tampered" in event:
        nobody = event["tampered"] is None and not arguments["each"]  # who it was is asked for once
        return (nobody or event["tampered"] in arguments["indices"]) and "reason" in event
    return request != "measure" or _DONE["measure"].keys() - {"tampered", "reason"} <= event.keys()


def _trials(event: Mapping[str, Any]) -> bool:
    return bool(event["rounds"]) and len({len(event[name]) for name in _TRIALS}) == 1


def _whole(value: Any) -> bool:
    return type(value) is int


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


def _any_of(*values: str) -> Known:
    return lambda value: _text(value) and value in values


def _or_none(known: Known) -> Known:
    return lambda value: value is None or known(value)


def _many(known: Known) -> Known:
    return lambda value: type(value) is list and all(map(known, value))


def _cell(value: Any) -> bool:
    return value is None or _text(value) or _flag(value) or _number(value)


def _card(value: Any) -> bool:
    lists = {"sm_mhz_samples": _many(_or_none(_number)), "throttle": _many(_text), "card_notes": _many(_text)}
    if type(value) is not dict or not lists.keys() <= value.keys():
        return False
    return all(lists.get(name, _cell)(one) for name, one in value.items())


def _place(value: Any) -> bool:
    return type(value) is dict or value == ""


_ALWAYS = ("event", "request", "pid")
_EVENTS: dict[str, dict[str, Known]] = {
    "step": {"index": _or_none(_whole), "stage": _any_of(*_STAGES), "what": _text},
    "output": {
        "index": _whole,
        "position": _whole,
        "place": _place,
        "fault": _text,
        "round": _or_none(_whole),
        "call": _text,
    },
    "fresh": {"what": _text},
    "failed": {"reason": _text},
    "series": {
        "index": _whole,
        **dict.fromkeys(("rounds", "turns", "start_ns", "fresh"), _many(_whole)),
        **dict.fromkeys(("device_us", "host_us", "beside_us", "again_us", "warmup_us"), _many(_number)),
        "held": _whole,
        "end_to_end_us": _or_none(_number),
        "stop_reason": _text,
    },
}
_DONE: dict[str, dict[str, Known]] = {
    "prove": {
        "status": _any_of(*_VERDICTS),
        **dict.fromkeys(("stage", "reason", "source_sha"), _text),
        **dict.fromkeys(("first_call_ms", "peak_memory_mb", "build_ms"), _or_none(_number)),
        **dict.fromkeys(("build_cached", "deterministic"), _or_none(_flag)),
        "fatal": _flag,
        "position": _whole,
        "untimed_us": _many(_number),
        "notes": _many(_text),
    },
    "measure": {
        "tampered": _or_none(_whole),
        "reason": _text,
        **dict.fromkeys(("event_overhead_us", "checking_s", "timing_s"), _number),
        "card": _card,
    },
}
