"""What a variant can do to its worker's pipe and processes: it is ended soon, and said which it was."""

from __future__ import annotations

import csv
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from runner import cli, driver
from runner.model import Limits
from runner.process import lifetimes, supervisor, watched
from runner.process.faults import one_line
from runner.process.supervisor import Device, WorkerFailed, WorkerLost
from tests.support import ROOT

DEVICE = Device("cpu", 0, False)
LIMITS = Limits(start_s=30, build_s=30, inputs_s=30, check_s=30, measure_s=30)
FAKE = (str(ROOT / "tests" / "fake_worker.py"),)
YAML = """
name: double
why: an op for tests
dims: [n]
shapes: {{cpu: [{{n: 4}}], cuda: [{{n: 4}}], smoke: [{{n: 3}}]}}
dtypes: [float32]
inputs: {{x: {{shape: [n]}}}}
reference: {{target: torch.neg}}
cost: {{forward: {{flops: n, read: n*itemsize, write: n*itemsize}}}}
baseline: {first}
variants:
{variants}
"""
SLOW_CXX = """#!/bin/sh
case "$*" in
    *" -c "*) ps -o sid= -p $$ > {told}.new; mv {told}.new {told}; sleep 300;;
    *) exec g++ "$@";;
esac
"""


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(supervisor, "_COMMAND", FAKE)
    monkeypatch.setattr(supervisor, "_JUDGE", FAKE)
    yield
    driver.shutdown()


@pytest.fixture
def worker():
    one = supervisor.Worker(DEVICE, LIMITS)
    one.greet()
    yield one
    one.kill()


def prove(worker, code):
    return worker.ask("prove", index=7, keep="", code=code)


def lost(worker, code) -> WorkerLost:
    start = time.monotonic()
    with pytest.raises(WorkerLost) as caught:
        prove(worker, code)
    assert time.monotonic() - start < 8
    assert (caught.value.index, caught.value.stage) == (7, "check")
    assert not worker.usable
    return caught.value


