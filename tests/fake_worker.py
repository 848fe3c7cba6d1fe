"""A worker without torch: the real protocol around a session that runs what a variant's target says.

`python tests/fake_worker.py <fd>`, as the supervisor starts it. A variant's Python code is the text of its
file; `pipe()` in there finds the descriptor that the events go through.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Session:
    def __init__(self, answers):
        self.emit = answers.emit

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

    def prove(self, index, keep, draws=None, code=None):
        if code is None:
            code = Path(self.planned.entries[index].variant.target.path).read_text()
        self.emit("step", index=index, stage="check", what="check")
        answer = {"status": "ok", "stage": "", "reason": ""}
        exec(code, {"answer": answer, "pipe": pipe})
        return answer


def pipe():
    links = {n: Path(f"/proc/self/fd/{n}") for n in sorted(map(int, os.listdir("/proc/self/fd")))}
    return next(n for n, link in links.items() if link.is_symlink() and "socket:" in os.readlink(link))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    module = types.ModuleType("runner.session")
    module.Session = Session
    sys.modules["runner.session"] = module
    from runner import worker

    worker.REQUESTS += ("expect",)  # it is the judge, too
    worker.main(sys.argv)
