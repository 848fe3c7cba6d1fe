"""Composition: YAML files and overrides in, validated `model.Settings` out.

With `documents.py` the only module that knows OmegaConf. `compose` serves the Python interface;
`settings_of` takes what Hydra composed for a job of a command line.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra import version
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import choose, devices, documents, folders, overrides
from runner.config.origin import Origin
from runner.config.sentences import refuse, sentence, shown
from runner.files import ROOT
from runner.model import Op, Refusal, Settings
from runner.op.declaration import build
from runner.op.targets import Search
from runner.schema import Config
from runner.typed import defaults, nearest

CONF = ROOT / "conf"
VERSION_BASE = "1.3"
OPEN = (
    "shape",
    "attrs",
    "inputs",
    "workload",
)  # their keys are the op's, so they take new ones without a plus sign
USER_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, UnicodeDecodeError)
Described = tuple[str, Op | None, list[str]]


def _store_schema() -> None:
    node = OmegaConf.create(defaults(Config))
    for key in OPEN:
        OmegaConf.set_struct(node[key], False)
    for key in ("args", "forms", "sizes"):
        OmegaConf.set_struct(node.workload[key], False)
    ConfigStore.instance().store(name="schema", node=node)


_store_schema()
# How many jobs hydra/launcher=gpus runs at a time.
OmegaConf.register_new_resolver("gpus", lambda: max(devices.driver()[0], 1), replace=True)


def compose(words: Sequence[str], config_dirs: Iterable[str | Path] = ()) -> Settings:
    """The validated settings of `key=value` words, as they would stand on the command line.

    Works inside a running Hydra application. Raises Refusal, one line for each thing that is wrong.
    """
    try:
        dirs = [str(each) for each in config_dirs]
        refuse(["config_dirs: an empty name; name a folder"] if "" in dirs else [])
        return _compose(list(words), [Path(each).absolute() for each in dirs])
    except USER_ERRORS as error:
        raise Refusal(sentence(error)) from error


def _compose(words: list[str], dirs: list[Path]) -> Settings:
    for each in dirs:
        if not each.is_dir():
            raise Refusal(f"config_dirs: there is no folder {each}")
    refuse(overrides.faults(words, [CONF, *dirs], multirun=False))
    paths = ",".join(f"'file://{each}'" for each in dirs)
    search = [f"hydra.searchpath=[{paths}]"] if dirs else []
    with _hydra_aside(), hydra.initialize_config_dir(str(CONF), job_name="runner", version_base=VERSION_BASE):
        return settings_of(hydra.compose("config", [*words, *search], return_hydra_config=True))


@contextlib.contextmanager
def _hydra_aside() -> Iterator[None]:
    """Lets a second Hydra work, and puts what was there back as it was."""
    outer, base, runtime = GlobalHydra.instance().hydra, version.getbase(), JobRuntime.instance()
    name = runtime.get("name")
    GlobalHydra.instance().hydra = None
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = outer
        runtime.set("name", name)
        if base is not None:
            version.VersionBase.instance().setbase(base)


def settings_of(
    config: DictConfig,
    built: dict[Any, Any] | None = None,
    resolve: Callable[[str], str] = devices.resolve,
) -> Settings:
    """The settings of a composed configuration that still has its `hydra` node.

    `built` keeps the ops of a sweep, so that jobs of one op build it once; `resolve` says which device a text
    is. Raises Refusal or one of USER_ERRORS.
    """
    node = config.hydra
    choices, dirs = node.runtime.choices, config_dirs_of(node)
    experiment = choices.get("experiment") or ""
    _refuse_a_sweep_as_a_run(node, experiment)
    refuse(folders.in_two_places(dirs, choices))
    op_file = folders.file_of(dirs, "op", choices.get("op"))
    origin = Origin(
        search=_search(dirs),
        op_file=shown(op_file) if op_file else "",
        ops=tuple(folders.options(dirs, "op")),
        experiment=experiment,
        command=words_of(node),
        files=tuple(folders.composed(dirs, choices)),
        built={} if built is None else built,
        resolve=resolve,
        op_named=lambda name: _op_named(dirs, name),
    )
    try:
        raw = _plain(config)
    except OmegaConfBaseException as error:
        raise Refusal(f"{_origin_of(error, origin)}{sentence(error)}") from error
    return choose.settings(raw, origin)


def _origin_of(error: OmegaConfBaseException, origin: Origin) -> str:
    """Where a value came from that cannot be resolved, as far as its key tells."""
    key = str(getattr(error, "full_key", "") or "")
    if origin.typed(key):
        return f"{origin.typed(key)}: "
    if key.startswith("op.") and origin.op_file:
        return f"{origin.op_file}: "
    return f"experiment={origin.experiment}: " if origin.experiment else ""


def _refuse_a_sweep_as_a_run(node: DictConfig, experiment: str) -> None:
    """Run as one job, what an experiment sweeps over would be left out in silence."""
    params = OmegaConf.select(node, "sweeper.params")
    if experiment and params and node.mode != RunMode.MULTIRUN:
        swept = ", ".join(params)
        command = f"python -m runner -m experiment={experiment}"
        raise Refusal(f"experiment={experiment} is a sweep over {swept}: type {command}")


def _search(dirs: Sequence[Path]) -> Search:
    return Search.beside(each for each in dirs if each != CONF)


def all_ops(dirs: Sequence[Path]) -> Iterator[Described]:
    """(name, op or None, what is wrong with it) of every op there is."""
    for name in folders.options(dirs, "op"):
        yield name, *_op_named(dirs, name)


def _op_named(dirs: Sequence[Path], name: str) -> tuple[Op | None, list[str]]:
    """An op by its file, outside of any composition, and what is wrong with it."""
    path = folders.file_of(dirs, "op", name)
    if path is None:
        return None, [f"there is no op {name!r}{nearest(name, folders.options(dirs, 'op'))}"]
    if found := documents.file_faults(path, "op"):
        return None, found
    try:
        raw = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
        op, faults = build(raw, _search(dirs), str(path))
        return op, [f"{shown(path)}: {fault}" for fault in faults]
    except USER_ERRORS as error:
        return None, [sentence(error)]


def words_of(node: DictConfig) -> tuple[str, ...]:
    """The words a job was composed from, as they were typed (`${..}` included)."""
    return tuple(OmegaConf.to_container(node.overrides.task, resolve=False))


def config_dirs_of(node: Any) -> list[Path]:
    """The folders that a composition read, the repo's own first."""
    return [Path(each.path) for each in node.runtime.config_sources if each.schema == "file"]


def lists_all(config: DictConfig) -> bool:
    """Whether a run only lists what there is."""
    return config.mode == "list" and config.op is None


def with_hydra(config: DictConfig, node: DictConfig) -> DictConfig:
    """A job's configuration as Hydra composed it: it hands the two out apart."""
    return OmegaConf.create({"hydra": node, **dict(config.items_ex(resolve=False))})


def unused(config: DictConfig) -> DictConfig:
    """The configuration of a job, or its copy when a job has had it: Hydra writes into it, then locks it."""
    if not OmegaConf.is_readonly(config.hydra):
        return config
    fresh = copy.deepcopy(config)
    OmegaConf.set_readonly(fresh.hydra, False)
    return fresh


def _plain(config: DictConfig) -> dict[str, Any]:
    values = {str(key): config[key] for key in config if key != "hydra"}
    return {
        k: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v) else v for k, v in values.items()
    }
