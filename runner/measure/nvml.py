"""The state of a GPU, read through NVML while something is measured on it. Nothing is ever set.

A reading takes tens of microseconds to milliseconds, depending on the driver, and must not fall inside a
trial. So it is made between rounds, when the last trial has just ended: the clock that NVML then reports is
still the busy one, where a second later it would be the idle one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

# nvmlClocksEventReasons in nvml.h. Idling and a clock that somebody set are no throttling.
_NOT_THROTTLING = 0x1 | 0x2 | 0x100  # idle, applications clocks, display clock
_THROTTLING = {
    0x4: "power limit",
    0x8: "hardware slowdown (heat or power)",
    0x10: "sync boost group",
    0x20: "heat (driver)",
    0x40: "heat (hardware)",
    0x80: "power brake from outside the card",
    0x200: "board limit",
    0x400: "reliability voltage limit",
}
_HW_SLOWDOWN, _HW_CAUSES = 0x8, 0x40 | 0x80  # the general reason comes with its cause

_SHARE = 0.02  # of the measuring time, at most, goes into reading
_LEAST_S = 0.01  # between two readings: closer ones say the same


@dataclass(frozen=True)
class State:
    """One reading. A field is None where NVML does not give it."""

    sm_mhz: int | None = None
    mem_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None  # averaged by the card, over up to a second
    throttle: tuple[str, ...] | None = None  # () when the clocks are not held back


def open_card(uuid: str) -> tuple[Card | None, str]:
    """The card with this UUID ('8f91017d-cc6f-...', as torch gives it, or with 'GPU-' before it).

    Without NVML, or where it does not see this card as a whole: None, and the reason in a sentence.
    """
    try:
        import pynvml
    except ImportError:
        return None, "the GPU's clocks were not read: nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        handle = _find(pynvml, uuid)
        if handle is None:
            return None, f"the GPU's clocks were not read: {_unknown(pynvml, uuid)}"
        if _is_sliced(pynvml, handle):
            return None, f"the GPU's clocks were not read: {_SLICE}"
        return Card(pynvml, handle), ""
    except pynvml.NVMLError as error:  # no driver, no library, no permission
        return None, f"the GPU's clocks were not read: NVML says '{error}'"


_SLICE = "the device is a MIG slice, and NVML gives the clocks of whole cards"


def _find(nvml: Any, uuid: str) -> Any | None:
    """The handle of a whole card; None when NVML knows none of that name."""
    if uuid.startswith("MIG-"):
        return None
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    except nvml.NVMLError as error:
        # a name of the wrong form is an invalid argument to it
        if error.value not in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
            raise
        return None


def _unknown(nvml: Any, uuid: str) -> str:
    bare = uuid.removeprefix("MIG-")
    try:
        nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
    except nvml.NVMLError:
        return f"NVML sees no GPU with UUID {uuid or '(none)'}"
    return _SLICE


def _is_sliced(nvml: Any, handle: Any) -> bool:
    try:
        return nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # a card that knows no MIG
        return False


class Card:
    """One whole GPU. Made by `open_card`."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._unsupported: set[str] = set()
        self.max_sm_mhz: int | None = self._read(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)

    def state(self) -> State:
        """Read everything, the quickest to go stale first."""
        nvml = self._nvml
        sm_mhz = self._read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM, key="sm")
        reasons = self._reasons()
        power_mw = self._read(nvml.nvmlDeviceGetPowerUsage)
        return State(
            sm_mhz=sm_mhz,
            mem_mhz=self._read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM, key="mem"),
            temperature_c=self._read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1e3,
            throttle=None if reasons is None else throttle_reasons(reasons),
        )

    def _reasons(self) -> int | None:
        """By the newer name, or by the older where the package or the driver does not know that."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            mask = self._read(getattr(self._nvml, name, None), key=name)
            if mask is not None:
                return mask
        return None

    def _read(self, function: Callable | None, *arguments: Any, key: str = "") -> Any | None:
        """None where NVML does not give it; what it does not support is not asked for again."""
        key = key or getattr(function, "__name__", "")
        if function is None or key in self._unsupported:
            return None
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            never = (self._nvml.NVML_ERROR_NOT_SUPPORTED, self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            if error.value in never:
                self._unsupported.add(key)
            return None

    def others(self, own_pids: Collection[int], using: int = 1) -> list[str]:
        """The other processes on this GPU that NVML shows: 'python (pid 123, 512 MiB)'. There may be more.

        `own_pids` has this process, which uses the GPU, and those that belong to the run. When NVML
        lists processes but not this one, its numbers are another namespace's (a container's host's): then
        `using` of them are the run's, nobody knows which, and the rest are counted and not named.
        """
        listed = self._processes()
        if own_pids and not any(pid in listed for pid in own_pids):
            rest = len(listed) - using
            noun = "process" if rest == 1 else "processes"
            return [f"{rest} {noun} that this container cannot tell from its own"] if rest > 0 else []
        strangers = sorted(set(listed) - set(own_pids))
        return [f"{self._name(pid)} (pid {pid}, {_mebibytes(listed[pid])})" for pid in strangers]

    def blind_spot(self, own_pids: Collection[int]) -> str:
        """Why `others` may be empty though somebody is there; '' when NVML at least shows this process."""
        if any(pid in self._processes() for pid in own_pids):
            return ""
        return "other processes on the GPU could not be looked for: NVML does not show this one either"

    def _processes(self) -> dict[int, int | None]:
        """Bytes on this GPU by process id; None where they are not known."""
        found: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics", "MPSCompute"):
            function = getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses", None)
            for process in self._read(function, key=kind) or ():
                found[process.pid] = process.usedGpuMemory
        return found

    def _name(self, pid: int) -> str:
        try:
            command = self._nvml.nvmlSystemGetProcessName(pid)
        except (self._nvml.NVMLError, UnicodeDecodeError):  # gone, another user's, or named in odd bytes
            return "a process"
        words = command.split()
        name = PurePath(words[0]).name if words else ""
        return "".join(c for c in name if c.isprintable()) or "a process"


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """NVML's bit mask in plain words, without what is no throttling."""
    if mask & _HW_CAUSES:
        mask &= ~_HW_SLOWDOWN
    named = [words for bit, words in _THROTTLING.items() if mask & bit]
    rest = mask & ~(_NOT_THROTTLING | _HW_SLOWDOWN | sum(_THROTTLING))
    return tuple(named + ([f"reason {rest:#x} of NVML"] if rest else []))


