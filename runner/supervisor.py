"""The parent's hold on a worker process: start it, ask it, bound its time, replace it."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, BinaryIO

from runner.model import Limits

_ROOT = Path(__file__).resolve().parent.parent
_LOG_BYTES = 4 << 20  # of a variant's output, per run


@dataclass(frozen=True)
class Device:
    """What a worker is started for; a different one needs a different worker."""

    name: str  # "cpu" or "cuda:N"
    threads: int
    debug: bool


class WorkerLost(Exception):
    """The worker crashed, hung or was told to go. `index` is the entry it had announced, or None."""

    def __init__(self, status: str, reason: str, index: int | None, stage: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.index, self.stage = status, reason, index, stage


class WorkerFailed(Exception):
    """A request failed inside the harness (not in a variant): its reason in one line."""


class Worker:
    """One `python -m runner.worker`. `call` sends a request and yields its events."""

    def __init__(self, device: Device, limits: Limits) -> None:
        self.device, self.limits = device, limits
        self.output = _Output()
        self._pipe, child = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "runner.worker", str(child.fileno())],
            pass_fds=[child.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(device),
            start_new_session=True,  # Ctrl-C is the parent's; kill() takes compilers along
        )
        child.close()
        self.output.echo = device.debug
        self.output.follow(self._process.stdout)
        self.facts = self.ask("hello", limits.start_s, device=device.name, threads=device.threads)["facts"]

    def ask(self, name: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its `done` event, ignoring steps."""
        return list(self.call(name, limit_s, **arguments))[-1]

    def call(self, name: str, limit_s: float, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Send a request; yield its events up to and including `done`.

        Raises WorkerLost when the process dies or a step outlasts its stage's limit, WorkerFailed
        when the harness itself failed in there.
        """
        step = {"index": None, "stage": name}
        try:
            self._pipe.send((name, arguments))
            deadline = time.monotonic() + limit_s
            while True:
                event = self._next(step, deadline, limit_s)
                if event["event"] == "failed":
                    raise WorkerFailed(event["reason"])
                if event["event"] == "step":
                    step = event
                    limit_s = getattr(self.limits, event["stage"] + "_s")
                    deadline = time.monotonic() + limit_s
                yield event
                if event["event"] == "done":
                    return
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._lost(step) from None

    def _next(self, step: dict[str, Any], deadline: float, limit_s: float) -> dict[str, Any]:
        if not self._pipe.poll(max(deadline - time.monotonic(), 0.0)):
            self.kill()
            reason = f"still in {step['stage']} after its limit of {limit_s:g} s (limits.{step['stage']}_s)"
            raise WorkerLost("timeout", reason, step["index"], step["stage"])
        return json.loads(self._pipe.recv_bytes())

    def _lost(self, step: dict[str, Any]) -> WorkerLost:
        self._process.wait()
        self.output.join()
        reason = _describe_exit(self._process.returncode)
        tail = self.output.last_line()
        self.kill()
        return WorkerLost(
            "crashed", reason + (f"; last output: {tail}" if tail else ""), step["index"], step["stage"]
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the worker and whatever it started (a compiler, say)."""
        with contextlib.suppress(ProcessLookupError):  # already gone
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.output.join()
        self._pipe.close()


class _Output:
    """Copies the worker's output to the current run's log, bounded, and remembers its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: BinaryIO | None = None
        self._left = 0
        self._tail: collections.deque[bytes] = collections.deque(maxlen=20)
        self._thread: threading.Thread | None = None
        self._stream: BinaryIO | None = None
        self.echo = False  # also to standard error, for mode=debug

    def send_to(self, log: BinaryIO | None) -> None:
        with self._lock:
            self._log, self._left = log, _LOG_BYTES

    def settle(self) -> None:
        """Wait (a moment at most) until what the worker has written so far is in the log."""
        deadline = time.monotonic() + 0.5
        while self._stream is not None and time.monotonic() < deadline:
            if not select.select([self._stream], [], [], 0.01)[0]:
                return
            time.sleep(0.005)

    def follow(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._thread = threading.Thread(target=self._copy, args=(stream,), daemon=True)
        self._thread.start()

    def _copy(self, stream: BinaryIO) -> None:
        while line := stream.readline(1 << 16):
            with self._lock:
                self._tail.append(line)
                self._write(line)
            if self.echo:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
        self._stream = None
        stream.close()

    def _write(self, line: bytes) -> None:
        if self._log is None or self._left <= 0:
            return
        self._left -= len(line)
        self._log.write(line if self._left > 0 else b"\n[more output was dropped]\n")
        self._log.flush()

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
    if code < 0:
        name = signal.Signals(-code).name
        words = {"SIGSEGV": "segmentation fault", "SIGABRT": "aborted", "SIGKILL": "killed (out of memory?)"}
        return f"the process died of {name}" + (f", {words[name]}" if name in words else "")
    return f"the process exited with code {code}"


def start(device: Device, limits: Limits, pool: dict[Device, Worker]) -> Worker:
    """The pool's worker for a device: the living one, or a new one."""
    worker = pool.get(device)
    if worker is None or not worker.alive:
        pool[device] = worker = Worker(device, limits)
    worker.limits = limits
    return worker