CLOSED = "closed its pipe to the runner"
WROTE = "wrote to the runner's pipe"
HOSTILE = {
    "closes": ("import os, time; os.close(pipe()); time.sleep(60)", CLOSED),
    "closes_and_returns": ("import os; os.close(pipe())", CLOSED),
    "closes_all": ("import os, time; os.closerange(3, 5000); time.sleep(60)", CLOSED),
    "half_a_message": (r"import os; os.write(pipe(), b'\0\0\1\0')", WROTE),
    "no_json": (r"import os; os.write(pipe(), b'hello\n')", WROTE),
    "no_text": (r"import os; os.write(pipe(), b'\xff\n')", WROTE),
    "an_event": (r"""import os; os.write(pipe(), b'{"event": "done", "status": "ok"}\n')""", WROTE),
    **{
        name: (f"import sys; sys._getframe(1).f_locals['self'].emit({event})", WROTE)
        for name, event in {
            "a_step_of_no_stage": "'step', index=7, stage='nosuch', what=''",
            "a_step_of_another": "'step', index=0, stage='check', what=''",
            "a_step_of_nobody": "'step', index=None, stage='inputs', what=''",
            "a_step_of_no_number": "'step', index=[7], stage='check', what=''",
            "half_a_step": "'step'",
            "an_output_of_another": "'output', index=0, position=0, place='', fault='', round=None, call=''",
            "an_output_beside": "'output', index=7, position=3, place='', fault='', round=None, call=''",
            "a_draw_of_its_own": "'fresh', what='values'",
            "a_series_too_early": "'series', index=7",
            "an_answer_without_a_verdict": "'done'",
            "a_figure_of_the_judges": "'done', status='ok', stage='', reason='', max_abs_err=0.0",
            "notes_of_another_kind": "'done', status='ok', stage='', reason='', notes=7",
            "a_failure_without_words": "'failed'",
        }.items()
    },
    "steps_without_end": (
        "import sys\n"
        "while True: sys._getframe(1).f_locals['self'].emit('step', index=7, stage='check', what='')",
        WROTE,
    ),
    "another_shape": (r"import os; os.write(pipe(), b'[1]\n')", WROTE),
    "deep": (r"import os; os.write(pipe(), b'[' * 100000 + b'\n')", WROTE),
    "dies_and_leaves_a_child": (
        "import os, signal, time; os.fork() or time.sleep(30); os.kill(os.getpid(), signal.SIGSEGV)",
        "SIGSEGV",
    ),
    "dies_and_leaves_a_bare_fork": (
        "import ctypes, os, signal, time; ctypes.CDLL(None).fork() or time.sleep(30); "
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "SIGSEGV",
    ),
    "a_signal_without_a_name": ("import os; os.kill(os.getpid(), 40)", "signal 40"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_pipe_in_a_variants_hands(worker, name):
    code, words = HOSTILE[name]
    found = lost(worker, code)
    assert found.status == "crashed" and words in found.reason
    assert lifetimes.members(worker.facts["pid"]) == []


@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.CDLL(None).fork()"])
def test_a_fork_that_comes_back_answers_nothing(worker, fork):
    for _ in range(3):
        answer = prove(worker, f"import ctypes, os; {fork}; answer['reason'] = str(os.getpid())")
        assert answer["reason"] == str(worker.facts["pid"])


def test_a_child_that_a_thread_started_is_found():
    started, end = [], threading.Event()

    def start():
        started.append(subprocess.Popen(["sleep", "60"]))
        end.wait(30)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        while not started:
            time.sleep(0.01)
        assert started[0].pid in lifetimes.children()
    finally:
        end.set()
        started[0].kill()
        started[0].wait()
        thread.join()
    assert started[0].pid not in lifetimes.children()


def test_children_do_not_inherit_the_pipe(worker):
    code = """
import os, subprocess
left = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True).stdout
answer["reason"] = f"{pipe() > 900} {'socket:' in left}"
"""
    assert prove(worker, code)["reason"] == "True False"


def test_what_is_no_text_comes_through(worker):
    reason = prove(worker, "answer['reason'] = 'bad \\udcff'; print('\\udcff')")["reason"]
    assert reason == "bad \udcff"


def test_a_failure_of_the_harness_names_the_step(worker):
    with pytest.raises(WorkerFailed) as caught:
        prove(worker, "raise KeyError('ours')")
    assert (caught.value.index, caught.value.stage) == (7, "check")
    assert str(caught.value) == "KeyError: 'ours'"
    assert worker.usable and prove(worker, "")["status"] == "ok"
    with pytest.raises(WorkerFailed) as caught:
        worker.ask("traps")
    assert (caught.value.index, caught.value.stage) == (None, "measure")


def test_a_limit_is_named_by_its_key(worker):
    worker.limits = Limits(start_s=30, build_s=30, inputs_s=30, check_s=0.2, measure_s=30)
    found = lost(worker, "import time; time.sleep(60)")
    assert found.status == "timeout"
    assert found.reason == "still in check after its limit of 0.2 s (limits.check_s)"


def test_a_limit_that_no_variant_reached_says_what_went_on(monkeypatch):
    monkeypatch.setenv("FAKE_CEILINGS_S", "60")
    worker = supervisor.Worker(DEVICE, LIMITS)
    worker.greet()
    worker.limits = Limits(start_s=30, build_s=30, inputs_s=30, check_s=30, measure_s=0.2)
    with pytest.raises(WorkerLost) as caught:
        worker.ask("ceilings", refresh=False)
    assert caught.value.index is None
    assert caught.value.reason == (
        "still in measure of the device's ceilings after its limit of 0.2 s (limits.measure_s)"
    )


def test_an_unlimited_limit():
    limits = Limits(*[1e300] * 5)
    worker = supervisor.Worker(DEVICE, limits)
    worker.greet()
    assert prove(worker, "")["status"] == "ok"
    worker.kill()


def test_a_request_left_alone_costs_the_worker(worker):
    pool = {DEVICE: worker}
    events = worker.call("prove", index=7, keep="", code="import time; time.sleep(60)")
    assert next(events)["event"] == "step"
    events.close()
    assert not worker.usable
    assert supervisor.start(DEVICE, LIMITS, pool) is pool[DEVICE] is not worker
    pool[DEVICE].kill()


COMPILER = "import subprocess; subprocess.Popen(['sleep', '300'], process_group=0)"


def test_compilers_end_with_their_worker(worker):
    session = worker.facts["pid"]
    prove(worker, COMPILER)
    assert len(lifetimes.members(session)) == 2
    worker.kill()
    assert lifetimes.members(session) == []


def gone(session: int, within_s: float = 2.0) -> bool:
    deadline = time.monotonic() + within_s
    while lifetimes.members(session) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not lifetimes.members(session)


def test_compilers_end_with_a_worker_that_nobody_ends(worker):
    prove(worker, COMPILER)
    os.kill(worker.facts["pid"], signal.SIGKILL)
    assert gone(worker.facts["pid"])


LEAVERS = {
    "a session of its own": "subprocess.Popen(['sleep', '299'], start_new_session=True)",
    "a fork": "os.fork() or (os.setsid(), os.fork() and os._exit(0), open(told, 'a'), time.sleep(299))",
    "no environment": "subprocess.Popen(['sleep', '299'], start_new_session=True, env={})",
    "an orphan without one": "subprocess.run(['/usr/bin/setsid', '-f', '/bin/sleep', '299'], env={})",
}


def leave(worker, name) -> set[int]:
    """What a variant started and sent out of the session; none of them is there yet when it answers."""
    before = lifetimes.family(worker.facts["pid"])
    prove(worker, f"import os, subprocess, time; told = '/dev/null'; {LEAVERS[name]}")
    deadline = time.monotonic() + 5
    while not (left := lifetimes.family(worker.facts["pid"]) - before - inside(worker)):
        assert time.monotonic() < deadline, "nothing left the session"
        time.sleep(0.02)
    return left


def inside(worker) -> set[int]:
    return set(lifetimes.members(worker.facts["pid"]))


def end_of(pids: set[int], within_s: float = 3.0) -> bool:
    deadline = time.monotonic() + within_s
    while (living := pids & {pid for pid, _, _ in lifetimes._living()}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not living


@pytest.mark.parametrize("name", LEAVERS)
def test_what_leaves_the_session_ends_with_its_worker(worker, name):
    left = leave(worker, name)
    worker.kill()
    assert end_of(left)


@pytest.mark.parametrize("name", ["a session of its own", "a fork"])
def test_what_leaves_the_session_ends_with_a_worker_that_nobody_ends(worker, name):
    left = leave(worker, name)
    os.kill(worker.facts["pid"], signal.SIGKILL)
    assert end_of(left)


def test_a_reason_is_one_line_of_bounded_length():
    assert one_line(ValueError("a\nb")) == "ValueError: a"
    assert len(one_line(ValueError("x" * 10_000))) == 500
    assert one_line(ValueError("x" * 10_000)).endswith("...")

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert one_line(Mute()) == "Mute: (its message cannot be read: RuntimeError)"


# ---- whole runs ----


def write_op(folder: Path, codes: dict[str, str]) -> Path:
    (folder / "conf" / "op").mkdir(parents=True)
    for name, code in codes.items():
        (folder / f"{name}.py").write_text(f"def f(x): ...\n{code}\n")
    lines = "\n".join(f"  {name}: {{target: '{folder / name}.py:f'}}" for name in codes)
    text = YAML.format(variants=lines, first=next(iter(codes)))
    (folder / "conf" / "op" / "double.yaml").write_text(text)
    return folder / "conf"


def words_of(tmp_path: Path, codes: dict[str, str], mode: str = "check") -> list[str]:
    conf = write_op(tmp_path, codes)
    fixed = ["op=double", "variant=all", "device=cpu", f"mode={mode}", f"output={tmp_path / 'out'}"]
    return ["--config-dir", str(conf), *fixed]


def rows_in(folder: Path) -> dict[str, dict[str, str]]:
    (path,) = [p for p in folder.rglob("results.csv") if "double" in p.parent.parent.name]
    with open(path, newline="", encoding="utf-8") as file:
        return {row["variant"]: row for row in csv.DictReader(file)}


def test_a_worker_that_does_not_start_gives_every_row(tmp_path, monkeypatch, capsys):
    codes = {"right": "", "other": ""}
    words = words_of(tmp_path, codes)
    assert cli.main([*words, "limits.start_s=0.001"]) == 1
    rows = rows_in(tmp_path)
    assert {(r["status"], r["stage"]) for r in rows.values()} == {("timeout", "start")} and len(rows) == 2
    assert rows["right"]["reason"] == "still in start after its limit of 0.001 s (limits.start_s)"
    monkeypatch.setenv("FAKE_HELLO", "import sys; sys.exit('no luck')")
    assert cli.main([*words, f"output={tmp_path / 'dies'}"]) == 1
    rows = rows_in(tmp_path / "dies")
    assert {(r["status"], r["stage"]) for r in rows.values()} == {("crashed", "start")}
    assert "code 1; last output: no luck" in rows["right"]["reason"]
    monkeypatch.setenv("FAKE_HELLO", "raise ValueError('no device')")
    assert cli.main([*words, f"output={tmp_path / 'fails'}"]) == 1
    rows = rows_in(tmp_path / "fails")
    assert {(r["status"], r["stage"], r["reason"]) for r in rows.values()} == {
        ("error", "start", "ValueError: no device")
    }
    assert "Traceback" not in capsys.readouterr().err


def test_hostile_words_keep_every_row(tmp_path):
    codes = {
        "surrogate": "answer.update(status='wrong', reason='bad name \\udcff')",
        "lines": r"answer.update(status='wrong', reason='a\0b\x1bc\u2028d\x85e\nf')",
        "long": "answer.update(status='wrong', reason='x' * 200_000)",
    }
    assert cli.main(words_of(tmp_path, codes)) == 1
    rows = rows_in(tmp_path)
    assert rows["surrogate"]["reason"] == r"bad name \udcff"
    assert rows["lines"]["reason"] == r"a\x00b\x1bc d e f"
    assert len(rows["long"]["reason"]) == 2000 and rows["long"]["reason"].endswith("...")
    assert list(tmp_path.rglob("report.md"))


def test_a_folder_removed_meanwhile_is_a_sentence(tmp_path, capsys):
    out = tmp_path / "out"
    code = f"import shutil; shutil.rmtree({str(out)!r}); answer['status'] = 'wrong'"
    assert cli.main(words_of(tmp_path, {"first": "", "removes": code})) == 2
    err = capsys.readouterr().err
    assert "runner: output: the folder was removed while the run worked" in err and "Traceback" not in err


SHELL = """
import sys
from runner import cli
from runner.process import supervisor
supervisor._COMMAND = supervisor._JUDGE = ({fake!r},)
sys.exit(cli.main(sys.argv[1:]))
"""


def shell(*words: str) -> subprocess.Popen:
    code = SHELL.format(fake=FAKE[0])
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, within_s: float = 60.0) -> str:
    deadline = time.monotonic() + within_s
    while not path.is_file():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text()


ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


def at_work(told: Path, then: str) -> str:
    """Code of a variant that tells its session, starts a compiler and goes on with `then`."""
    draft = f"{told}.new"
    return f"""
import os, subprocess, time
subprocess.Popen(["sleep", "300"], process_group=0)
open({draft!r}, "w").write(str(os.getpid())); os.rename({draft!r}, {str(told)!r})
{then}
"""


@pytest.mark.parametrize(("number", "code", "word"), ENDS)
@pytest.mark.parametrize("sweep", [(), ("-m", "seed=1,2")])
def test_a_second_end_from_outside_stops_at_once_and_keeps_what_was_finished(
    tmp_path, number, code, word, sweep
):
    told = tmp_path / "told"
    codes = {"first": "answer['status'] = 'wrong'", "hangs": at_work(told, "time.sleep(300)")}
    run = shell(*words_of(tmp_path, codes), *sweep)
    session = int(wait_for(told))
    run.send_signal(number)
    time.sleep(0.5)
    assert run.poll() is None
    run.send_signal(number)
    _, err = run.communicate(timeout=30)
    assert run.returncode == code
    assert "runner: finishing the check of hangs; a second Ctrl-C stops at once" in err
    assert f"runner: {word}" in err and "Traceback" not in err
    (folder,) = {path.parent for path in (tmp_path / "out").rglob("planned.json")}
    assert f"runner: python -m runner resume={folder} does the rest\n" in err
    assert gone(session)
    if not sweep:
        assert list(rows_in(tmp_path)) == ["first"]
    reports = list((tmp_path / "out").rglob("report.md"))
    assert len(reports) == (2 if sweep else 1)


@pytest.mark.parametrize(("number", "code", "word"), ENDS)
@pytest.mark.parametrize("mode", ["check", "bench"])
def test_an_end_from_outside_lets_the_row_at_hand_be_finished(
    tmp_path, monkeypatch, number, code, word, mode
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # no device lock of others is waited for
    told = tmp_path / "told"
    code_of_slow = f"if timed == {mode == 'bench'}:\n    exec({at_work(told, 'time.sleep(1.0)')!r})"
    codes = {"slow": code_of_slow, "later": ""}
    run = shell(*words_of(tmp_path, codes, mode), "trials=3")
    session = int(wait_for(told))
    run.send_signal(number)
    _, err = run.communicate(timeout=30)
    assert run.returncode == code
    what = "the check of slow" if mode == "check" else "the rows that are being timed (at most 600 s)"
    assert f"runner: finishing {what}; a second Ctrl-C stops at once" in err
    assert f"runner: {word}" in err and "Traceback" not in err
    assert gone(session)
    found = {name: row["status"] for name, row in rows_in(tmp_path).items()}
    assert found == ({"slow": "checked"} if mode == "check" else {"slow": "ok", "later": "ok"})
    (report,) = (tmp_path / "out").rglob("report.md")
    assert "slow" in report.read_text()
    assert cli.main([f"resume={report.parent}"]) == 0
    assert set(rows_in(tmp_path)) == {"slow", "later"}


def test_a_killed_parent_leaves_no_compiler(tmp_path, monkeypatch):
    told, compiler = tmp_path / "told", tmp_path / "slow-g++"
    compiler.write_text(SLOW_CXX.format(told=told))
    compiler.chmod(0o755)
    (tmp_path / "slow.cpp").write_text("int value() { return 1; }\n")
    words = words_of(tmp_path, {"right": ""})
    file = tmp_path / "conf" / "op" / "double.yaml"
    target = f"{{target: torch.ops.slow.value, sources: ['{tmp_path / 'slow.cpp'}']}}"
    file.write_text(file.read_text().replace(f"{{target: '{tmp_path / 'right'}.py:f'}}", target))
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "cache"))
    run = subprocess.Popen(
        [sys.executable, "-m", "runner", *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    session = int(wait_for(told))
    assert len(lifetimes.members(session)) >= 3  # the worker, ninja, the compiler
    run.kill()
    run.communicate()
    assert gone(session)


def test_who_starts_after_its_parents_end_ends_at_once():
    ours, child = socket.socketpair()
    code = f"from runner.process import serving; serving.prepare({child.fileno()}); print('went on')"
    with child:
        command = [sys.executable, "-c", code]
        started = {"pass_fds": [child.fileno()], "cwd": ROOT, "capture_output": True, "text": True}
        assert subprocess.run(command, **started).stdout == "went on\n"
        ours.close()
        assert subprocess.run(command, **started).stdout == ""


def test_a_stopped_process_is_had_go_on():
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        watched.Watched(process.pid).go_on()
        found = os.waitpid(process.pid, os.WCONTINUED)[1]
        process.kill()
    assert os.WIFCONTINUED(found)


def test_what_is_known_of_a_process_goes_with_it():
    with subprocess.Popen(["sleep", "60"]) as process:
        known = watched.Watched(process.pid)
        assert known.resident_bytes() > 0
        process.kill()
    assert known.resident_bytes() == 0
    known.go_on()  # nobody is told: its number may be another's by now
    known.close()
    known.close()
    assert known.resident_bytes() == 0
    assert watched.Watched(1 << 30).resident_bytes() == 0
