"""The `key=value` words of a command line, judged before anything is composed, all of them at once."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, RangeSweep
from hydra.errors import HydraException, OverrideParseException

from runner.config import documents, folders, forms
from runner.config.sentences import brief, refuse
from runner.model import Refusal
from runner.schema import MODES, Config, LimitsNode, MeasureNode
from runner.typed import fields, nearest

LISTS = ("variant", "dtype", "direction", "layout", "attrs")  # keys that take several values in one run
OPEN = ("op", "shape", "attrs", "inputs")  # what is below them may be taken out
MOST_JOBS = 10_000
EXTRAS = {  # a launcher's preset -> (the extra of pyproject.toml that brings it, its module)
    "gpus": ("joblib", "hydra_joblib_launcher"),
    "ray_gpu": ("ray", "hydra_ray_launcher"),
    "slurm_gpu": ("slurm", "hydra_submitit_launcher"),
}


def faults(words: Sequence[str], dirs: Sequence[Path], multirun: bool) -> list[str]:
    """What is wrong with `key=value` words that can be said before composing; all of it."""
    found, parsed = [], []
    known = {group: folders.options(dirs, group) for group in folders.GROUPS}
    found += [fault for each in dirs[1:] for fault in documents.folder_faults(each)]
    for word in words:
        one, fault = _parsed(word, known)
        parsed += [one] if one else []
        found += [fault] if fault else []
    for each in parsed:
        found += _code_faults(each)
        found += _hydra_faults(each) if each.is_hydra_override() else _override_faults(each, known, multirun)
        if each.is_sweep_override() and multirun:
            found += _sweep_faults(each, known)
        if each.key_or_group in folders.GROUPS:
            names = _names(each, known[each.key_or_group])
            found += [fault for name in names for fault in documents.faults(dirs, each.key_or_group, name)]
    groups = [each.key_or_group for each in parsed if each.key_or_group in folders.GROUPS]
    if not found and multirun:
        found += _too_many(parsed, known)
    if any(each.key_or_group == "op" and each.is_sweep_override() for each in parsed):
        found += list(_of_one_op(parsed))
    found += [f"{group}: given twice" for group in folders.GROUPS if groups.count(group) > 1]
    return found


def _parsed(word: str, known: dict[str, list[str]]) -> tuple[Override | None, str]:
    """The override, or None and what is wrong with its form."""
    try:
        word.encode()
        if _depth(word) > documents.DEEPEST:  # less than parsing stands, and composing does not
            raise RecursionError
        return OverridesParser.create().parse_overrides([word])[0], ""
    except OverrideParseException as error:
        return None, _unreadable(word, error, known)
    except UnicodeEncodeError:
        return None, f"{word!r} is not UTF-8 text"
    except RecursionError:
        return None, f"cannot read {brief(word)!r}: nested too deep"
    except ValueError as error:  # whole numbers of thousands of digits
        return None, f"cannot read {brief(word)!r}: {str(error).partition(';')[0]}"


def _depth(word: str) -> int:
    """How deep its brackets stand in each other, at most."""
    steps = (1 if c in "[{(" else -1 if c in "]})" else 0 for c in word)
    return max(itertools.accumulate(steps), default=0)


def _unreadable(word: str, error: OverrideParseException, known: dict[str, list[str]]) -> str:
    if "=" not in word:
        kinds = {"op": known["op"], "mode": MODES} | known
        key = next((kind for kind, names in kinds.items() if word in names), "op")
        hint = f"; did you mean {key}={word}?" if word.isidentifier() else ""
        return f"{word!r} is not key=value{hint}"
    lines = [line for line in str(error).splitlines() if not line.startswith(("Error parsing", "See https"))]
    why = lines[0].partition(" expecting")[0] if lines else "it is no list, mapping or value"
    return f"cannot read {brief(word)!r} ({brief(why)}); quotes around it keep the shell from taking it apart"


def _override_faults(override: Override, known: dict[str, list[str]], multirun: bool) -> Iterator[str]:
    key, word = override.key_or_group, override.input_line
    root, _, rest = key.partition(".")
    nodes = {"measure": MeasureNode, "limits": LimitsNode}
    if root not in fields(Config) and root != "experiment":
        yield f"{word}: there is no key {root!r}{nearest(root, [*fields(Config), 'experiment'])}"
    elif root in nodes and rest and rest not in fields(nodes[root]):
        yield f"{word}: {root} has no key {rest!r}{nearest(rest, fields(nodes[root]))}"
    elif override.is_delete() and not (root in OPEN and rest):
        yield f"{word}: a key cannot be taken out; leave it as it is, or give it another value"
    elif key == "mode" and isinstance(override.value(), str):
        yield from forms.mode_faults(override.value())
    elif key in folders.GROUPS:
        yield from _group_faults(override, known[key], multirun)
    elif override.is_sweep_override() and not multirun:
        one = f"for one run over them write '{key}=[{word.partition('=')[2]}]'; " if root in LISTS else ""
        yield f"{word}: several values; {one}for a run each add -m"


def _hydra_faults(override: Override) -> Iterator[str]:
    if override.key_or_group in ("hydra", "hydra.sweeper", "hydra.launcher"):
        yield f"{override.input_line}: a mapping that cannot be replaced; set a key of it"
    if override.key_or_group.startswith("hydra/") and not isinstance(override.value(), str):
        yield f"{override.input_line}: name one of them, as in {override.key_or_group}=basic"
    if override.key_or_group.split(".")[1:2] in (["callbacks"], ["job_logging"], ["hydra_logging"]):
        yield f"{override.input_line}: what Hydra would run for it is not used here"
    yield from _launcher_faults(override)


def _code_faults(override: Override) -> Iterator[str]:
    """What would name code beside `target` and `sources`, or put a file where another's keys are."""
    word = override.input_line
    if "_target_" in override.key_or_group.split(".") or _holds_target(override.value()):
        yield f"{word}: `_target_` is not used here; a plugin is hydra/launcher=<name>"
    if override.package is not None:
        yield f"{word}: a group has its place; write it without @{override.package}"
    with contextlib.suppress(documents.GrammarParseError):  # composing says what is wrong with it
        if documents.resolves(word.partition("=")[2]):
            yield f"{word}: a resolver (${{name:..}}) is not used here; write the value"


