"""What a run or a sweep was started with: kept in its folder, and what a resumed one is held against.

The file is its owner's alone, for it holds the seed before the results do. No worker is told of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import yaml

from runner.build.sources import native_files, python_files
from runner.config import choose
from runner.config.origin import Origin
from runner.files import ROOT, write_whole
from runner.model import Refusal, Settings, Variant
from runner.op.targets import Search
from runner.record.columns import SCHEMA_VERSION
from runner.record.folder import host_facts, writing

NAME, LOCK = "planned.json", ".lock"
FORMAT = 1
_ALONE = ""  # the name of a run that is no sweep's
_CACHES = ("CACHE", "OMP_PROC_BIND")  # variables with these in their names change no result
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KINDS = {"name": str, "sweep": bool, "from": str, "host": dict, "files": dict, "jobs": dict}
_MOST_CHANGES = 5  # that are named


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Hold a folder of results for this process; the system lets go of it when the process dies.

    Raises Refusal where another one holds it.
    """
    lock = filelock.FileLock(folder / LOCK)
    with writing(folder):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise Refusal(f"{folder} is in use by a run that is alive: wait for it, or end it") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder is gone: said by what wrote into it
            (folder / LOCK).unlink()
        lock.release()


def keep(folder: Path, jobs: Mapping[str, Settings], sweep: bool = False) -> None:
    """Write the record. `jobs`: settings by the job's folder; of a run alone use `keep_run`."""
    kept = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "name": folder.name,
        "sweep": sweep,
        "from": os.getcwd(),
        "host": host_facts(),
        "files": _digests(jobs.values()),
        "jobs": {name: _job(settings) for name, settings in jobs.items()},
    }
    with writing(folder):
        write_whole(folder / NAME, json.dumps(kept, indent=1) + "\n", mode=0o600)


def keep_run(folder: Path, settings: Settings) -> None:
    keep(folder, {_ALONE: settings})


def _job(settings: Settings) -> dict[str, Any]:
    names = ("command", "experiment", "op_file", "config_files", "search")
    return {name: getattr(settings, name) for name in names} | {"config": settings.resolved_yaml}


def read(folder: Path) -> dict[str, Any]:
    """The record of a folder. Raises Refusal where there is none that this version can carry on."""
    try:
        kept = json.loads((folder / NAME).read_text("utf-8"))
        version = (kept["format"], kept["schema_version"])
        whole = version != (FORMAT, SCHEMA_VERSION) or _is_whole(kept)
    except (OSError, ValueError, KeyError, TypeError):
        raise Refusal(_no_record(folder)) from None
    if version != (FORMAT, SCHEMA_VERSION):
        raise Refusal(f"resume={folder}: it was written by another version of the runner; start it again")
    if not whole:
        raise Refusal(f"resume={folder}: {NAME} is not as the runner wrote it; start the run again")
    if kept["name"] != folder.name:  # rows are known by it
        raise Refusal(f"resume={folder}: the folder was {kept['name']} and is named otherwise; rename it")
    return kept


def _is_whole(kept: dict[str, Any]) -> bool:
    return all(isinstance(kept.get(name), kind) for name, kind in _KINDS.items())


def _no_record(folder: Path) -> str:
    if not folder.is_dir():
        return f"resume={folder}: there is no such folder"
    if (folder.parent / NAME).is_file():
        return f"resume={folder}: one job of a sweep; resume={folder.parent} carries on with all of them"
    return f"resume={folder}: no {NAME} in it, so it is no run's folder, or nothing had been planned yet"


def can_be_carried_on(folder: Path) -> bool:
    """Whether `resume=` takes it: not a profile of a step, and not jobs that were chosen on the way."""
    try:
        jobs = read(folder)["jobs"].values()
        return bool(jobs) and all(settings_of(job) for job in jobs)
    except Refusal:
        return False


def settings_of(job: dict[str, Any]) -> Settings:
    """A job's settings, from its resolved configuration. Raises Refusal where they do not hold any more."""
    origin = Origin(
        search=Search(tuple(map(Path, job["search"]))),
        op_file=job["op_file"],
        experiment=job["experiment"],
        command=tuple(job["command"]),
        files=tuple(job["config_files"]),
    )
    return choose.settings(yaml.load(job["config"], Loader=_LOADER), origin)


def changes(kept: dict[str, Any]) -> list[str]:
    """What differs from when the run was started, each as half a sentence."""
    return [*_changed_files(kept["files"]), *_changed_host(kept["host"], host_facts())]


def _changed_files(before: dict[str, str]) -> Iterator[str]:
    for name, digest in before.items():
        now = _digest(Path(name))
        if now != digest:
            yield f"{_short(name)} {'is gone' if not now else 'changed'}"


def _short(name: str) -> str:
    path = Path(name)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else name


def _changed_host(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for key, what in (("host", "the host"), ("system", "the system"), ("python", "Python")):
        if before[key] != now[key]:
            yield f"{what} was {before[key]} and is {now[key]}"
    yield from _changed_words("package", before["packages"], now["packages"])
    then, here = (_telling(each["environment_variables"]) for each in (before, now))
    yield from _changed_words("variable", then, here)


def _telling(variables: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in variables.items() if not any(word in name for word in _CACHES)}


def _changed_words(what: str, before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        then, here = before.get(name, "absent"), now.get(name, "absent")
        if then != here:
            yield f"{what} {name} was {then} and is {here}"


def refuse_changes(folder: Path, found: list[str]) -> None:
    """One sentence over all that changed. Raises Refusal when there is any."""
    if found:
        more = f" and {len(found) - _MOST_CHANGES} more" if len(found) > _MOST_CHANGES else ""
        what = ", ".join(found[:_MOST_CHANGES]) + more
        raise Refusal(f"resume={folder}: since it was started {what}; put that back, or start a new run")


def _digests(jobs: Iterable[Settings]) -> dict[str, str]:
    """sha256 of every file that decides what a run finds: the runner, configurations, sources, inputs."""
    files = dict.fromkeys(sorted((ROOT / "runner").rglob("*.py")))
    seen: set[Any] = set()
    for settings in jobs:
        files |= dict.fromkeys(map(Path, [*settings.config_files, *settings.files.values()]))
        if (id(settings.op), settings.variants) not in seen:
            seen.add((id(settings.op), settings.variants))
            files |= dict.fromkeys(_sources(settings))
    return {str(path): digest for path in files if (digest := _digest(path))}


def _sources(settings: Settings) -> Iterator[Path]:
    op = settings.op
    for variant in [Variant("reference", op.reference), *(op.variants[name] for name in settings.variants)]:
        yield from python_files(variant)
        yield from native_files(variant)


def _digest(path: Path) -> str:
    """Empty where there is no file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
