"""Folders that configurations are read from, and the names of those that a sweep's jobs write into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.config.sentences import shown
from runner.files import cell, short_hash

GROUPS = ("op", "measure", "experiment", "workload")
LONGEST = 60


def options(dirs: Iterable[Path], group: str) -> list[str]:
    """The names of a group's files in all folders."""
    found = {path.relative_to(each / group) for each in dirs for path in (each / group).rglob("*.yaml")}
    return sorted(path.with_suffix("").as_posix() for path in found)


def file_of(dirs: Iterable[Path], group: str, name: str | None) -> Path | None:
    """The first folder's file of that name."""
    return next((p for each in dirs if name and (p := each / group / f"{name}.yaml").is_file()), None)


def composed(dirs: Iterable[Path], choices: Mapping[str, str | None]) -> Iterator[str]:
    """Absolute paths of the files that a composition read, Hydra's own left out."""
    yield from (str(path.resolve()) for each in dirs if (path := each / "config.yaml").is_file())
    for group, name in choices.items():
        if path := file_of(dirs, group.partition("@")[0], name):
            yield str(path.resolve())


def in_two_places(dirs: list[Path], choices: Mapping[str, str | None]) -> Iterator[str]:
    """Complains about names that two folders have: Hydra would take the first in silence."""
    for group in GROUPS:
        name = choices.get(group)
        places = [each / group / f"{name}.yaml" for each in dirs] if name else []
        there = list(dict.fromkeys(place.resolve() for place in places if place.is_file()))
        if len(there) > 1:
            yield f"{group}={name}: there are two, {shown(there[0])} and {shown(there[1])}; rename one"


def slug(text: str) -> str:
    """Short and safe in any file system: letters, digits, `.`, `_`, `-`, `=`, `+`."""
    return re.sub(r"[^\w.=+-]+", "-", text, flags=re.ASCII)[:LONGEST].strip("-.")


def of_variant(name: str, params: Mapping[str, Any]) -> str:
    """The folder of a variant's build: its name and parameters, with a hash where they do not fit in one."""
    text = "_".join([name, *(f"{key}={cell(value)}" for key, value in sorted(params.items()))])
    short = slug(text)
    return short if short == text else f"{short[:48]}-{short_hash(text)}"


def job_suffix(overrides: Sequence[str], common: Sequence[str]) -> str:
    """What tells a job of a sweep from the others, for its folder's name: `_op=gelu_dtype=float32`."""
    own = [each.lstrip("+~") for each in overrides if each not in common and not each.startswith("hydra.")]
    return "_" + slug("_".join(own)) if own else ""


def remove_empty(folder: Path) -> None:
    """Removes a sweep's folder as far as nothing was written into it."""
    for each in [*(child for child in folder.iterdir() if child.is_dir()), folder]:
        if not any(each.iterdir()):
            each.rmdir()
