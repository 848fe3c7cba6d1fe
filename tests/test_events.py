"""What a worker says while it serves a request is looked at field by field."""

import pytest

from runner.process import events

MEASURE = {"indices": [2, 3], "how": None, "judge": 1, "each": False}
SERIES = {"event": "series", "index": 2, "held": 0, "end_to_end_us": 1.0, "stop_reason": "trials"}
SERIES |= {
    "rounds": [0, 1],
    "turns": [0, 0],
    "start_ns": [5, 6],
    "device_us": [1.0, 2],
    "host_us": [1.0, 2.0],
}
SERIES |= {"fresh": [1], "beside_us": [], "again_us": [], "warmup_us": [3.5]}
CARD = {"sm_mhz_samples": [None, 1980], "throttle": [], "card_notes": [], "power_w": 300.0, "throttled": None}
DONE = {"event": "done", "request": 4, "pid": 9, "event_overhead_us": 0.5, "card": CARD}
DONE |= {"checking_s": 0.1, "timing_s": 0.2}


def measured(event):
    return events.sound("measure", MEASURE, 3, event)


def test_what_the_worker_says_is_taken():
    assert measured(SERIES)
    assert measured(DONE)
    assert measured({"event": "done", "tampered": 3, "reason": "so"})


def test_nobody_is_blamed_once_only():
    nobody = {"event": "done", "tampered": None, "reason": "so"}
    assert measured(nobody)
    assert not events.sound("measure", MEASURE | {"each": True}, 3, nobody)


@pytest.mark.parametrize(
    "field, value",
    [
        ("index", 4),
        ("device_us", [1.0]),
        ("device_us", [1.0, float("nan")]),
        ("device_us", ["1", "2"]),
        ("rounds", None),
        ("fresh", [True]),
        ("stop_reason", 7),
    ],
)
def test_a_series_that_no_measurement_gives_is_none(field, value):
    assert not measured(SERIES | {field: value})


@pytest.mark.parametrize(
    "event",
    [
        {"event": "done"},
        {"event": "done", "tampered": 7, "reason": "so"},
        {"event": "done", "tampered": 2},
        DONE | {"card": CARD | {"throttle": "yes"}},
        DONE | {"card": {"power_w": 3.0}},
        DONE | {"timing_s": float("inf")},
    ],
)
def test_an_answer_that_no_measurement_gives_is_none(event):
    assert not measured(event)


def test_a_trial_that_is_none_is_none():
    lists = ("rounds", "turns", "start_ns", "device_us", "host_us")
    assert not measured(SERIES | {name: [] for name in lists})
