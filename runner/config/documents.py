"""YAML files judged before Hydra composes them, so that each fault names its file.

A file's events are walked once and nothing is built from them: what aliases would unfold to is
counted, not made.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf.errors import GrammarParseError
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from runner.config import folders
from runner.config.sentences import character, shown

DEEPEST = 50
MOST = 20_000  # values in one file, aliases unfolded
LONGEST_NUMBER = 300
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}
TRUTH = re.compile(r"(?i:yes|no|on|off|true|false)")
NUMBER = re.compile(r"[-+]?(?:0[xXoObB])?[0-9a-fA-F_:]+")
SIBLING = re.compile(r"[\w.-]+")
CHOICE = re.compile(r"(?:override )?/?(?:op|measure|workload|hydra/launcher|hydra/sweeper)")
PLUGINS = ("sweeper", "launcher")  # of Hydra's node, what an experiment may set
HEADER = re.compile(r"#\s*@")
NO_HEADER = "the line `# @package _global_` is missing; an experiment needs it as its first line"
EXAMPLE = {
    "op": "expected a mapping of keys such as name and dims",
    "measure": "expected a mapping of keys such as warmup and trials",
    "experiment": "expected a mapping of keys such as why and variant",
    "workload": "expected a mapping of keys such as target and args",
}


def faults(dirs: Sequence[Path], group: str, name: str, seen: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """What is wrong with the form of a group's file, and of the files that it names; `seen` led to it."""
    path = folders.file_of(dirs, group, name)
    if path is None:
        return []  # composing says so
    if found := file_faults(path, group):
        return found
    raw = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    found = [f"{shown(path)}: {fault}" for fault in _defaults_faults(raw.get("defaults", []), group)]
    if group == "experiment" and not found:
        found = [f"{shown(path)}: {fault}" for fault in _experiment_faults(raw)]
    if found:
        return found
    chain = (*seen, (group, name))
    others = list(_named(raw, group))
    found = [f"{shown(path)}: defaults: {other} leads back to itself" for _, other in {*others} & {*chain}]
    return found or [fault for other in others for fault in faults(dirs, *other, chain)]


def folder_faults(folder: Path) -> Iterator[str]:
    """What a --config-dir may not have: there it would take the place of Hydra's own or of the schema."""
    for name in ("hydra", "schema.yaml", "schema"):
        if (folder / name).exists():
            yield f"{shown(folder / name)}: not read from a --config-dir; it holds op, experiment and measure"


def file_faults(path: Path, group: str) -> list[str]:
    """What is wrong with one file's form, the file named."""
    return [shown(path) + fault for fault in _file_faults(path, group)]


def _file_faults(path: Path, group: str) -> Iterator[str]:
    """Each from after the file's name on: `: ..` or `, line 3: ..`."""
    try:
        text = path.read_text(encoding="utf-8")
        events = _Walk(group)
        for event in yaml.parse(text, Loader=LOADER):
            events.take(event)
        if not events.count:
            raise _Odd(f": {EXAMPLE[group]}")
    except UnicodeDecodeError as error:
        yield f": not UTF-8 text ({error.reason} at byte {error.start})"
    except _Odd as odd:
        yield str(odd)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        yield f"{line}: not valid YAML ({' '.join(filter(None, (error.context, error.problem)))})"
    except yaml.reader.ReaderError as error:
        yield f": not valid YAML ({character(error)})"
    else:
        if fault := _header_fault(text, group):
            yield f": {fault}"


def _header_fault(text: str, group: str) -> str:
    """Hydra reads `# @key value` lines, up to the first line that is none."""
    lines = (line.strip() for line in text.splitlines() if line.strip())
    header = [line.lstrip("#").split() for line in itertools.takewhile(HEADER.match, lines)]
    if any(len(words) != 2 for words in header):
        return "its first line begins with `# @`, and is not `# @package _global_`"
    if group != "experiment" and header:
        return f"`# @package` belongs to experiments; the keys of {group} have their place"
    return NO_HEADER if group == "experiment" and ["@package", "_global_"] not in header else ""


class _Odd(Exception):
    """What a file may not have, with its line."""


