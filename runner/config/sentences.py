"""Exceptions of Hydra, OmegaConf, YAML and the system, each as a sentence for the person who typed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from runner.model import Refusal
from runner.typed import nearest


def refuse(faults: Iterable[str]) -> None:
    """Raises one Refusal with a line for each fault, when there is any."""
    lines = [brief(line) for line in dict.fromkeys(faults)]
    if lines:
        raise Refusal("\n".join(lines))


def brief(text: str) -> str:
    """Without the middle of what nobody reads to its end: numbers of many digits, endless words."""
    text = re.sub(r"\d{40,}", lambda found: f"{found[0][:8]}..({len(found[0])} digits)", text)
    return re.sub(r"\S{400,}", lambda found: f"{found[0][:60]}..{found[0][-20:]}", text)


def sentence(error: BaseException) -> str:
    """One line for one fault; a Refusal keeps its lines."""
    if isinstance(error, Refusal):
        return str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        return _yaml(error)
    if isinstance(error, yaml.reader.ReaderError):
        return f"{shown(error.name)}: not valid YAML ({character(error)})"
    if getattr(error, "options", None) is not None:
        return _no_such_file(error)
    if isinstance(error, UnicodeDecodeError):
        return f"a configuration file is not UTF-8 text ({error.reason} at byte {error.start})"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {shown(error.filename)}" if error.filename else error.strerror
    return _plain(error)


def shown(path: object) -> str:
    """A path as the person would type it from where they are."""
    try:
        return str(Path(os.fspath(path)).relative_to(Path.cwd()))
    except (TypeError, ValueError):
        return str(path)


def _yaml(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    what = " ".join(filter(None, (error.context, error.problem)))
    if mark is None:
        return f"YAML: {what}"
    return f"{shown(mark.name)}, line {mark.line + 1}: not valid YAML ({what})"


def character(error: yaml.reader.ReaderError) -> str:
    """The character that YAML may not hold."""
    code = error.character if isinstance(error.character, int) else ord(error.character)
    return f"the control character #x{code:04x} at position {error.position}"


def _no_such_file(error: BaseException) -> str:
    """A group's file that is not there: `op/gellu`."""
    group, _, name = str(getattr(error, "missing_cfg_file", "")).rpartition("/")
    return f"{group}={name}: there is no {group} {name!r}{nearest(name, error.options)}"


def _plain(error: BaseException) -> str:
    cause = error.__cause__ if error.__cause__ is not None and not str(error) else error
    lines = [line.strip() for line in str(cause).splitlines()]
    text = "; ".join(
        line for line in lines if line and not line.startswith(("reference_type", "object_type"))
    )
    text = re.sub(r"^In '([\w/]+)': (?:\w+ raised while composing config:)?;? ?", r"\1.yaml: ", text)
    text = re.sub(r"^(.*); full_key: ?(\S*)$", lambda found: ": ".join(filter(None, found.group(2, 1))), text)
    text = re.sub(r"\.?; To append to your config use \S+", "; there is no such key", text)
    return (text or type(error).__name__) + _near_key(error)


def _near_key(error: BaseException) -> str:
    """The nearest key that exists beside one that does not, where OmegaConf says which."""
    key, parent = getattr(error.__cause__, "key", None), getattr(error.__cause__, "parent_node", None)
    if key is None or not hasattr(parent, "keys"):
        return ""
    return nearest(key, parent.keys())
