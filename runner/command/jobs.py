"""The jobs of a command line: Hydra composes them, each is validated once, before the first one runs."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode

from runner.command import elsewhere, listing, lost
from runner.config import compose as configuration
from runner.config import devices, folders
from runner.config.compose import CONF, USER_ERRORS, VERSION_BASE, Described
from runner.config.overrides import checked, no_jobs
from runner.config.sentences import refuse, sentence
from runner.model import Refusal, Settings
from runner.plan import plan
from runner.record import planned
from runner.record.folder import claim

DRY = ("plan", "list", "ceilings")  # modes that write no folder
Execute = Callable[[Settings, Path | None, str], Any]
Config = Any  # an omegaconf.DictConfig, handed on as it is


class Escape(BaseException):
    """Carries an error past Hydra, which turns a callback's exceptions into warnings."""


class Run:
    """What one command line does: its jobs, composed and validated once, and their outcomes."""

    def __init__(self, execute: Execute, describe: Callable[[list[Described]], None] = print):
        self.execute = execute
        self.describe = describe
        self.outcomes: list[Any] = []
        self.refusals: list[str] = []  # of jobs, when they had begun
        self.started = False
        self.folder: Path | None = None  # of a sweep
        self.dry = False
        self.jobs: dict[tuple[str, ...], Config] = {}
        self.settings: dict[tuple[str, ...], Settings] = {}
        self.built: dict[str, Any] = {}
        self.common: list[str] = []
        self._held = contextlib.ExitStack()
        self.watch: elsewhere.Watch | None = None
        self.launcher = ""  # whose processes the jobs run in; empty where they run in this one
        self.order: list[tuple[str, ...]] = []  # the jobs as they are numbered
        self.ended = ""  # how a launcher came to its end before its jobs did

    def job(self, config: Config) -> float | None:
        """One run; returns the mean time in ms. To a sweeper that optimizes, no time is the worst."""
        mean_ms = self._mean_of(config)
        chosen = HydraConfig.get().mode == RunMode.MULTIRUN and not self.order and not self.launcher
        return math.inf if mean_ms is None and chosen else mean_ms

    def _mean_of(self, config: Config) -> float | None:
        node = HydraConfig.get()
        if configuration.lists_all(config):
            self.describe(list(configuration.all_ops(configuration.config_dirs_of(node))))
            return None
        try:
            settings = self.settings.get(configuration.words_of(node)) or self._validated(config, node)
            own = node.mode == RunMode.MULTIRUN and settings.mode not in DRY
            folder = Path(node.runtime.output_dir) if own else None
            self.started = True
            outcome = self.execute(settings, folder, self._label(node))
        except Refusal as refusal:
            self.refusals.append(str(refusal))
            return None
        if outcome is None or isinstance(outcome, float):
            return outcome
        self.outcomes.append(outcome)
        return outcome.mean_ms

    def _label(self, node: Any) -> str:
        """Which job of a sweep this is, for the eye; empty for a run alone."""
        if node.mode != RunMode.MULTIRUN:
            return ""
        return f"job {node.job.num + 1}" + (f"/{len(self.order)}" if self.order else "")

    def _validated(self, config: Config, node: Any) -> Settings:
        try:
            return _planned(configuration.settings_of(configuration.with_hydra(config, node), self.built))
        except USER_ERRORS as error:
            raise Refusal(sentence(error)) from error

    def start_sweep(self, config: Config) -> None:
        """Composes and validates every job before the first one runs; then claims the sweep's folder."""
        loader = GlobalHydra.instance().config_loader()
        self._load, loader.load_sweep_config = loader.load_sweep_config, elsewhere.Frozen(self)
        self.launcher = elsewhere.launcher(config)
        faults = []
        for number, overrides in enumerate(jobs := _jobs_of(config)):
            try:
                self.load(config, overrides)
            except (Refusal, *USER_ERRORS) as error:
                place = f"job {number} ({' '.join(overrides)})"
                faults += [f"{place}: {line}" for line in sentence(error).splitlines()]
        refuse([*faults, *elsewhere.faults(config, bool(jobs))])
        for each in elsewhere.warnings(config):
            print(f"runner: {each}", file=sys.stderr)
        self.order = [tuple(each) for each in jobs]
        self.common = [word for word in jobs[0] if all(word in each for each in jobs)] if jobs else []
        self._claim(config)
        config.hydra.sweep.dir = str(self.folder)
        if self.launcher and not self.dry:
            self.watch = elsewhere.Watch(self.folder, self.expected())

    def load(self, master_config: Config, sweep_overrides: Sequence[str]) -> Config:
        """Hydra's `load_sweep_config`, once for each job: it asks twice, and files may change meanwhile."""
        key = tuple(sweep_overrides)
        if key not in self.jobs:
            config = self._load(master_config, list(key))
            if not configuration.lists_all(config):
                task = configuration.words_of(config.hydra)
                resolve = devices.named if elsewhere.other_hosts(config) else devices.resolve
                self.settings[task] = _planned(configuration.settings_of(config, self.built, resolve))
            self.jobs[key] = config
        config = configuration.unused(self.jobs[key])
        if self.folder:
            (self.folder / "multirun.yaml").unlink(missing_ok=True)
            config.hydra.sweep.dir = str(self.folder)
            config.hydra.sweep.subdir = "${hydra.job.num}" + folders.job_suffix(key, self.common)
        return config

    def _claim(self, config: Config) -> None:
        """The sweep's folder. A sweeper that chooses its jobs as it goes has none yet: the words say it."""
        first = next(iter(self.settings.values()), None)
        self.dry = bool(self.jobs) and all(each.mode in DRY for each in self.jobs.values())
        if self.dry:
            self.folder = Path(tempfile.mkdtemp(prefix="runner-"))  # Hydra makes folders in any case
            return
        names = {each.name for each in self.settings.values()}
        name = first.experiment if first else _said(config, "experiment") or _said(config, "op")
        output = first.output if first else _said(config, "output") or "outputs"
        own = name or (names.pop() if len(names) == 1 else "sweep")
        self.folder = claim(Path(output).expanduser().absolute() / own)
        self._held.enter_context(planned.in_use(self.folder))
        planned.keep(self.folder, self.by_folder(), sweep=True)

    def by_folder(self) -> dict[str, Settings]:
        """The settings of those jobs that write a folder, by its name."""
        found = {}
        for number, key in enumerate(self.order):
            settings = self.settings.get(configuration.words_of(self.jobs[key].hydra))
            if settings and settings.mode not in DRY:
                found[f"{number}{folders.job_suffix(key, self.common)}"] = settings
        return found

    def expected(self) -> dict[str, int]:
        """How many rows each job has to bring, by the name of its folder."""
        plans = {name: plan(settings) for name, settings in self.by_folder().items()}
        return {name: sum(len(each.entries) for each in one.cases) for name, one in plans.items()}

    @property
    def sweep(self) -> Path | None:
        """The sweep's folder when there is something in it."""
        return self.folder if self.folder and self.folder.is_dir() else None

    def close(self) -> None:
        """Leaves no folder of Hydra's own behind, and lets go of the sweep's."""
        if self.watch:
            self.watch.stop()
        self._held.close()
        if self.folder and self.dry:
            shutil.rmtree(self.folder)
        elif self.folder and self.folder.is_dir():
            folders.remove_empty(self.folder)