def _holds_target(value: Any) -> bool:
    if isinstance(value, dict):
        return any(str(key) == "_target_" or _holds_target(each) for key, each in value.items())
    return isinstance(value, (list, tuple)) and any(map(_holds_target, value))


def _launcher_faults(override: Override) -> Iterator[str]:
    """A preset of ours needs a package that is an extra."""
    name = override.value()
    if override.key_or_group != "hydra/launcher" or not isinstance(name, str) or name not in EXTRAS:
        return
    extra, module = EXTRAS[name]
    if find_spec("hydra_plugins") is None or find_spec(f"hydra_plugins.{module}") is None:
        yield f"{override.input_line}: needs a package more: pip install 'kernel-runner[{extra}]'"


def _too_many(parsed: Iterable[Override], known: dict[str, list[str]]) -> Iterator[str]:
    """Every job is composed before the first one runs."""
    sweeps = [each for each in parsed if each.is_discrete_sweep()]
    count = math.prod(len(_names(each, known.get(each.key_or_group, ()))) for each in sweeps)
    if count > MOST_JOBS:
        yield f"{' '.join(each.input_line for each in sweeps)}: {count} jobs; at most {MOST_JOBS} at a time"


def no_jobs(params: Mapping[str, Any]) -> Iterator[str]:
    """Sweeps without any value, and what cannot be read, among those of an experiment."""
    for word in [f"{key}={value}" for key, value in params.items()]:
        one, fault = _parsed(word, {group: [] for group in folders.GROUPS})
        if fault:
            yield fault
        elif one and one.is_sweep_override() and one.key_or_group not in folders.GROUPS:
            yield from _sweep_faults(one, {group: [] for group in folders.GROUPS})


def _sweep_faults(override: Override, known: dict[str, list[str]]) -> Iterator[str]:
    """A sweep without values would run nothing and say nothing."""
    key, word = override.key_or_group, override.input_line
    value = override.value()
    if isinstance(value, Glob) and key not in known:
        yield f"{word}: glob(..) chooses among files, of {', '.join(known)}; here write the values"
    elif isinstance(value, RangeSweep) and not value.step:
        yield f"{word}: a range needs a step other than 0"
    elif isinstance(value, RangeSweep) and abs(value.stop - value.start) / abs(value.step) > MOST_JOBS:
        yield f"{word}: more than {MOST_JOBS} jobs"
    elif override.is_discrete_sweep() and not _names(override, known.get(key, ())):
        names = f"; there is {', '.join(known[key])}" if key in known else ""
        yield f"{word}: a sweep without any value, so there are no jobs{names}"


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
        for name in _names(override, known):
            if name not in known:
                yield f"{group}={name}: there is no {group} {name!r}{nearest(name, known)}"


def _joined(names: Iterable[Any]) -> str:
    return ",".join(map(str, names))


def _names(override: Override, known: Iterable[str]) -> list[str]:
    """The values of a word as texts; `glob(..)` finds them among `known`."""
    if isinstance(override.value(), Glob):
        return override.value().filter(list(known))
    if override.is_discrete_sweep():
        return list(itertools.islice(override.sweep_string_iterator(), MOST_JOBS))
    value = override.value()
    return [str(value)] if isinstance(value, (str, int, float)) else []


def checked(argv: Sequence[str], conf: Path) -> list[str]:
    """The command line, options first, refused as far as it can be judged before composing.

    `conf` is the repo's folder of configurations. Options may stand anywhere; Hydra wants them first.
    """
    parser = get_args_parser()
    parser.error = _not_an_option  # type: ignore[method-assign]
    args = parser.parse_intermixed_args(list(argv))
    if args.config_dir == "":
        raise Refusal("--config-dir=: name a folder")
    if args.config_dir and not Path(args.config_dir).is_dir():
        raise Refusal(f"--config-dir {args.config_dir}: there is no such folder")
    asks = [args.cfg, args.info, args.shell_completion, args.multirun, args.run]
    if sum(map(bool, asks)) > 1:
        raise Refusal("only one of --run, --multirun, --cfg, --info and --shell-completion at a time")
    if args.resolve and not args.cfg:
        raise Refusal("--resolve belongs to --cfg")
    if not (args.shell_completion or args.hydra_help or args.config_path or args.experimental_rerun):
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
