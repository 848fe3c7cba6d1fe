"""The reader of a GPU's state against a stand-in for NVML that can lack, refuse and lie."""

import sys
from types import SimpleNamespace

import pytest

from runner.measure.nvml import Sampler, State, open_card, throttle_reasons

UUID = "8f91017d-cc6f-4a7e-9f0e-000000000001"
OWN = 4000
MIB = 2**20


class FakeError(Exception):
    def __init__(self, value, text="refused"):
        super().__init__(text)
        self.value = value


class FakeNvml:
    """Looks like the module pynvml with one H200. `missing` functions raise NOT_SUPPORTED."""

    NVMLError = FakeError
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND = 2, 3, 6
    NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_LIBRARY_NOT_FOUND = 13, 12
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_DEVICE_MIG_ENABLE = 1, 2, 0, 1

    def __init__(self):
        self.uuids = {f"GPU-{UUID}"}
        self.mask, self.mig = 0, None
        self.processes = {OWN: 600 * MIB}
        self.errors, self.calls = {}, []

    def _enter(self, name):
        self.calls.append(name)
        if name in self.errors:
            raise FakeError(self.errors[name], f"error {self.errors[name]}")

    def nvmlInit(self):
        self._enter("init")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self._enter("handle")
        if uuid not in self.uuids:
            raise FakeError(self.NVML_ERROR_NOT_FOUND)
        return uuid

    def nvmlDeviceGetMigMode(self, handle):
        if self.mig is None:
            raise FakeError(self.NVML_ERROR_NOT_SUPPORTED)
        return [self.mig, self.mig]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        self._enter("max")
        return 1980

    def nvmlDeviceGetClockInfo(self, handle, kind):
        self._enter("sm" if kind == 1 else "mem")
        return {1: 1755, 2: 3201}[kind]

    def nvmlDeviceGetTemperature(self, handle, sensor):
        self._enter("temperature")
        return 41

    def nvmlDeviceGetPowerUsage(self, handle):
        self._enter("power")
        return 312_500

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        self._enter("reasons")
        return self.mask

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        self._enter("old reasons")
        return self.mask

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        self._enter("compute")
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.processes.items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle):
        self._enter("graphics")
        return []

    def nvmlSystemGetProcessName(self, pid):
        self._enter("name")
        return "/usr/bin/python3 train.py"


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def card(nvml):
    found, reason = open_card(UUID)
    assert reason == ""
    return found


def test_everything_is_read(nvml):
    nvml.mask = 0x4
    assert card(nvml).state() == State(1755, 3201, 41, 312.5, ("power limit",))
    assert card(nvml).max_sm_mhz == 1980


def test_only_reading_functions_are_ever_named():
    import inspect

    import runner.measure.nvml

    source = inspect.getsource(runner.measure.nvml)
    for verb in ("nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear", "nvmlDeviceModify"):
        assert verb not in source


def test_the_uuid_may_carry_its_prefix(nvml):
    assert open_card(f"GPU-{UUID}")[0] is not None


def test_no_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_card(UUID) == (None, "the GPU's clocks were not read: nvidia-ml-py is not installed")


@pytest.mark.parametrize("step", ["init", "handle"])
def test_no_driver_or_library(nvml, step):
    nvml.errors[step] = nvml.NVML_ERROR_LIBRARY_NOT_FOUND
    assert open_card(UUID) == (None, "the GPU's clocks were not read: NVML says 'error 12'")


def test_the_real_package_without_a_driver_gives_a_reason():
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        found, reason = open_card(UUID)
        assert found is None
        assert reason.startswith("the GPU's clocks were not read: NVML says '")
    else:
        pytest.skip("has a driver")


@pytest.mark.parametrize("uuid", ["", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_card(nvml, uuid):
    found, reason = open_card(uuid)
    assert found is None
    assert reason.startswith("the GPU's clocks were not read: NVML sees no GPU with UUID ")


@pytest.mark.parametrize("uuid", ["11111111-2222", "MIG-11111111-2222"])
def test_a_mig_slice(nvml, uuid):
    nvml.uuids.add("MIG-11111111-2222")
    found, reason = open_card(uuid)
    assert found is None
    assert "MIG slice" in reason


def test_a_card_that_is_cut_into_slices(nvml):
    nvml.mig = 1
    assert "MIG slice" in open_card(UUID)[1]
    nvml.mig = 0
    assert open_card(UUID)[0] is not None


@pytest.mark.parametrize(
    ("missing", "name", "still"),
    [
        ("sm", "sm_mhz", {"mem_mhz": 3201}),
        ("mem", "mem_mhz", {"sm_mhz": 1755}),
        ("temperature", "temperature_c", {"power_w": 312.5}),
        ("power", "power_w", {"temperature_c": 41}),
    ],
)
def test_what_nvml_does_not_support_is_none_and_not_asked_for_again(nvml, missing, name, still):
    nvml.errors[missing] = nvml.NVML_ERROR_NOT_SUPPORTED
    one = card(nvml)
    for _ in range(3):
        state = one.state()
        assert getattr(state, name) is None
        assert [getattr(state, key) for key in still] == list(still.values())
    assert nvml.calls.count(missing) == 1


def test_a_passing_error_is_asked_for_again(nvml):
    nvml.errors["power"] = 999
    one = card(nvml)
    assert one.state().power_w is None
    del nvml.errors["power"]
    assert one.state().power_w == 312.5


def test_an_old_driver_knows_the_reasons_by_their_old_name(nvml):
    nvml.errors["reasons"] = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    nvml.mask = 0x40
    one = card(nvml)
    assert one.state().throttle == one.state().throttle == ("heat (hardware)",)
    assert nvml.calls.count("reasons") == 1
    nvml.errors["old reasons"] = nvml.NVML_ERROR_NOT_SUPPORTED
    assert one.state().throttle is None


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, ()),
        (0x1 | 0x2 | 0x100, ()),
        (0x4, ("power limit",)),
        (0x8, ("hardware slowdown (heat or power)",)),
        (0x8 | 0x40, ("heat (hardware)",)),
        (0x8 | 0x80, ("power brake from outside the card",)),
        (0x4 | 0x20 | 0x1, ("power limit", "heat (driver)")),
        (0x10, ("sync boost group",)),
        (0x8000, ("reason 0x8000 of NVML",)),
    ],
)
def test_throttle_reasons_in_words(mask, words):
    assert throttle_reasons(mask) == words