class _Walk:
    """Takes a file's events one by one. Raises _Odd at the first that is out of place."""

    def __init__(self, group: str):
        self.group = group
        self.open: list[list[Any]] = []  # [anchor, values before it, is a mapping, children so far]
        self.sizes: dict[str, int] = {}
        self.count = 0

    def take(self, event: yaml.Event) -> None:
        self.line = event.start_mark.line + 1
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            return self._close()
        if not isinstance(event, yaml.NodeEvent):
            return
        if isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor)
        else:
            self._tag(event.tag)
        self.count += 1
        if self.count > MOST:
            self._odd(f"too large, more than {MOST} values once its aliases are unfolded")
        self._place(event)
        if isinstance(event, yaml.CollectionStartEvent):
            self._opened(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)

    def _odd(self, what: str) -> None:
        raise _Odd(f", line {self.line}: {what}")

    def _alias(self, anchor: str) -> None:
        if any(each[0] == anchor for each in self.open):
            self._odd(f"*{anchor} stands inside of &{anchor}, so it has no end")
        self.count += self.sizes.get(anchor, 0)

    def _tag(self, tag: str | None) -> None:
        if tag is not None and tag != "!" and tag not in PLAIN_TAGS:
            name = tag.replace("tag:yaml.org,2002:", "!!")
            self._odd(f"not valid YAML here (the tag {name}); write numbers, texts, lists and mappings")

    def _place(self, event: yaml.NodeEvent) -> None:
        """Counts it as a child, a key of a mapping every second time."""
        if not self.open:
            if not isinstance(event, yaml.MappingStartEvent):
                raise _Odd(f": {EXAMPLE[self.group]}")
            return
        top = self.open[-1]
        if top[2] and top[3] % 2 == 0:
            self._key(event)
        top[3] += 1

    def _key(self, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.CollectionStartEvent):
            self._odd("a key is a name, not a list or a mapping; quotes make it a text")
        if isinstance(event, yaml.ScalarEvent) and event.value == "_target_":
            self._odd("`_target_` is not used here; a variant has a `target`")
        plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        if plain and TRUTH.fullmatch(event.value):
            key = event.value
            self._odd(f'{key}: quote the key, "{key}": YAML reads off, on, yes and no as truth values')

    def _opened(self, event: yaml.CollectionStartEvent) -> None:
        self.open.append([event.anchor, self.count, isinstance(event, yaml.MappingStartEvent), 0])
        if len(self.open) > DEEPEST:
            self._odd(f"nested deeper than {DEEPEST} levels")

    def _close(self) -> None:
        anchor, before, _, _ = self.open.pop()
        if anchor:
            self.sizes[anchor] = self.count - before

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = event.value
        if any("\ud800" <= each <= "\udfff" for each in text):
            self._odd("half of a surrogate pair, which is no character")
        if event.implicit[0] and len(text) > LONGEST_NUMBER and NUMBER.fullmatch(text):
            self._odd(f"a number of {len(text)} digits")
        if "${" in text:
            self._interpolation(text)

    def _interpolation(self, text: str) -> None:
        try:
            if resolves(text):
                self._odd(f"{text[:60]!r} asks a resolver, which is not used here; write the value")
        except GrammarParseError as error:
            self._odd(f"{text[:60]!r} is no interpolation ({str(error).splitlines()[0]})")


def resolves(text: str) -> bool:
    """Whether a text holds `${name:..}`, which runs a function. Raises GrammarParseError."""
    todo = [parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, OmegaConfGrammarParser.InterpolationResolverContext):
            return True
        todo += getattr(node, "children", None) or []
    return False


def _defaults_faults(listed: Any, group: str) -> Iterator[str]:
    if not isinstance(listed, list):
        yield f"defaults: expected a list, as in [override /op: gelu], got {listed!r}"
        return
    for entry in listed:
        if entry == "_self_":
            continue
        if group != "experiment":
            if not isinstance(entry, str) or not SIBLING.fullmatch(entry):
                yield f"defaults: expected names of other files in {group}, got {entry!r}"
        elif not isinstance(entry, dict) or not all(CHOICE.fullmatch(str(key)) for key in entry):
            yield f"defaults: expected entries such as `override /op: gelu`, got {entry!r}"
        else:
            yield from _value_faults(entry)


def _value_faults(entry: dict[str, Any]) -> Iterator[str]:
    for key, value in entry.items():
        if value is not None and not isinstance(value, str):
            yield f"defaults: {key}: a run has one {_group(key)}, named by a text, got {value!r}"


def _group(key: str) -> str:
    return key.split()[-1].lstrip("/").partition("@")[0]


def _experiment_faults(raw: dict[str, Any]) -> Iterator[str]:
    if isinstance(raw.get("measure"), str):
        yield f"measure: write it `defaults: [override /measure: {raw['measure']}]`; here its keys may stand"
    node, where = raw, ""
    for key in ("hydra", "sweeper", "params"):
        node, where = node.get(key, {}), f"{where}.{key}".lstrip(".")
        if not isinstance(node, dict):
            yield f"{where}: expected a mapping, got {node!r}"
            return
    for key in raw.get("hydra", {}):
        if key not in PLUGINS:
            yield f"hydra.{key}: not set here; an experiment may set hydra.sweeper and hydra.launcher"
    for key, value in node.items():
        if not isinstance(key, str) or isinstance(value, dict):
            yield f"hydra.sweeper.params.{key}: expected `<key>: <value>,<value>`, got {value!r}"
    for group in folders.GROUPS:
        value = node.get(group, "")
        if isinstance(value, list):
            names = ",".join(map(str, value))
            where = f"hydra.sweeper.params.{group}"
            yield f"{where}: a run has one {group}; for a run of each write {group}: {names}"
        elif not isinstance(value, str):
            yield f"hydra.sweeper.params.{group}: expected names, as in {group}: <name>,<name>, got {value!r}"


def _named(raw: dict[str, Any], group: str) -> Iterable[tuple[str, str]]:
    """(group, name) of the files that another asks for, in its defaults and in its sweep."""
    if group != "experiment":
        yield from ((group, entry) for entry in raw.get("defaults", []) if entry != "_self_")
        return
    for entry in raw.get("defaults", []):
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if _group(key) in folders.GROUPS[:2] and value:
                yield _group(key), value
    params = raw.get("hydra", {}).get("sweeper", {}).get("params", {})
    for group in folders.GROUPS[:2]:
        for name in str(params.get(group, "")).split(","):
            yield group, name.strip()
