"""The parent's hold on a worker or judge process: start it, ask it, bound its time, replace it."""

from __future__ import annotations

import collections
import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from runner import memory, processes
from runner.model import Limits
from runner.pipe import Garbage, Pipe

_ROOT = Path(__file__).resolve().parent.parent
_COMMAND = ("-m", "runner.worker")
_JUDGE = ("-m", "runner.judge")
_MOST_PRINTED = 1 << 20  # bytes, by one variant in one stage of a request
_FAULT = b"Fatal Python error: "
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


class Log(Protocol):
    """What a worker's output is written to, in whole lines mostly."""

    def write(self, line: bytes) -> object:
        """Raises OSError where the disk does not take it."""


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
    """One `python -m runner.worker` or `runner.judge`. `call` sends a request and yields its events.

    It is told hello by `greet`, so that two can start at the same time.
    """

    def __init__(self, device: Device, limits: Limits, log: Log | None = None) -> None:
        self.device, self.limits = device, limits
        self.output = _Output()
        self.output.send_to(log)
        self._answered, self._killed = True, False
        self.ran: list[tuple[str, int, float]] = []  # case, index and time of what it was asked to prove
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
                env=_environment(device) | {processes.MARK: self._mark},
                start_new_session=True,  # Ctrl-C is the parent's; kill() takes compilers along
            )
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
            reason = f"still in {stage} after its limit of {limit_s:g} s (limits.{stage}_s)"
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
        printed = self.output.printed
        if printed > _MOST_PRINTED and not self.device.debug:
            most = f"{_MOST_PRINTED / 1e6:.1f} MB a stage is the most"
            raise _Flooded(f"printed {printed / 1e6:.1f} MB; {most}")
        held = memory.resident_bytes(self._process.pid)
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
        deadline = time.monotonic() + self._limit_s(step)
        self.output.count()
        self._pipe.ask(name, arguments, deadline)
        while not self._answered:
            event = self._pipe.event(deadline)
            self._watch()
            if event["event"] == "step":
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
        processes.end_session(self._process.pid, self._mark)
        self._process.kill()  # where it is too young to have a session
        self._process.wait()
        self._killed = True
        self.output.join()
        self._pipe.close()


class _Flooded(Exception):
    """A variant printed more than a log is for."""


class _Output:
    """Copies the worker's output to the current run's log, bounded, and remembers its end and its size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: Log | None = None
        self._tail: collections.deque[bytes] = collections.deque(maxlen=20)
        self._dying = False
        self._thread: threading.Thread | None = None
        self._stream: BinaryIO | None = None
        self.echo = False  # also to standard error, for mode=debug
        self.count()

    def send_to(self, log: Log | None) -> None:
        with self._lock:
            self._log = log

    def count(self) -> None:
        """From here on, for another request."""
        self._printed: collections.Counter[tuple] = collections.Counter()
        self._whose: tuple = ()

    def count_for(self, *whose: Any) -> None:
        """What comes now is of this variant and stage."""
        self._whose = whose

    @property
    def printed(self) -> int:
        """Bytes that came for whom it is counted now."""
        return self._printed[self._whose]

    def settle(self) -> None:
        """Wait (a moment at most) until what the worker has written so far is in the log."""
        if self._stream is None:
            return
        unread = select.poll()  # select() takes no descriptor above 1023, and a caller may have thousands
        unread.register(self._stream, select.POLLIN)
        deadline = time.monotonic() + 0.5
        while self._stream is not None and time.monotonic() < deadline and unread.poll(10):
            time.sleep(0.005)

    def follow(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._thread = threading.Thread(target=self._copy, args=(stream,), daemon=True)
        self._thread.start()

    def _copy(self, stream: BinaryIO) -> None:
        while line := stream.readline(1 << 16):
            self._printed[self._whose] += len(line)
            with self._lock:
                self._remember(line)
                self._write(line)
            if self.echo:
                with contextlib.suppress(OSError):  # nobody looks any more; the worker must not wait for that
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
        self._stream = None
        stream.close()

    def _remember(self, line: bytes) -> None:
        """Up to where Python's fault handler begins: what was said before (by glibc, say) is the reason."""
        self._dying = self._dying or line.startswith(_FAULT)
        if not self._dying:
            self._tail.append(line)

    def _write(self, line: bytes) -> None:
        """A stage's first megabyte: whoever prints more is ended for it."""
        if self._log is None or self.printed > _MOST_PRINTED:
            return
        try:
            self._log.write(line)
        except OSError:  # a full disk: the rows say so, and the worker must not wait
            self._log = None

    def join(self) -> None:
        """Wait until what the worker had written is read (a grandchild may hold the pipe open)."""
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def last_line(self) -> str:
        with self._lock:
            lines = [line.decode(errors="replace").strip() for line in self._tail]
        return next((line for line in reversed(lines) if line), "")[:300]


def _environment(device: Device) -> dict[str, str]:
    environment = dict(os.environ)
    environment["PYTHONIOENCODING"] = "utf-8:backslashreplace"  # a variant may print what is no text
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
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
