"""The picture of a step, from the trace of an H200."""

from __future__ import annotations

import pytest

from runner.trace import reading, timeline
from tests.test_syncs import TRACES

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("name", ["planted", "clean"])
def test_a_step_is_drawn(tmp_path, name):
    read = reading.read(reading.load(TRACES / f"h200_{name}_plain.json.gz"))
    timeline.draw(read, {"step 1": name, "step 2": "the next"}, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_lanes_are_threads_then_streams():
    read = reading.read(reading.load(TRACES / "h200_clean_plain.json.gz"))
    ops, _, activities = read.of("step 1")
    assert [name for name, _ in timeline._lanes(ops, activities)] == [
        "host",
        "host, thread 2",
        "GPU, stream 7",
    ]


def test_kernels_of_torch_are_named_by_their_operator():
    read = reading.read(reading.load(TRACES / "h200_planted_plain.json.gz"))
    (bars,) = (bars for name, bars in timeline._lanes(*read.of("step 1")[::2]) if name.startswith("GPU"))
    names = {name for name, *_ in bars}
    assert {"mm", "sum", "nonzero"} <= names and "vectorized_elementwise_kernel" not in names
