"""A fault that shows later is not blamed on whoever runs then; memory that runs out costs its own row."""

from __future__ import annotations

import pytest

from runner import cli, driver
from runner.process import memory, supervisor
from tests.test_supervisor import FAKE, rows_in, words_of

SEGFAULT = "os.kill(os.getpid(), signal.SIGSEGV)"
TIMER = f"import os, signal, threading; threading.Timer(0.5, lambda: {SEGFAULT}).start()"
SPOILS = "import sys; sys.modules['spoiled'] = sys"
MINDS = f"import os, signal, sys; 'spoiled' in sys.modules and {SEGFAULT}"


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    monkeypatch.setattr(supervisor, "_COMMAND", FAKE)
    monkeypatch.setattr(supervisor, "_JUDGE", FAKE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # no device lock of others is waited for
    yield
    driver.shutdown()


def rows(tmp_path, codes, *words, code=1, mode="bench"):
    assert cli.main([*words_of(tmp_path, codes, mode), "trials=3", *words]) == code
    return rows_in(tmp_path)


def status(found):
    return {name: row["status"] for name, row in found.items()}


LATE = {"first": "", "arms": TIMER, "slow": "import time; time.sleep(1.0)", "last": ""}


def test_a_timer_that_ends_the_process_later_is_found(tmp_path):
    found = rows(tmp_path, LATE)
    assert status(found) == {"first": "ok", "arms": "crashed", "slow": "ok", "last": "ok"}
    assert "SIGSEGV" in found["arms"]["reason"]
    assert found["arms"]["reason"].endswith("also when slow had been called after it")


def test_a_timer_that_ends_the_process_after_its_row_was_written_is_told(tmp_path):
    found = rows(tmp_path, LATE, mode="check", code=0)
    assert status(found) == dict.fromkeys(LATE, "checked")
    assert "not when it ran alone: arms did that (the process died of SIGSEGV" in found["slow"]["note"]


# An answer of its own: the harness's is then one to a request that nobody made
FORGES = """
import sys
sys._getframe(1).f_locals["self"].answers.emit("done", status="skipped", stage="", reason="so")
"""
# Ends the process when the next one is to be proven, before that is announced
LURKS = """
import os, sys
sys._getframe(1).f_locals["self"].prove = lambda **told: os._exit(7)
"""


def test_an_end_before_anybody_is_announced_costs_nobody_else_a_row(tmp_path):
    found = rows(tmp_path, {"first": "", "forges": FORGES, "next": "", "last": ""}, code=0)
    assert status(found) == {"first": "ok", "forges": "skipped", "next": "ok", "last": "ok"}


def test_who_ends_the_process_before_the_next_is_announced_is_found(tmp_path):
    found = rows(tmp_path, {"first": "", "lurks": LURKS, "next": "", "last": ""})
    assert status(found) == {"first": "ok", "lurks": "crashed", "next": "ok", "last": "ok"}
    assert found["lurks"]["reason"] == "the process exited with code 7, when next runs after it"


def test_a_worker_that_cannot_make_inputs_costs_every_row_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_INPUTS", "import os; os._exit(7)")
    found = rows(tmp_path, {"first": "", "last": ""})
    assert status(found) == {"first": "crashed", "last": "crashed"}


def test_what_spoils_the_process_for_another_is_found(tmp_path):
    found = rows(tmp_path, {"first": "", "spoils": SPOILS, "between": "", "minds": MINDS})
    assert status(found) == {"first": "ok", "spoils": "crashed", "between": "ok", "minds": "ok"}
    words = "when minds runs after it in one process; each passes alone"
    assert found["spoils"]["reason"].endswith(words)


def test_the_announced_one_is_blamed_where_it_ends_a_process_of_its_own(tmp_path):
    code = f"import os, signal; {SEGFAULT}"
    found = rows(tmp_path, {"first": "", "crashes": code, "last": ""})
    assert status(found) == {"first": "ok", "crashes": "crashed", "last": "ok"}
    assert found["crashes"]["reason"].startswith("the process died of SIGSEGV, segmentation fault")


def test_an_end_that_nobody_repeats_is_told_and_costs_no_row(tmp_path):
    once = tmp_path / "once"
    code = f"import os, signal; from pathlib import Path; p = Path({str(once)!r})"
    code += f"\nif not p.exists(): p.touch(); {SEGFAULT}"
    found = rows(tmp_path, {"first": "", "once": code}, code=0)
    assert status(found) == {"first": "ok", "once": "ok"}
    assert "its process ended once (the process died of SIGSEGV" in found["once"]["note"]
    assert "something that ran in it before may be the cause" in found["once"]["note"]


def test_host_memory_that_runs_out_costs_its_own_row(tmp_path):
    code = "import time; held = []\nfor _ in range(200): held.append(b'x' * (10 << 20)); time.sleep(0.02)"
    found = rows(tmp_path, {"first": "", "grows": code, "last": ""}, "limits.memory_gb=0.5")
    assert status(found) == {"first": "ok", "grows": "error", "last": "ok"}
    assert found["grows"]["reason"].startswith("out of host memory: its process held 0.")
    assert found["grows"]["reason"].endswith("and may hold 0.5 GB (limits.memory_gb)")


def test_memory():
    assert 0 < memory.limit_bytes(None) < memory.available_bytes()
    assert memory.limit_bytes(2) == 2e9


def test_a_worker_is_the_first_to_go(tmp_path):
    worker = supervisor.Worker(supervisor.Device("cpu", 0, False), supervisor.Limits(*[30.0] * 5))
    worker.greet()
    with open(f"/proc/{worker.pid}/oom_score_adj") as file:
        assert file.read().strip() == "1000"
    worker.kill()


def test_who_changed_what_all_share_between_two_looks_is_found(tmp_path):
    found = rows(tmp_path, {"first": "", "changes": "if timed: answer['changed'] = 'the umask'", "last": ""})
    assert status(found) == {"first": "ok", "changes": "wrong", "last": "ok"}
    assert (found["changes"]["stage"], found["changes"]["reason"]) == ("measure", "changed the umask")
    (log,) = tmp_path.rglob("run.log")
    assert "changed the umask: one of several calls, which are timed again" in log.read_text()
