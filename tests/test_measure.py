"""The protocol's order of calls on a fake device, turns, and a busy-wait of known length."""

import collections
import itertools
import random
import time

import pytest
import torch

from runner.measure import untimed
from runner.measure.clock_cpu import CpuClock, last_level_cache_bytes
from runner.measure.clock_cuda import CudaClock
from runner.measure.samples import Sample, Trial
from runner.measure.seen import faster_when_repeated, from_memory, slow_when_untimed
from runner.measure.turns import Watch, benchmark, rule_for, take_turns


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
        self.log, self.held_us, self.event_overhead_us, self.caught_up = [], [], 1.5, caught_up

    def events(self):
        return FakeEvent(self.log, self.caught_up), FakeEvent(self.log, self.caught_up)

    def flush(self):
        self.log.append("flush")

    def hold(self, microseconds):
        self.log.append("hold")
        self.held_us.append(microseconds)

    def synchronize(self):
        self.log.append("synchronize")


def timed(clock, timing="cold", **trial):
    """A timer's one timing, the calibration before it forgotten."""
    call = trial.pop("call", lambda: clock.log.append("call"))
    timer = clock.timer(Trial(call, **trial), timing)
    clock.log.clear()
    clock.held_us.clear()
    return timer, timer.once()[0]


def test_a_cuda_trial_flushes_holds_records_calls_records_and_waits():
    clock = FakeCuda()
    _, sample = timed(clock, prepare=lambda: clock.log.append("prepare"))
    steps = ["prepare", "synchronize", "flush", "hold", "record", "call", "record", "synchronize"]
    assert clock.log == steps
    assert sample.device_us == pytest.approx(10.0 - 1.5)
    assert sample.held


def test_a_device_that_caught_up_is_held_longer_and_if_need_be_noticed():
    clock = FakeCuda()
    timer, _ = timed(clock)
    clock.log.clear()
    clock.held_us.clear()
    clock.caught_up, timer.hold_us = True, 40.0
    sample, _ = timer.once()
    assert not sample.held
    assert clock.log.count("call") == 5
    assert clock.held_us == [40.0, 80.0, 160.0, 320.0, 640.0]


def test_a_call_that_synchronizes_is_timed_once_and_not_held():
    timer, sample = timed(clock := FakeCuda(caught_up=True))
    assert timer.hold_us == 0.0
    assert (clock.log.count("call"), sample.held) == (1, False)


def test_the_hold_outlasts_the_calls_host_time():
    clock = FakeCuda()
    timer, _ = timed(clock, call=lambda: time.sleep(0.003))
    assert timer.hold_us > 2 * 3000


def test_warm_timing_does_not_flush():
    clock = FakeCuda()
    timed(clock, "warm")
    assert "flush" not in clock.log
    assert clock.log.count("call") == 1


def test_burst_timing_calls_back_to_back_and_gives_the_time_of_one():
    clock = FakeCuda()
    timer, sample = timed(clock, "burst")
    assert clock.log == ["synchronize", "hold", "record", *["call"] * timer.calls, "record", "synchronize"]
    assert timer.calls == 235  # 2000 us over the 8.5 us of a call
    assert sample.device_us == pytest.approx(8.5 / 235)


class Counting:
    """A clock that only counts whose turn it was."""

    event_overhead_us = 0.0

    def __init__(self):
        self.order = []

    def timer(self, trial, timing):
        return CountingTimer(self, trial)

    def synchronize(self):
        pass


class CountingTimer:
    def __init__(self, clock, trial):
        self.clock, self.trial = clock, trial

    def once(self, returned):
        returned(name := self.trial.call())
        self.clock.order.append(name)
        return Sample(len(self.clock.order), 1.0, 1.0), name

    def end_to_end_us(self):
        return 1.0


class Fresh(Watch):
    """Every third round has new inputs; keeps what happened."""

    def __init__(self, lacking=0):
        self.seen, self.rounds, self.left = [], [], lacking

    @property
    def lacking(self):
        return self.left > 0

    def before_round(self, round_, new):
        fresh = round_ % 3 == 0 if new is None else new
        self.left -= fresh
        self.rounds.append((round_, fresh))
        return fresh

    def returned(self, output):
        self.seen.append(output)


def test_turns_give_everybody_one_call_a_round_in_changing_order():
    clock, watch = Counting(), Fresh()
    trials = [Trial(lambda name=name: name) for name in "abc"]
    rules = [rule_for(20, 0.005, 20, 100, 1.0)] * 3
    series = take_turns(clock, trials, rules, "cold", 0, watch=watch)
    rounds = [clock.order[i : i + 3] for i in range(0, 60, 3)]
    assert all(sorted(one) == list("abc") for one in rounds)
    assert len({tuple(one) for one in rounds}) > 3
    assert [len(one.samples) for one in series] == [20, 20, 20]
    assert watch.seen == clock.order
    assert watch.rounds[-1] == (19, True) and len(watch.rounds) == 20
    assert all(one.fresh == [0, 3, 6, 9, 12, 15, 18, 19] for one in series)
    firsts = collections.Counter(one[0] for one in rounds)
    assert len(firsts) == 3