def _planned(settings: Settings) -> Settings:
    """The settings, their formulas evaluated for every case. Raises Refusal where one has no value."""
    if settings.mode not in ("list", "ceilings"):
        plan(settings)
    return settings


def _said(config: Config, key: str) -> str:
    """The one value that the command line gives a key; empty where it gives none or several."""
    parser = OverridesParser.create()
    given = parser.parse_overrides(list(configuration.words_of(config.hydra)))
    found = [each for each in given if each.key_or_group == key and not each.is_sweep_override()]
    value = found[-1].value() if found else ""
    return value if isinstance(value, str) else ""


def _jobs_of(config: Config) -> list[list[str]]:
    """The jobs' overrides where they are known beforehand: with Hydra's basic sweeper."""
    sweeper = config.hydra.sweeper
    if not str(sweeper.get("_target_", "")).endswith(BasicSweeper.__name__):
        return []
    refuse(no_jobs(sweeper.params or {}))
    words = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    overrides = parser.parse_overrides([*words, *configuration.words_of(config.hydra)])
    return [job for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]


_run: Run | None = None


class SweepStart(Callback):
    """Named in conf/config.yaml; Hydra calls it when a sweep begins."""

    def on_multirun_start(self, config: Config, **kwargs: Any) -> None:
        if _run is None:
            return
        try:
            _run.start_sweep(config)
        except Exception as error:
            raise Escape from error


def _job(config: Config) -> float | None:
    if _run is not None:
        return _run.job(config)
    run = Run(elsewhere.execute, listing.describe)  # a launcher's own process: nobody collects outcomes
    mean_ms = run.job(config)
    if run.refusals:
        lost.leave_word(Path(HydraConfig.get().runtime.output_dir), "\n".join(run.refusals))
    return mean_ms


def drive(argv: Sequence[str], run: Run) -> None:
    """Takes a command line through Hydra: `run.execute(settings, folder, label)` once for each job.

    `folder` is the job's own when it is part of a sweep, else None. Raises Refusal or one of
    USER_ERRORS when the user got something wrong; SystemExit where Hydra answers by itself.
    """
    global _run
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises rather than prints
    outer, words = _run, sys.argv
    _run, sys.argv = run, [words[0], *checked(argv, CONF)]
    try:
        hydra.main(config_path=str(CONF), config_name="config", version_base=VERSION_BASE)(_job)()
    except Escape as escape:
        raise escape.__cause__ from None
    except (Refusal, *USER_ERRORS) as error:
        ours = isinstance(error, OSError) and not isinstance(error, HydraException)
        if run.started and ours:  # not of composing
            raise RuntimeError(f"while a job ran: {error}") from error
        raise
    except Exception as error:
        if not (run.launcher and run.folder):
            raise
        run.ended = f"{run.launcher} ended with {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    finally:
        _run, sys.argv = outer, words
        run.close()