def test_alone_on_the_card(nvml):
    assert card(nvml).others([OWN]) == []
    assert card(nvml).blind_spot([OWN]) == ""


def test_another_process_is_named(nvml):
    nvml.processes |= {77: 512 * MIB, 78: None}
    assert card(nvml).others([OWN]) == ["python3 (pid 77, 512 MiB)", "python3 (pid 78, memory not shown)"]
    assert card(nvml).others([OWN, 77, 78]) == []
    nvml.errors["name"] = nvml.NVML_ERROR_NOT_FOUND
    assert card(nvml).others([OWN, 78]) == ["a process (pid 77, 512 MiB)"]


def test_in_a_container_the_hosts_numbers_are_counted_not_named(nvml):
    nvml.processes = {900_001: 600 * MIB}
    assert card(nvml).others([OWN]) == []  # most likely this very process
    assert "could not be looked for" in card(nvml).blind_spot([OWN])
    nvml.processes |= {900_002: 10 * MIB}
    assert card(nvml).others([OWN]) == ["1 process that this container cannot tell from its own"]
    nvml.processes |= {900_003: 10 * MIB}
    assert card(nvml).others([OWN])[0].startswith("2 processes ")


@pytest.mark.parametrize("why", ["empty", "refused"])
def test_nvml_that_shows_no_processes_is_a_blind_spot(nvml, why):
    nvml.processes = {}
    if why == "refused":
        nvml.errors["compute"] = nvml.NVML_ERROR_NOT_SUPPORTED
    assert card(nvml).others([OWN]) == []
    assert "could not be looked for" in card(nvml).blind_spot([OWN])


@pytest.mark.gpu
def test_a_real_card():
    import os

    import torch

    pytest.importorskip("pynvml")
    torch.zeros(1, device="cuda")
    found, reason = open_card(str(torch.cuda.get_device_properties(0).uuid))
    if found is None:
        pytest.skip(reason)  # a MIG slice, or a machine without NVML
    state = found.state()
    assert 0 < state.sm_mhz <= found.max_sm_mhz
    assert state.mem_mhz > 0
    assert 0 < state.temperature_c < 120
    assert state.throttle is not None
    shown = found.blind_spot([os.getpid()]) == ""
    assert not any(f"pid {os.getpid()}," in text for text in found.others([os.getpid()]))
    assert shown or "this one either" in found.blind_spot([os.getpid()])


class SlowCard:
    """A card whose reading takes `cost` seconds of the same clock."""

    def __init__(self, cost, states=()):
        self.now, self.cost, self.states, self.reads = 100.0, cost, list(states), 0

    def clock(self):
        return self.now

    def state(self):
        self.now += self.cost
        self.reads += 1
        return self.states.pop(0) if self.states else State(sm_mhz=1980, throttle=())


@pytest.mark.parametrize("cost", [50e-6, 1e-3, 20e-3])
def test_reading_takes_at_most_its_share_of_the_time(cost):
    slow = SlowCard(cost)
    sampler = Sampler(slow, slow.clock)
    for _ in range(20_000):  # rounds of half a millisecond
        slow.now += 0.5e-3
        sampler.sample()
    assert sampler.spent_s == pytest.approx(slow.reads * cost)
    assert sampler.spent_s / (slow.now - 100.0) < 0.025
    assert slow.reads > 8


def test_the_first_sample_is_taken_and_a_forced_one_too():
    slow = SlowCard(1e-3)
    sampler = Sampler(slow, slow.clock)
    assert sampler.sample() is not None
    assert sampler.sample() is None
    assert sampler.sample(force=True) is not None
    assert slow.reads == 2


def test_columns_of_a_measurement():
    states = [
        State(1980, 3201, 40, 300.0, ()),
        State(1755, 3201, 45, 690.0, ("power limit",)),
        State(1980, None, None, None, ("heat (driver)", "power limit")),
    ]
    slow = SlowCard(0.0, states)
    sampler = Sampler(slow, slow.clock)
    for _ in range(3):
        sampler.sample(force=True)
    assert sampler.columns() == {
        "sm_mhz": 1980,
        "mem_mhz": 3201,
        "temperature_c": 45,
        "power_w": 690.0,
        "throttled": "power limit, heat (driver)",
    }
    assert sampler.sm_mhz == [1980, 1755, 1980]


def test_without_a_card_nothing_is_read_and_nothing_claimed():
    sampler = Sampler(None)
    assert sampler.sample(force=True) is None
    assert set(sampler.columns().values()) == {None}
    known = Sampler(SlowCard(0.0))
    known.sample(force=True)
    assert known.columns()["throttled"] == ""