def _mebibytes(size: int | None) -> str:
    return "memory not shown" if size is None else f"{size / 2**20:.0f} MiB"


@dataclass
class Sampler:
    """Readings along a measurement. `sample` is called between rounds and keeps its cost small.

    A reading that turns out slow is made more rarely: all of them together take at most 2 % of the time.
    """

    card: Card | None
    clock: Callable[[], float] = time.perf_counter  # seconds
    states: list[State] = field(default_factory=list)
    spent_s: float = 0.0  # in reading; not part of any trial
    _due: float = 0.0

    def sample(self, force: bool = False) -> State | None:
        """Read, unless it is too early. To be called just after a trial's synchronize: the GPU was busy."""
        began = self.clock()
        if self.card is None or (began < self._due and not force):
            return None
        state = self.card.state()
        ended = self.clock()
        self.states.append(state)
        self.spent_s += ended - began
        self._due = ended + max(_LEAST_S, (ended - began) / _SHARE)
        return state

    def columns(self) -> dict[str, Any]:
        """For a row: medians of the clocks, the highest temperature and power, every throttle reason seen.

        A column is None where nothing was read; `throttled` is '' when the card was never held back.
        """
        return {
            "sm_mhz": _middle(s.sm_mhz for s in self.states),
            "mem_mhz": _middle(s.mem_mhz for s in self.states),
            "temperature_c": max(_known(s.temperature_c for s in self.states), default=None),
            "power_w": max(_known(s.power_w for s in self.states), default=None),
            "throttled": self._throttled(),
        }

    @property
    def throttle(self) -> tuple[str, ...]:
        """Every reason seen, once, in the order in which they came."""
        return tuple(dict.fromkeys(reason for s in self.states for reason in s.throttle or ()))

    @property
    def sm_mhz(self) -> list[int]:
        """The SM clock at each reading that has it."""
        return _known(s.sm_mhz for s in self.states)

    def _throttled(self) -> str | None:
        return ", ".join(self.throttle) if any(s.throttle is not None for s in self.states) else None


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _middle(values: Iterable[int | None]) -> int | None:
    known = sorted(_known(values))
    return known[len(known) // 2] if known else None
