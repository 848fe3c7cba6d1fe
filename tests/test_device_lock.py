"""The lock between real processes: it excludes, it dies with its holder, and it says who holds it."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from runner.model import Refusal
from runner.process import device_lock
from runner.process.device_lock import held, key_of

_ROOT = Path(__file__).resolve().parent.parent

_HOLD = """
import sys, time
from runner.process.device_lock import held
with held(sys.argv[1], "cuda:0", lambda text: print(text, flush=True), ["op=gelu", "variant=all"]):
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
"""


@pytest.fixture
def temp(tmp_path, monkeypatch):
    """A temporary folder of this test's own, for this process and those it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def start(temp):
    """Starts a process that takes the lock and holds it until its stdin says otherwise."""
    started = []

    def one(key="GPU-1"):
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=_ROOT,
        )
        started.append(process)
        return process

    yield one
    for process in started:
        process.kill()
        process.communicate()


def line(process):
    return process.stdout.readline().rstrip("\n")


def silent(text):
    raise AssertionError(f"nobody holds it, but: {text}")


def lock_file(temp, key="GPU-1"):
    return temp / "kernel-runner-locks" / f"{key}.lock"


def test_a_free_device_is_taken_without_a_word(temp):
    with held("GPU-1", "cuda:0", silent):
        said = json.loads(lock_file(temp).with_suffix(".holder").read_text())
        assert said["pid"] == os.getpid()
    assert not lock_file(temp).with_suffix(".holder").exists()
    with held("GPU-1", "cuda:0", silent):
        pass


def test_the_second_waits_says_so_once_and_goes_on(start):
    first = start()
    assert line(first) == "held"
    second = start()
    waiting = line(second)
    assert waiting.startswith(f"cuda:0 is being measured by another run (pid {first.pid}, since ")
    assert waiting.endswith(", op=gelu variant=all): waiting (Ctrl-C gives up)")
    time.sleep(0.5)
    assert second.poll() is None
    first.stdin.write("\n")
    first.stdin.flush()
    assert line(first) == "let go"
    assert line(second) == "held"  # the very next line: it spoke once


def test_a_killed_holder_frees_the_device(start, temp):
    first = start()
    assert line(first) == "held"
    second = start()
    assert str(first.pid) in line(second)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert line(second) == "held"
    said = json.loads(lock_file(temp).with_suffix(".holder").read_text())
    assert said["pid"] == second.pid  # the dead one's words are gone


def test_a_dead_holders_words_do_not_name_the_living_one(start, temp):
    first = start()
    assert line(first) == "held"
    first.kill()
    first.wait()
    stale = lock_file(temp).with_suffix(".holder")
    assert json.loads(stale.read_text())["pid"] == first.pid
    assert device_lock._read(stale) is None
    with held("GPU-1", "cuda:0", silent):
        assert device_lock._read(stale)["pid"] == os.getpid()


def test_a_holder_that_says_nothing_is_still_waited_for(start, temp):
    first = start()
    assert line(first) == "held"
    lock_file(temp).with_suffix(".holder").unlink()
    assert line(start()) == "cuda:0 is being measured by another run: waiting (Ctrl-C gives up)"


def test_devices_do_not_wait_for_each_other(start):
    first, second = start("GPU-1"), start("GPU-2")
    assert (line(first), line(second)) == ("held", "held")


def test_ctrl_c_ends_the_wait(start):
    first = start()
    assert line(first) == "held"
    second = start()
    assert "waiting" in line(second)
    second.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in second.communicate(timeout=10)[0]
    assert first.poll() is None


def test_an_error_inside_lets_go(temp):
    with pytest.raises(ZeroDivisionError), held("GPU-1", "cuda:0", silent):
        raise ZeroDivisionError
    with held("GPU-1", "cuda:0", silent):
        pass


def test_every_user_may_lock_whatever_the_umask(temp):
    before = os.umask(0o077)
    try:
        with held("GPU-1", "cuda:0", silent):
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (lock_file(temp).parent, lock_file(temp))]
            side = stat.S_IMODE(lock_file(temp).with_suffix(".holder").stat().st_mode)
    finally:
        os.umask(before)
    assert (modes, side) == ([0o777, 0o666], 0o644)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's identity")
def test_two_users_share_a_lock(temp):
    for folder in (temp, *temp.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o111)
    with held("GPU-1", "cuda:0", silent):
        pass
    heard = []
    try:
        os.seteuid(65534)
        with held("GPU-1", "cuda:0", heard.append):
            assert lock_file(temp).stat().st_uid == 0
            assert lock_file(temp).with_suffix(".holder").stat().st_uid == 65534
    finally:
        os.seteuid(0)
    assert heard == []


def test_a_planted_symlink_is_refused_and_not_followed(temp):
    victim = temp / "victim"
    victim.write_text("precious")
    with held("GPU-1", "cuda:0", silent):
        pass
    lock_file(temp).unlink(missing_ok=True)
    lock_file(temp).symlink_to(victim)
    with pytest.raises(Refusal, match="symlink"), held("GPU-1", "cuda:0", silent):
        pass
    lock_file(temp).unlink()
    side = lock_file(temp).with_suffix(".holder")
    side.symlink_to(victim)
    with held("GPU-1", "cuda:0", silent):
        assert not side.is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("plant", ["file", "symlink"])
def test_something_else_in_the_folders_place_is_refused(temp, plant):
    folder = temp / "kernel-runner-locks"
    if plant == "file":
        folder.write_text("")
    else:
        (temp / "elsewhere").mkdir()
        folder.symlink_to(temp / "elsewhere")
    with pytest.raises(Refusal, match="not a folder"), held("GPU-1", "cuda:0", silent):
        pass


def test_an_unwritable_place_is_one_sentence(temp, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    sentence = r"\(Permission denied\): make it writable, or set TMPDIR"
    with pytest.raises(Refusal, match=sentence), held("GPU-1", "cuda:0", silent):
        pass


def test_no_temporary_folder_at_all(monkeypatch):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(Refusal, match="set TMPDIR"), held("GPU-1", "cuda:0", silent):
        pass


def test_keys():
    assert key_of("8f91017d-cc6f") == "8f91017d-cc6f"
    assert key_of("").startswith("cpu-")
    assert device_lock._slug("../a b/ü") == "..-a-b--"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, ""),
        ({"pid": "7; rm", "since": "now", "command": 3}, ""),
        ({"pid": 7, "since": 1e300}, " (pid 7)"),
        ({"pid": 7, "command": "a\x1b[31m\nb"}, " (pid 7, a?[31m?b)"),
        ({"command": "x" * 100}, f" ({'x' * 60}...)"),
    ],
)
def test_what_another_wrote_is_not_trusted(said, text):
    assert device_lock._describe(said) == text


def test_another_day_is_named():
    assert device_lock._describe({"pid": 7, "since": 86400 * 180.0}).startswith(" (pid 7, since 1970-06-")
