"""The protocol's order of calls on a fake device, turns, and a busy-wait of known length."""

import collections
import time

import pytest
import torch

from runner.clock_cpu import CpuClock, last_level_cache_bytes
from runner.clock_cuda import CudaClock
from runner.measure import Watch, benchmark, take_turns
from runner.samples import Sample, Trial


class FakeEvent:
    """Its time is the length of the log when the device reaches it."""

    def __init__(self, log, reached):
        self.log, self.reached = log, reached

    def record(self):
        self.log.append("record")

    def query(self):
        return self.reached

    def elapsed_time(self, other):
        return 0.010


class FakeCuda(CudaClock):
    """A CudaClock whose device is a list of what it was told."""

    def __init__(self, caught_up=False):
        self.log, self.holds, self.flushes, self.event_overhead_us = [], [], True, 1.5
        self.caught_up = caught_up

    def _events(self):
        return FakeEvent(self.log, self.caught_up), FakeEvent(self.log, self.caught_up)

    def flush(self):
        self.log.append("flush")

    def hold(self, microseconds):
        self.log.append("hold")
        self.holds.append(microseconds)

    def synchronize(self):
        self.log.append("synchronize")


def test_a_cuda_trial_flushes_holds_records_calls_records_and_waits():
    clock = FakeCuda()
    trial = Trial(lambda: clock.log.append("call"), lambda: clock.log.append("prepare"))
    sample, _ = clock.trial(trial, 40.0)
    steps = ["prepare", "synchronize", "flush", "hold", "record", "call", "record", "synchronize"]
    assert clock.log == steps
    assert sample.device_us == pytest.approx(10.0 - 1.5)
    assert sample.held


def test_a_device_that_caught_up_is_held_longer_and_if_need_be_noticed():
    clock = FakeCuda(caught_up=True)
    sample, _ = clock.trial(Trial(lambda: clock.log.append("call")), 40.0)
    assert not sample.held
    assert clock.log.count("call") == 5
    assert clock.holds == [40.0, 80.0, 160.0, 320.0, 640.0]


def test_a_call_that_synchronizes_is_timed_once():
    clock = FakeCuda(caught_up=True)
    assert clock.hold_for(Trial(lambda: None)) == 0.0
    clock.log.clear()
    sample, _ = clock.trial(Trial(lambda: clock.log.append("call")), 0.0)
    assert (clock.log.count("call"), sample.held) == (1, False)


def test_warm_timing_does_not_flush():
    clock = FakeCuda()
    clock.flushes = False
    clock.trial(Trial(lambda: None), 40.0)
    assert "flush" not in clock.log


class Counting:
    """A clock that only counts whose turn it was."""

    event_overhead_us = 0.0

    def __init__(self):
        self.order = []

    def trial(self, trial, hold_us):
        name = trial.call()
        self.order.append(name)
        return Sample(len(self.order), 1.0, 1.0), name

    def hold_for(self, trial):
        return 0.0

    def synchronize(self):
        pass

    def end_to_end_us(self, trial):
        return 1.0


class Outputs(Watch):
    def __init__(self):
        self.seen = []

    def output(self, index, output):
        self.seen.append((index, output))


def test_turns_give_everybody_one_call_a_round_in_changing_order():
    clock, watch = Counting(), Outputs()
    trials = [Trial(lambda name=name: name) for name in "abc"]
    series = take_turns(clock, trials, 20, 1, seed=3, watch=watch)
    rounds = [clock.order[i : i + 3] for i in range(0, 60, 3)]
    assert all(sorted(one) == list("abc") for one in rounds)
    assert len({tuple(one) for one in rounds}) > 3
    assert [len(one.samples) for one in series] == [20, 20, 20]
    assert sorted(watch.seen) == [(0, "a"), (1, "b"), (2, "c")]
    firsts = collections.Counter(one[0] for one in rounds)
    assert len(firsts) == 3


def test_prepare_is_not_timed():
    clock = CpuClock(flush=False)
    sample, _ = clock.trial(Trial(lambda: None, lambda: time.sleep(0.05)))
    assert sample.device_us < 40_000


def test_a_busy_wait_of_known_length_is_read_within_5_percent():
    def wait():
        end = time.perf_counter_ns() + 2_000_000
        while time.perf_counter_ns() < end:
            pass

    clock = CpuClock(flush=False)
    readings = [clock.trial(Trial(wait))[0].device_us for _ in range(9)]
    assert min(readings) == pytest.approx(2000.0, rel=0.05)


def test_the_cpu_flush_is_larger_than_the_last_cache():
    assert CpuClock()._lines.nbytes >= 2 * last_level_cache_bytes()


def test_benchmark_times_any_callable():
    x = torch.ones(1000)
    result = benchmark(torch.add, x, x, trials=5, warmup=1)
    assert result.device == "cpu"
    assert result.device_us.trials == len(result.samples) == 5
    assert result.device_us.mean > 0


@pytest.mark.gpu
def test_benchmark_on_a_gpu_holds_the_stream():
    x = torch.ones(1 << 20, device="cuda")
    result = benchmark(torch.add, x, x, trials=10)
    assert result.held
    assert 0.5 < result.event_overhead_us < 10
    assert 1 < result.device_us.median < 100
