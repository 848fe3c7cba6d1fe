"""`check=sanitizer`: a variant's small cases under NVIDIA's compute-sanitizer, a process for each tool."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from runner.config import devices
from runner.files import ROOT
from runner.model import Case, Entry, PlannedCase
from runner.op.extras import is_small
from runner.process import lifetimes

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_FOUND = 86  # the exit code that it is told to give
_IDLE = re.compile(r"COMPUTE-SANITIZER|SUMMARY|^\s*$|Target application|Internal Sanitizer")


def verdict(planned: PlannedCase, entry: Entry, device: str, limit_s: float) -> dict[str, Any]:
    """Facts that speak against a variant; empty when no tool found anything, or it has no small case."""
    cases = _small(planned, entry)
    if not cases:
        return {"notes": ["compute-sanitizer: no case is small enough for it"]}
    with tempfile.TemporaryDirectory(prefix="runner-sanitizer-") as folder:
        request = Path(folder) / "request"
        request.write_bytes(pickle.dumps((entry, cases, device)))
        for tool in TOOLS:
            reason, status = _run(tool, request, limit_s)
            if reason:
                return {"status": status, "stage": "check", "reason": f"compute-sanitizer {tool}: {reason}"}
    return {"notes": ["compute-sanitizer found nothing"]}


def _small(planned: PlannedCase, entry: Entry) -> list[Case]:
    positions = dict.fromkeys((0, *planned.positions(entry)))
    return [case for case in (planned.checked[p] for p in positions) if is_small(case)]


def _run(tool: str, request: Path, limit_s: float) -> tuple[str, str]:
    """(what it found, the row's status) of one tool; an empty text when it found nothing."""
    log = request.with_name(tool)
    options = ["--tool", tool, "--error-exitcode", str(_FOUND), "--log-file", str(log)]
    child = subprocess.Popen(
        [devices.sanitizer(), *options, sys.executable, "-m", "runner.check.sanitized", str(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},  # each tensor an allocation that it sees
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"still running after {limit_s:g} s (limits.check_s)", "timeout"
    finally:
        lifetimes.end_session(child.pid)
        child.wait()
    found = first_finding(log.read_text(errors="replace") if log.exists() else "")
    if found or child.returncode == _FOUND:
        return found or "it found an error", "wrong"
    if child.returncode:
        last = output.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        return f"ended with code {child.returncode}: {last[0][:300]}", "error"
    return "", ""


def first_finding(log: str) -> str:
    """The first finding of a compute-sanitizer log: its first line, and the kernel it is in."""
    lines = [line.removeprefix("=========").strip() for line in log.splitlines() if line.startswith("=====")]
    summary = re.findall(r"SUMMARY: (\d+)", log)
    if summary and all(int(count) == 0 for count in summary):
        return ""
    told = next((line for line in lines if not _IDLE.search(line)), "")
    kernel = next(
        (match[1] for line in lines if (match := re.match(r"at (?:[\w.]+:\d+:)?(\S.*?)(?:\+0x|$)", line))), ""
    )
    return told + (f" in {kernel}" if told and kernel and kernel not in told else "")
