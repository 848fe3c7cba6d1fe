"""One measurement per device at a time, across processes and users of a machine.

An OS lock that dies with its process. A folder under the temporary one holds a lock file per device and,
beside it, a file that says who holds it. The folder is open to all and not sticky, on purpose: in a
sticky one a user can neither replace another's file nor, by filelock's rule, share its lock. What a
hostile user can do there is break the turns, not reach files elsewhere: symlinks are refused, and what
is read is kept to a line of printable text.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from runner.model import Refusal

_FOLDER = "kernel-runner-locks"
_POLL_S = 0.1
_GRACE_S = 0.5  # between taking the lock and saying so, a holder needs this at most
_MOST_BYTES = 4096
_MOST_COMMAND = 60  # characters of it in the message


def key_of(device_uuid: str) -> str:
    """The lock's name for a device: a GPU's UUID, or this host's CPU where there is none."""
    return device_uuid or f"cpu-{socket.gethostname()}"


@contextlib.contextmanager
def held(
    key: str, device: str, waiting: Callable[[str], None], command: Sequence[str] = ()
) -> Iterator[None]:
    """Hold the device's lock. Another's is waited for, without limit; Ctrl-C ends the wait.

    `waiting` is told once who holds it, when the lock is not free at once. `device` ("cuda:0") and
    `command` are words for such messages. Not re-entrant. Raises Refusal where no lock can be kept.
    """
    path = _folder() / f"{_slug(key)}.lock"
    if path.is_symlink():
        raise Refusal(f"{path} is a symlink, which no run makes: remove it")
    lock = FileLock(path, mode=0o666)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting(f"{device} is being measured by another run{_holder(path)}: waiting (Ctrl-C gives up)")
            lock.acquire(poll_interval=_POLL_S)
    except OSError as error:
        raise _refusal(path, error) from None
    try:
        with _named(path, command):
            yield
    finally:
        lock.release()


@contextlib.contextmanager
def first_free(
    keys: Sequence[str], waiting: Callable[[str], None], command: Sequence[str] = ()
) -> Iterator[str]:
    """Hold the first of the locks that nobody holds; where all are held, wait for one."""
    paths = {key: _folder() / f"{_slug(key)}.lock" for key in keys}
    locks = {key: FileLock(path, mode=0o666) for key, path in paths.items()}
    told = False
    while (taken := next((key for key, lock in locks.items() if _taken(lock)), None)) is None:
        if not told:
            waiting(f"all {len(keys)} GPUs are taken by other runs: waiting")
            told = True
        time.sleep(_POLL_S)
    try:
        with _named(paths[taken], command):
            yield taken
    finally:
        locks[taken].release()


def _taken(lock: FileLock) -> bool:
    """Whether we hold it now."""
    path = Path(lock.lock_file)
    if path.is_symlink():
        raise Refusal(f"{path} is a symlink, which no run makes: remove it")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        raise _refusal(path, error) from None
    return True


def _folder() -> Path:
    """The folder that all users of this machine share, made when it is not there."""
    try:
        folder = Path(tempfile.gettempdir()) / _FOLDER
    except FileNotFoundError:
        raise Refusal("no temporary folder is writable here: set TMPDIR to one that is") from None
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise Refusal(f"{folder} is in the way and is not a folder: remove it")
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != 0o777:
            folder.chmod(0o777)  # mkdir's mode is cut by the umask
    except OSError as error:
        raise _refusal(folder, error) from None
    return folder


def _refusal(path: Path, error: OSError) -> Refusal:
    return Refusal(
        f"the lock that keeps two runs from measuring on one device at a time cannot be kept at {path} "
        f"({error.strerror or error}): make it writable, or set TMPDIR to a folder that is"
    )


def _slug(key: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in key)


def _side(path: Path) -> Path:
    return path.with_suffix(".holder")


@contextlib.contextmanager
def _named(path: Path, command: Sequence[str]) -> Iterator[None]:
    """Say who holds the lock, for as long as it is held."""
    try:
        file = _publish(_side(path), command)
    except OSError as error:
        raise _refusal(path.parent, error) from None
    with file:
        try:
            yield
        finally:
            _side(path).unlink(missing_ok=True)


def _publish(side: Path, command: Sequence[str]) -> IO[str]:
    """Write the file beside the lock. It is locked itself, so that a dead holder's is known as such."""
    descriptor, draft = tempfile.mkstemp(dir=side.parent)
    file = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 - the lock lives as long as it is open
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(json.dumps({"pid": os.getpid(), "since": time.time(), "command": " ".join(command)}))
    file.flush()
    os.fchmod(descriptor, 0o644)
    os.replace(draft, side)  # whatever was there, a symlink too, is replaced and not followed
    return file


def _holder(path: Path) -> str:
    """' (pid 123, since 04:31, op=gelu)', or '' when the holder does not say in time."""
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        said = _read(_side(path))
        if said is not None:
            return _describe(said)
        time.sleep(_POLL_S / 2)
    return ""


def _read(side: Path) -> dict[str, Any] | None:
    """What a living holder wrote; None when there is nothing or its writer is gone."""
    try:
        descriptor = os.open(side, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # its writer lives
            with contextlib.suppress(ValueError):
                said = json.loads(file.read(_MOST_BYTES))
                return said if isinstance(said, dict) else None
        return None


def _describe(said: dict[str, Any]) -> str:
    """Written by another, who may be anybody: numbers must be numbers, text is cut to a line."""
    pid, since, command = said.get("pid"), said.get("since"), said.get("command")
    words = []
    if isinstance(pid, int):
        words.append(f"pid {pid}")
    if isinstance(since, (int, float)):
        with contextlib.suppress(ValueError, OverflowError, OSError):  # no time of any day
            words.append(f"since {_clock_time(since)}")
    if isinstance(command, str) and command:
        printable = "".join(c if c.isprintable() else "?" for c in command)
        words.append(printable[:_MOST_COMMAND] + ("..." if len(printable) > _MOST_COMMAND else ""))
    return f" ({', '.join(words)})" if words else ""


def _clock_time(since: float) -> str:
    """Hours and minutes, with the day where it is another one; local time."""
    then, now = time.localtime(since), time.localtime()
    today = (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M" if today else "%Y-%m-%d %H:%M", then)
