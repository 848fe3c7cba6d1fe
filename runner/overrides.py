"""The `key=value` words of a command line, judged before anything is composed, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException

from runner import folders, forms
from runner.model import Refusal
from runner.schema import Config, LimitsNode, MeasureNode
from runner.sentences import refuse, shown
from runner.typed import fields, nearest

LISTS = ("variant", "dtype", "direction", "layout", "attrs")  # keys that take several values in one run


def faults(words: Sequence[str], dirs: Sequence[Path], multirun: bool) -> list[str]:
    """What is wrong with `key=value` words that can be said before composing; all of it."""
    found, parsed = [], []
    for word in words:
        try:
            parsed += OverridesParser.create().parse_overrides([word])
        except OverrideParseException as error:
            found.append(_unreadable(word, error))
    known = {group: folders.options(dirs, group) for group in folders.GROUPS}
    for each in parsed:
        if not each.is_hydra_override():
            found += _override_faults(each, known, multirun)
        if each.key_or_group in folders.GROUPS:
            found += [fault for name in _names(each) for fault in _bytes_fault(dirs, each.key_or_group, name)]
    groups = [each.key_or_group for each in parsed if each.key_or_group in folders.GROUPS]
    if any(each.key_or_group == "op" and each.is_sweep_override() for each in parsed):
        found += list(_of_one_op(parsed))
    found += [f"{group}: given twice" for group in folders.GROUPS if groups.count(group) > 1]
    return found


def _bytes_fault(dirs: Sequence[Path], group: str, name: str) -> Iterator[str]:
    """Hydra's own error does not say which file it is."""
    path = folders.file_of(dirs, group, name)
    try:
        if path:
            path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield f"{shown(path)}: not UTF-8 text ({error.reason} at byte {error.start})"


def _unreadable(word: str, error: OverrideParseException) -> str:
    if "=" not in word:
        hint = f"; did you mean op={word}?" if word.isidentifier() else ""
        return f"{word!r} is not key=value{hint}"
    lines = [line for line in str(error).splitlines() if not line.startswith(("Error parsing", "See https"))]
    why = lines[0].partition(" expecting")[0] if lines else "it is no list, mapping or value"
    return f"cannot read {word!r} ({why}); quotes around it keep the shell from taking it apart"


def _override_faults(override: Override, known: dict[str, list[str]], multirun: bool) -> Iterator[str]:
    key, word = override.key_or_group, override.input_line
    root, _, rest = key.partition(".")
    nodes = {"measure": MeasureNode, "limits": LimitsNode}
    if root not in fields(Config) and root != "experiment":
        yield f"{word}: there is no key {root!r}{nearest(root, [*fields(Config), 'experiment'])}"
    elif root in nodes and rest and rest not in fields(nodes[root]):
        yield f"{word}: {root} has no key {rest!r}{nearest(rest, fields(nodes[root]))}"
    elif key == "mode" and isinstance(override.value(), str):
        yield from forms.mode_faults(override.value())
    elif key in folders.GROUPS:
        yield from _group_faults(override, known[key], multirun)
    elif override.is_sweep_override() and not multirun:
        one = f"for one run over them write {key}=[{word.partition('=')[2]}]; " if root in LISTS else ""
        yield f"{word}: several values; {one}for a run each add -m"


def _of_one_op(parsed: Iterable[Override]) -> Iterator[str]:
    """Hydra tries a plain `op.<key>=` on the sweep itself, which has no op yet."""
    for each in parsed:
        if each.key_or_group.startswith("op.") and not each.is_sweep_override():
            key, _, value = each.input_line.partition("=")
            yield f"{each.input_line}: beside several ops write {key}='choice({value})', for each to try it"


def _group_faults(override: Override, known: list[str], multirun: bool) -> Iterator[str]:
    group, word, value = override.key_or_group, override.input_line, override.value()
    or_so = ", or write an experiment with hydra.sweeper.params" if group == "op" else ""
    if isinstance(value, list):
        yield f"{word}: a run has one {group}; for a run of each type -m {group}={_joined(value)}{or_so}"
    elif override.is_sweep_override() and not multirun:
        yield f"{word}: a run has one {group}; for a run of each add -m{or_so}"
    elif override.is_sweep_override() and group == "experiment":
        yield f"{word}: one experiment at a time; the sweeps in their files would be lost"
    elif value is None and not override.is_delete():
        yield f"{word}: leave it out, or name one of {', '.join(known)}"
    else:
        for name in _names(override):
            if name not in known:
                yield f"{group}={name}: there is no {group} {name!r}{nearest(name, known)}"


def _joined(names: Iterable[Any]) -> str:
    return ",".join(map(str, names))


def _names(override: Override) -> list[str]:
    if override.is_discrete_sweep():
        return list(override.sweep_string_iterator())
    value = override.value()
    return [str(value)] if isinstance(value, (str, int, float)) else []


def checked(argv: Sequence[str], conf: Path) -> list[str]:
    """The command line, options first, refused as far as it can be judged before composing.

    `conf` is the repo's folder of configurations. Options may stand anywhere; Hydra wants them first.
    """
    parser = get_args_parser()
    parser.error = _not_an_option  # type: ignore[method-assign]
    args = parser.parse_intermixed_args(list(argv))
    if args.config_dir and not Path(args.config_dir).is_dir():
        raise Refusal(f"--config-dir {args.config_dir}: there is no such folder")
    asks = [args.cfg, args.info, args.shell_completion, args.multirun, args.run]
    if sum(map(bool, asks)) > 1:
        raise Refusal("only one of --run, --multirun, --cfg, --info and --shell-completion at a time")
    if args.resolve and not args.cfg:
        raise Refusal("--resolve belongs to --cfg")
    if not (any(asks[:3]) or args.hydra_help or args.config_path or args.experimental_rerun):
        dirs = [conf, *([Path(args.config_dir).absolute()] if args.config_dir else [])]
        refuse(faults(args.overrides, [*dirs, *_searchpath(args.overrides)], args.multirun))
    options = list(argv)
    for word in reversed(args.overrides):
        del options[len(options) - 1 - options[::-1].index(word)]
    return [*options, *args.overrides]


def _searchpath(overrides: Sequence[str]) -> list[Path]:
    words = [each for each in overrides if each.startswith("hydra.searchpath=")]
    try:
        paths = [path for each in OverridesParser.create().parse_overrides(words) for path in each.value()]
    except (HydraException, TypeError):
        return []  # composing says what is wrong with it
    return [Path(str(path).removeprefix("file://")) for path in paths if not str(path).startswith("pkg:")]


def _not_an_option(message: str) -> None:
    raise Refusal(f"{message}; keys are written key=value, as in op=gelu (see --help)")