def test_calls_on_new_inputs_that_are_lacking_are_made_beside_the_samples():
    series = take_turns(Counting(), [Trial(lambda: "a")], [rule_for(2, 1, 4, 4, 1.0)], "cold", 0, Fresh(5))
    assert (len(series[0].samples), len(series[0].beside_us)) == (2, 3)


def test_the_first_call_on_new_inputs_is_no_warm_sample():
    clock, watch = Counting(), Fresh()
    (series,) = take_turns(clock, [Trial(lambda: "a")], [rule_for(4, 1, 4, 4, 1.0)], "warm", 0, watch)
    assert (len(series.samples), series.fresh) == (4, [])
    assert len(clock.order) == 4 + 2  # rounds 0 and 3 are new


class Remembers(Counting):
    """Its calls take 100 us, or 10 in a round on inputs that were there before."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def timer(self, trial, timing):
        timer = CountingTimer(self, trial)
        timer.once = lambda returned: (Sample(0, self.us(), 1.0), trial.call())
        return timer

    def us(self):
        return 100.0 if self.watch.rounds[-1][1] else 10.0


def test_who_answers_from_memory_now_and_then_moves_the_mean_and_is_found():
    repeated = [10.0, 100.0, 100.0] * 20  # the median is that of an honest one
    assert faster_when_repeated([100.0] * 4, repeated) != ""
    assert faster_when_repeated([100.0] * 4, [100.0, 100.0, 5000.0] * 20) == ""


def test_who_answers_from_memory_is_looked_at_again_and_said_to():
    watch = Fresh()
    rules = [rule_for(12, 1, 4, 4, 1.0)]
    (series,) = take_turns(Remembers(watch), [Trial(lambda: "a")], rules, "cold", 0, watch)
    assert "faster on inputs that it has seen before: 10 us" in series.suspicion
    assert len(series.beside_us) == len(series.again_us) == 6


def test_a_machine_that_grows_slower_is_not_taken_for_a_memory():
    times = [100.0] * 20 + [300.0] * 4
    assert from_memory(range(24), times, [20, 21, 22, 23], [], []) != ""
    assert from_memory(range(24), times, [20, 21, 22, 23], [300.0] * 6, [290.0] * 6) == ""


def test_an_honest_variant_among_noise_is_not_said_to_remember():
    generator = random.Random(0)
    for _ in range(2000):
        repeated = [100 * generator.lognormvariate(0, 0.2) for _ in range(20)]
        assert (
            faster_when_repeated([100 * generator.lognormvariate(0, 0.2) for _ in range(5)], repeated) == ""
        )
    assert faster_when_repeated([6.0, 7.0, 8.0], [3.5] * 10) == ""  # within the slack
    assert faster_when_repeated([9.0, 9.0, 9.0], [3.5] * 10) != ""
    assert faster_when_repeated([9.0, 9.0], [3.5] * 10) == ""


def test_who_is_slow_only_when_it_is_not_timed_is_said_to_be():
    assert "slow when it is not timed: 20 ms or more" in slow_when_untimed(
        [20_000.0] * 6, [1000.0] * 8, [1000.0] * 8
    )
    assert slow_when_untimed([20_000.0] * 5, [1000.0] * 8, [1000.0] * 8) == ""  # too few to tell
    assert slow_when_untimed([*[20_000.0] * 9, 1100.0], [1000.0] * 8, [1000.0] * 8) == ""  # not all of them
    assert (
        slow_when_untimed([20_000.0] * 6, [5.0] * 8, [10_000.0] * 8) == ""
    )  # its host is as slow when it is timed
    assert slow_when_untimed([1500.0] * 6, [5.0] * 8, [20.0] * 8) == ""  # within the slack
    assert slow_when_untimed([], [5.0] * 8, [20.0] * 8) == ""


def test_a_busy_machine_makes_nobody_slow_when_it_is_not_timed():
    """Most calls wait 12 ms for a processor: often all of the untimed ones, but not of 40 timed ones."""
    generator = random.Random(0)
    for _ in range(2000):
        timed = [12_000.0 if generator.random() < 0.75 else 80.0 for _ in range(40)]
        assert slow_when_untimed([12_000.0] * 6, timed, timed) == ""
    few = [12_000.0, *[80.0] * 39]  # who makes an outlier of its own does not get away with it
    assert slow_when_untimed([12_000.0] * 6, few, few) != ""


def test_the_warmup_is_watched(monkeypatch):
    calls = []

    def slow_at_first():
        calls.append(time.sleep(0.02 if len(calls) < 6 else 0))

    monkeypatch.setattr(untimed, "_own_work_us", lambda: 20.0)
    rules = [rule_for(4, 1, 4, 4, 1.0)]
    (series,) = take_turns(CpuClock(), [Trial(slow_at_first)], rules, "cold", 2, Watch())
    assert len(series.warmup_us) == 6 and min(series.warmup_us) > 15_000


def test_calls_beside_which_our_own_work_waited_say_nothing(monkeypatch):
    waits = itertools.cycle([9000.0, 20.0, 20.0, 9000.0, 20.0, 20.0])  # before and after each of three calls
    monkeypatch.setattr(untimed, "_own_work_us", lambda: next(waits))
    seen = untimed.Untimed(Trial(lambda: time.sleep(0.003)), lambda: None)
    for _ in range(3):
        seen.call()
    assert len(seen.walls_us) == 1
    assert len(seen.settle()) == 6 and min(seen.walls_us) > 2900  # slower than plain: as many as tell


def test_a_plain_call_is_not_asked_again(monkeypatch):
    monkeypatch.setattr(untimed, "_own_work_us", lambda: 20.0)
    calls = []
    seen = untimed.Untimed(Trial(lambda: calls.append(time.sleep(0.02))), lambda: None)
    seen.call()
    assert len(seen.settle(plain_us=1e6)) == 1 == len(calls)


def test_a_machine_that_never_lets_us_run_says_nothing(monkeypatch):
    monkeypatch.setattr(untimed, "_own_work_us", lambda: 20_000.0)
    monkeypatch.setattr(untimed, "_MOST_S", 0.05)
    seen = untimed.Untimed(Trial(lambda: time.sleep(0.02)), lambda: None)
    seen.call()
    assert seen.settle() == [] and slow_when_untimed(seen.walls_us, [5.0] * 8, [5.0] * 8) == ""


def test_prepare_is_not_timed():
    sample, _ = CpuClock().timer(Trial(lambda: None, lambda: time.sleep(0.05)), "warm").once()
    assert sample.device_us < 40_000


def test_a_busy_wait_of_known_length_is_read_within_5_percent():
    def wait():
        end = time.perf_counter_ns() + 2_000_000
        while time.perf_counter_ns() < end:
            pass

    timer = CpuClock().timer(Trial(wait), "warm")
    readings = [timer.once()[0].device_us for _ in range(9)]
    assert min(readings) == pytest.approx(2000.0, rel=0.05)


def test_short_cpu_calls_are_timed_several_at_a_time_unless_cold():
    clock = CpuClock()
    assert clock.timer(Trial(lambda: None), "warm").calls > 100
    assert clock.timer(Trial(lambda: None), "burst").calls > 1000
    assert clock.timer(Trial(lambda: None), "cold").calls == 1
    assert clock.timer(Trial(lambda: None, lambda: 0), "burst").calls == 1


def test_a_variant_that_is_slow_in_the_warmup_gets_as_many_trials():
    calls = []

    def slow_at_first():
        calls.append(1)
        time.sleep(0.02 if len(calls) <= 3 else 0)

    x = torch.ones(10)
    slow = benchmark(slow_at_first, trials=0, timing="cold", warmup=3, precision=1e9)
    fast = benchmark(torch.add, x, x, trials=0, timing="cold", warmup=3, precision=1e9)
    assert slow.device_us.trials == fast.device_us.trials == 10
    assert slow.device_us.min < 5_000  # the fastest: a busy machine makes others wait


def test_auto_goes_on_until_the_mean_is_precise_or_the_budget_is_spent():
    result = benchmark(lambda: None, timing="warm", precision=1e-9, budget_s=0.05)
    assert result.stop_reason in ("budget", "max_trials")
    assert result.device_us.trials > 10


def test_the_cpu_flush_is_larger_than_the_last_cache():
    assert CpuClock()._lines.nbytes >= 2 * last_level_cache_bytes()


def test_benchmark_times_any_callable():
    x = torch.ones(1000)
    result = benchmark(torch.add, x, x, trials=5, warmup=1)
    assert result.device == "cpu"
    assert result.device_us.trials == len(result.samples) == 5
    assert result.device_us.mean > 0
    assert len(repr(result)) < 1000


@pytest.mark.gpu
def test_benchmark_on_a_gpu_holds_the_stream():
    x = torch.ones(1 << 20, device="cuda")
    result = benchmark(torch.add, x, x, trials=10)
    assert result.held
    assert 0.5 < result.event_overhead_us < 10
    assert 1 < result.device_us.median < 100


@pytest.mark.parametrize("words", [{"timing": "hot"}, {"trials": -1}, {"warmup": -1}])
def test_benchmark_is_asked_for_what_there_is(words):
    with pytest.raises(ValueError, match=next(iter(words))):
        benchmark(lambda: None, **words)
