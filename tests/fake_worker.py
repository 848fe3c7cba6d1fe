"""A worker without torch: the real protocol around a session that runs what a variant's target says.

`python tests/fake_worker.py <fd>`, as the supervisor starts it. A variant's Python code is the text of its
file; `pipe()` in there finds the descriptor that the events go through.
"""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Session:
    def __init__(self, answers):
        self.answers, self.emit = answers, answers.emit

    def hello(self, device, threads):
        exec(os.environ.get("FAKE_HELLO", ""))
        return {"facts": {"device_name": "fake", "device_uuid": "", "pid": os.getpid()}}

    def open(self, planned, way=""):
        self.planned = planned
        return {"status": "open"}

    def expect(self, **told):
        return {"status": "ready", "out_shape": [], "shapes": []}

    def close(self):
        pass

    def ceilings(self, refresh):
        self.emit("step", index=None, stage="measure", what="the device's ceilings")
        time.sleep(float(os.environ.get("FAKE_CEILINGS_S", 0)))
        curve = [[1024, 1.0], [4096, 2.0]]
        bandwidth = dict.fromkeys(("read", "triad", "copy", "write"), curve)
        known = {
            "bandwidth": bandwidth,
            "tflops": {"fp32": 1.0},
            "device": "fake",
            "device_type": "cpu",
            "note": "",
        }
        return {"ceilings": known}

    def measure(self, indices, how, judge, each):
        """Three trials each; a variant's code runs again before them, with `timed` set."""
        for index in indices:
            self.emit("step", index=index, stage="measure", what="trial")
            answer = {}
            exec(self.code(index), {"answer": answer, "pipe": pipe, "timed": True})
            if "changed" in answer:  # known whose it was only where each call is looked at
                return {"tampered": index if each else None, "reason": f"changed {answer['changed']}"}
            self.shown(index, 2)
            time.sleep(float(os.environ.get("FAKE_SLOW_S", 0)))
        for index in indices:
            times = {"device_us": [9.0, 10.0, 11.0], "host_us": [1.0] * 3, "start_ns": [0, 1, 2]}
            order = {"rounds": [0, 1, 2], "turns": [0] * 3, "held": 0, "end_to_end_us": None}
            fresh = {"fresh": [], "beside_us": [], "again_us": [], "warmup_us": []}
            self.emit("series", index=index, stop_reason="trials", **times, **order, **fresh)
        card = {"sm_mhz_samples": [], "throttle": [], "card_notes": []}
        return {"event_overhead_us": 0.0, "card": card, "checking_s": 0.0, "timing_s": 0.0}

    def shown(self, index, round_, position=0):
        """Have an output judged, as the real one does."""
        event = {"index": index, "position": position, "round": round_, "place": "", "fault": "", "call": ""}
        self.answers.ask("output", **event)

    def look(self, **told):
        return {"reason": ""}

    def code(self, index):
        return Path(self.planned.entries[index].variant.target.path).read_text()

    def prove(self, index, keep, draws=None, code=None):
        if code is None:
            code = self.code(index)
        exec(os.environ.get("FAKE_INPUTS", ""))
        self.emit("step", index=index, stage="check", what="check")
        answer = {"status": "ok", "stage": "", "reason": ""}
        exec(code, {"answer": answer, "pipe": pipe, "timed": False})
        time.sleep(float(os.environ.get("FAKE_SLOW_S", 0)))
        if draws and answer["status"] == "ok":
            self.shown(index, None, next(iter(draws)))
        return answer


def pipe():
    links = {n: Path(f"/proc/self/fd/{n}") for n in sorted(map(int, os.listdir("/proc/self/fd")))}
    return next(n for n, link in links.items() if link.is_symlink() and "socket:" in os.readlink(link))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    module = types.ModuleType("runner.worker.session")
    module.Session = Session
    sys.modules["runner.worker.session"] = module
    from runner.worker import __main__ as worker

    worker.REQUESTS += ("expect", "look")  # it is the judge, too
    worker.main(sys.argv)
