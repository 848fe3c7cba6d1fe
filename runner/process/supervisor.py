"""The parent's hold on a worker or judge process: start it, ask it, bound its time, replace it."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runner.files import ROOT
from runner.model import Limits
from runner.process import events, lifetimes, memory
from runner.process.output import MOST_PRINTED, Log, Output
from runner.process.pipe import Garbage, Pipe
from runner.process.watched import Watched

_COMMAND = ("-m", "runner.worker")
_JUDGE = ("-m", "runner.check")
_CLOSING_S = 2.0  # from the end of its pipe to that of the worker
# Until a request announces a step, it is in this stage, and under its limit.
_STAGES = {"hello": "start", "open": "inputs", "prove": "inputs", "close": "inputs", "expect": "inputs"}
_STAGES |= {"offer": "start", "accept": "start", "look": "check"}
_STAGES |= dict.fromkeys(("measure", "ceilings", "traps"), "measure")
_STAGES |= dict.fromkeys(("profile", "workload"), "profile")


@dataclass(frozen=True)
class Device:
    """What a worker is started for; a different one needs a different worker."""

    name: str  # "cpu" or "cuda:N"
    threads: int
    debug: bool
    judges: bool = False  # the process is the judge, not the worker


class WorkerLost(Exception):
    """The worker crashed, hung or was told to go. `index` is the entry it had announced, or None."""

    def __init__(self, status: str, reason: str, index: int | None, stage: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.index, self.stage = status, reason, index, stage


class WorkerFailed(Exception):
    """A request failed inside the harness (not in a variant): its reason in one line.

    `index` and `stage` are of the step it had announced; `index` is None before the first one.
    """

    status = "error"

    def __init__(self, reason: str, index: int | None, stage: str) -> None:
        super().__init__(reason)
        self.reason, self.index, self.stage = reason, index, stage


class Worker:
    """One `python -m runner.worker` or `runner.check`. `call` sends a request and yields its events.

    It is told hello by `greet`, so that two can start at the same time.
    """

    def __init__(self, device: Device, limits: Limits, log: Log | None = None) -> None:
        self.device, self.limits = device, limits
        self.output = Output()
        self.output.send_to(log)
        self._answered, self._killed = True, False
        self.ran: list[tuple[str, int, float]] = []  # case, index and time of what was proven in it
        self._most_bytes = memory.limit_bytes(limits.memory_gb)
        self._mark = secrets.token_hex(8)
        ours, child = socket.socketpair()
        with child:
            self._process = subprocess.Popen(
                [sys.executable, *(_JUDGE if device.judges else _COMMAND), str(child.fileno())],
                pass_fds=[child.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(device) | {lifetimes.MARK: self._mark},
                start_new_session=True,  # Ctrl-C is the parent's; kill() takes compilers along
            )
        self._watched = Watched(self._process.pid)
        self._pipe = Pipe(ours, self._process, self._watch)
        self.output.echo = device.debug
        self.output.follow(self._process.stdout)
        self.facts: dict[str, Any] = {}
        self._greeted = False

    def greet(self) -> None:
        """Have it take its device, once. Raises WorkerLost or WorkerFailed where it cannot."""
        if self._greeted:
            return
        try:
            self.facts = self.ask("hello", device=self.device.name, threads=self.device.threads)["facts"]
        except WorkerFailed:
            self.kill()
            raise
        self._greeted = True

    def note(self, case: str, index: int) -> None:
        """From now on the code of this entry has run in it."""
        if not self.ran or self.ran[-1][:2] != (case, index):
            self.ran.append((case, index, time.monotonic()))

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its `done` event, ignoring steps."""
        return list(self.call(name, **arguments))[-1]

    def call(self, name: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Send a request; yield its events up to and including `done`.

        Until it announces a step, the limit is that of the stage it belongs to. Raises WorkerLost when the
        process dies, a step outlasts its stage's limit, the process outgrows its memory or floods its output,
        or the pipe carries what the harness did not write; WorkerFailed when the harness itself failed there.
        A request that is left before its end leaves no worker: nobody would read the rest of its answer.
        """
        self._answered = False
        step = {"index": None, "stage": _STAGES[name]}
        try:
            yield from self._exchange(name, arguments, step)
        except TimeoutError:
            stage, limit_s = step["stage"], self._limit_s(step)
            of_none = step["index"] is None and step.get("what", stage) != stage
            at = f" of {step['what']}" if of_none else ""
            reason = f"still in {stage}{at} after its limit of {limit_s:g} s (limits.{stage}_s)"
            raise WorkerLost("timeout", reason, step["index"], stage) from None
        except (EOFError, OSError):
            raise self._lost(self._ending(), step) from None
        except Garbage:
            raise self._lost("wrote to the runner's pipe", step) from None
        except (MemoryError, _Flooded) as error:
            raise WorkerLost("error", str(error), step["index"], step["stage"]) from None
        finally:
            if not self._answered:
                self.kill()

    def _watch(self) -> None:
        """Raises MemoryError or _Flooded before the worker takes the machine, or the disk, down."""
        self._watched.go_on()
        printed = self.output.printed
        if printed > MOST_PRINTED and not self.device.debug:
            most = f"{MOST_PRINTED / 1e6:.1f} MB a stage is the most"
            raise _Flooded(f"printed {printed / 1e6:.1f} MB; {most}")
        held = self._watched.resident_bytes()
        if held > self._most_bytes:
            raise MemoryError(
                f"out of host memory: its process held {held / 1e9:.1f} GB, and may hold "
                f"{self._most_bytes / 1e9:.1f} GB (limits.memory_gb)"
            )

    def outlives(self, seconds: float) -> WorkerLost | None:
        """None when it is still there after that time, idle, or was ended by us; else how it ended."""
        if self._killed:
            return None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return self._lost(_describe_exit(code), {"index": None, "stage": "check"})

    def _limit_s(self, step: dict[str, Any]) -> float:
        return getattr(self.limits, step["stage"] + "_s")

    def _exchange(
        self, name: str, arguments: dict[str, Any], step: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The events of one request. `step` is kept at what was announced last."""
        steps = 0
        deadline = time.monotonic() + self._limit_s(step)
        self.output.count()
        self._pipe.ask(name, arguments, deadline)
        while not self._answered:
            event = self._pipe.event(deadline)
            self._watch()
            if not events.sound(name, arguments, step["index"], event):
                raise Garbage
            if event["event"] == "step":
                steps += 1
                if steps > events.most_steps(name, arguments):
                    raise Garbage
                step |= event
                self.output.count_for(step["index"], step["stage"])
                deadline = time.monotonic() + self._limit_s(step)
            self._answered = event["event"] in ("done", "failed")
            if event["event"] == "failed":
                raise WorkerFailed(event["reason"], step["index"], step["stage"])
            seen = time.monotonic()
            yield event
            deadline += time.monotonic() - seen  # it may have waited for the answer

    def answer(self, **fields: Any) -> None:
        """Answer the event that `call` gave last, where the worker waits for that."""
        self._pipe.answer(fields, time.monotonic() + self.limits.start_s)

    def _ending(self) -> str:
        """Why nothing more comes from the pipe."""
        try:
            return _describe_exit(self._process.wait(_CLOSING_S))
        except subprocess.TimeoutExpired:
            return "closed its pipe to the runner"

    def _lost(self, reason: str, step: dict[str, Any]) -> WorkerLost:
        self.kill()
        tail = self.output.last_line()
        reason += f"; last output: {tail}" if tail else ""
        return WorkerLost("crashed", reason, step["index"], step["stage"])

    @property
    def usable(self) -> bool:
        """Alive, and done with what it was asked last."""
        return self._answered and not self._killed and self._process.poll() is None

    def kill(self) -> None:
        """End the worker and whatever it started (a compiler, say)."""
        if self._killed:  # its number may be another's by now
            return
        lifetimes.end_session(self._process.pid, self._mark)
        self._process.kill()  # where it is too young to have a session
        self._process.wait()
        self._killed = True
        self.output.join()
        self._pipe.close()
        self._watched.close()


class _Flooded(Exception):
    """A variant printed more than a log is for."""


def _environment(device: Device) -> dict[str, str]:
    environment = dict(os.environ)
    environment["PYTHONIOENCODING"] = "utf-8:backslashreplace"  # a variant may print what is no text
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if device.threads:
        environment["OMP_NUM_THREADS"] = str(device.threads)  # for a second OpenMP runtime in a C++ variant
    if device.name == "cpu":
        environment["TRITON_INTERPRET"] = "1"
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if device.debug:
        environment["CUDA_LAUNCH_BLOCKING"] = "1"
    return environment


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"the process exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    words = {"SIGSEGV": "segmentation fault", "SIGABRT": "aborted", "SIGKILL": "killed (out of memory?)"}
    return f"the process died of {name}" + (f", {words[name]}" if name in words else "")


def launch(device: Device, limits: Limits, pool: dict[Device, Worker], log: Log | None = None) -> Worker:
    """The pool's process for a device: the living one, or a new one whose output goes to `log` at once."""
    worker = pool.get(device)
    if worker is None or not worker.usable:
        if worker is not None:
            pool.pop(device).kill()
        pool[device] = worker = Worker(device, limits, log)
    worker.limits = limits
    return worker


def start(device: Device, limits: Limits, pool: dict[Device, Worker], log: Log | None = None) -> Worker:
    """As `launch`, ready to be asked.

    Raises WorkerLost or WorkerFailed, with stage `start`, where none can be started.
    """
    worker = launch(device, limits, pool, log)
    worker.greet()
    return worker
