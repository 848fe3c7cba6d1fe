"""The command line: runs, sweeps, their folders and exit codes, with a driver that measures nothing."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import runner
from runner import cli
from runner.command import jobs
from runner.files import ROOT
from runner.model import Refusal
from tests import tiny_op


class Driver:
    """Writes a file where a job's folder is given, and remembers what it was asked."""

    def __init__(self):
        self.calls = []  # (settings, folder)
        self.finished = []  # (sweep, outcomes)
        self.labels = []
        self.before = lambda settings: None
        self.code = 0
        self.mean_ms = 1.5

    def execute(self, settings, folder, label=""):
        self.before(settings)
        self.calls.append((settings, folder))
        self.labels.append(label)
        if folder is not None:
            assert folder.is_dir() and not list(folder.iterdir())
            (folder / "results.csv").write_text("x\n")
        return SimpleNamespace(folder=folder, failed=False, mean_ms=self.mean_ms)

    def finish(self, sweep, outcomes):
        self.finished.append((sweep, outcomes))
        return self.code

    def say_what_is_left(self, folder):
        print(f"left in {folder}", file=sys.stderr)


@pytest.fixture
def driver(monkeypatch):
    fake = Driver()
    monkeypatch.setitem(sys.modules, "runner.driver", fake)
    monkeypatch.setattr(runner, "driver", fake, raising=False)
    return fake


@pytest.fixture
def main(driver, tmp_path, monkeypatch):
    """`cli.main` with the small op, in an empty folder."""
    conf = tiny_op.write(tmp_path / "conf")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return lambda *words: cli.main(["--config-dir", str(conf), *words, "device=cpu"])


def here():
    return sorted(str(path) for path in Path().rglob("*"))


def test_a_run(main, driver):
    driver.code = 1
    assert main("op=scale", "seed=3") == 1
    ((settings, folder),) = driver.calls
    assert (settings.op.name, settings.seed, folder) == ("scale", 3, None)
    assert settings.command == ("op=scale", "seed=3", "device=cpu")
    ((sweep, outcomes),) = driver.finished
    assert sweep is None and len(outcomes) == 1
    assert here() == []


def test_a_sweep(main, driver):
    assert main("-m", "op=scale", "dtype=float32,bfloat16", "shape.rows=1,2", "trials=2") == 0
    assert [(s.dtypes[0], s.shapes[0]["rows"]) for s, _ in driver.calls] == [
        ("float32", 1), ("float32", 2), ("bfloat16", 1), ("bfloat16", 2)]  # fmt: skip
    ((sweep, outcomes),) = driver.finished
    assert len(outcomes) == 4
    assert sweep.parent == Path("outputs/scale").absolute()
    names = ["0_dtype=float32_shape.rows=1", "1_dtype=float32_shape.rows=2",
             "2_dtype=bfloat16_shape.rows=1", "3_dtype=bfloat16_shape.rows=2"]  # fmt: skip
    assert sorted(path.name for path in sweep.iterdir()) == [*names, "planned.json"]
    assert [folder for _, folder in driver.calls] == [sweep / name for name in names]
    assert not [path for path in here() if ".hydra" in path or "multirun" in path]


def test_sweeps_never_share_a_folder(main, driver):
    main("-m", "op=scale", "seed=1,2")
    main("-m", "op=scale", "seed=1,2")
    assert driver.finished[0][0] != driver.finished[1][0]


def test_the_sweep_of_an_experiment(main, driver, tmp_path):
    (tmp_path / "conf" / "experiment").mkdir()
    (tmp_path / "conf" / "experiment" / "two.yaml").write_text(
        "# @package _global_\nwhy: to see\nvariant: naive\nhydra: {sweeper: {params: {op: 'scale,gelu'}}}\n"
    )
    assert main("-m", "experiment=two", "shapes=smoke") == 0
    assert [(s.op.name, s.variants, s.experiment) for s, _ in driver.calls] == [
        ("scale", ("naive",), "two"), ("gelu", ("naive",), "two")]  # fmt: skip
    assert driver.finished[0][0].parent.name == "two"
    assert [folder.name for _, folder in driver.calls] == ["0_op=scale", "1_op=gelu"]


def test_a_bad_job_refuses_the_whole_sweep(main, driver, capsys):
    assert main("-m", "op=gelu,scale,softmax", "attrs.factor=3") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("runner: job 0 (op=gelu attrs.factor=3 device=cpu): ")
    assert lines[1].startswith("runner: job 2 (op=softmax attrs.factor=3 device=cpu): ")
    assert "op softmax has no attribute 'factor'" in lines[1]
    assert driver.calls == [] and driver.finished == [] and here() == []


def test_each_job_is_composed_once_and_before_the_first(main, driver, tmp_path, monkeypatch):
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    composed, load = [], ConfigLoaderImpl.load_sweep_config

    def counting(self, master_config, sweep_overrides):
        composed.append(tuple(sweep_overrides))
        return load(self, master_config, sweep_overrides)

    def edit(settings):
        assert len(composed) == 3
        tiny_op.write(tmp_path / "conf", {"dims": ["edited"], "baseline": "quick"})

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counting)
    driver.before = edit
    assert main("-m", "op=scale", "seed=1,2,3") == 0
    assert len(composed) == 3
    assert [(s.seed, s.op.baseline) for s, _ in driver.calls] == [(1, "naive"), (2, "naive"), (3, "naive")]


def test_files_are_chosen_by_a_pattern(main, driver):
    assert main("-m", "op=glob([s*,gelu],exclude=softmax)", "shapes=smoke") == 0
    assert [settings.op.name for settings, _ in driver.calls] == ["gelu", "scale"]


def test_a_formula_without_a_value_refuses_the_sweep_before_its_first_job(main, driver, capsys, tmp_path):
    tiny_op.write(tmp_path / "conf", {"cost.forward.flops": "rows / (rows - 2)"})
    assert main("-m", "op=scale", "shape.rows=1,2,3", "mode=check") == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in lines] == ["runner: job 0", "runner: job 1"]
    assert "gives -1.0 at rows=1; a finite number from 0 on is needed" in lines[0]
    assert "has no value at rows=2" in lines[1]
    assert driver.calls == [] and here() == []


def test_the_same_job_twice(main, driver):
    assert main("-m", "op=scale", "seed=1,1") == 0
    assert driver.labels == ["job 1/2", "job 2/2"]
    assert [folder.name for _, folder in driver.calls] == ["0", "1"]


def test_modes_that_write_nothing_leave_nothing_in_a_sweep(main, driver):
    assert main("-m", "op=scale,gelu", "mode=plan") == 0
    assert [folder for _, folder in driver.calls] == [None, None]
    assert here() == []


def test_a_job_returns_its_mean_for_optimizing_sweepers(main, driver, monkeypatch):
    returned, job = [], jobs._job
    monkeypatch.setattr(jobs, "_job", lambda config: returned.append(job(config)))
    main("op=scale")
    assert returned == [1.5]


@pytest.fixture
def optimized(monkeypatch):
    """What jobs return to a sweeper that chooses them as it goes."""
    returned, job = [], jobs._job
    monkeypatch.setattr(jobs, "_jobs_of", lambda config: [])
    monkeypatch.setattr(jobs, "_job", lambda config: returned.append(job(config)))
    return returned


def test_a_sweep_whose_jobs_are_not_known_beforehand(main, driver, optimized, tmp_path):
    assert main("-m", "op=scale", "seed=1,2", f"output={tmp_path}/out") == 0
    assert driver.labels == ["job 1", "job 2"] and optimized == [1.5, 1.5]
    assert {folder.parent.parent for _, folder in driver.calls} == {tmp_path / "out" / "scale"}


def test_to_a_sweeper_that_optimizes_no_time_is_the_worst(main, driver, optimized):
    driver.mean_ms = None

    def refuse_the_second(settings):
        if settings.seed == 2:
            raise Refusal("no space left")

    driver.before = refuse_the_second
    assert main("-m", "op=scale", "seed=1,2") == 2
    assert optimized == [float("inf")] * 2


def test_a_job_that_refuses_leaves_the_others(main, driver, capsys):
    def refuse_the_second(settings):
        if settings.seed == 2:
            raise Refusal("no space left")

    driver.before = refuse_the_second
    assert main("-m", "op=scale", "seed=1,2,3") == 2
    assert [s.seed for s, _ in driver.calls] == [1, 3]
    assert len(driver.finished) == 1
    assert capsys.readouterr().err == "runner: no space left\n"


def test_an_interrupted_sweep_joins_what_is_there(main, driver, capsys):
    def interrupt(settings):
        if settings.seed == 2:
            raise KeyboardInterrupt

    driver.before = interrupt
    assert main("-m", "op=scale", "seed=1,2,3") == 130
    ((sweep, outcomes),) = driver.finished
    assert len(outcomes) == 1
    assert sorted(path.name for path in sweep.iterdir()) == ["0_seed=1", "planned.json"]
    assert capsys.readouterr().err == f"left in {sweep}\nrunner: interrupted\n"


@pytest.mark.parametrize("error", [OSError("disk"), ZeroDivisionError("bug"), TypeError("bug")])
def test_our_own_bugs_are_not_sentences(main, driver, capsys, error):
    def fail(settings):
        raise error

    driver.before = fail
    assert main("op=scale") == 3
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" in lines
    assert lines[-1].startswith("runner: internal error: ") and str(error) in lines[-1]


def test_list_needs_no_op_and_survives_a_broken_one(main, driver, capsys, tmp_path):
    tiny_op.write(tmp_path / "conf", {"name": "sad", "cost": ...}, name="sad")
    assert main("mode=list") == 0
    out = capsys.readouterr().out
    assert "scale: one product an element" in out and "the plain form" in out
    assert "sad: cannot be used" in out and "cost: missing" in out
    assert all(path.stem in out for path in (ROOT / "conf" / "op").glob("*.yaml"))
    assert main("mode=list", "op=scale") == 0
    out = capsys.readouterr().out
    assert out.startswith("scale: ") and "gelu" not in out
    assert driver.calls == [] and here() == []


def test_options_may_stand_anywhere(main, driver):
    assert main("op=scale", "-m", "seed=1,2") == 0
    assert [settings.seed for settings, _ in driver.calls] == [1, 2]


def test_the_composed_configuration_is_shown(main, capsys):
    assert main("op=scale", "shape.rows=3", "--cfg", "job") == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["op"]["name"], shown["shape"], shown["variant"]) == ("scale", {"rows": 3}, "all")


def test_every_experiment_composes(driver, monkeypatch, tmp_path):
    from runner.config import devices

    monkeypatch.setattr(devices, "driver", lambda: (1, ""))
    monkeypatch.setattr(devices, "torch_obstacle", lambda: "")
    monkeypatch.chdir(tmp_path)
    for path in sorted((ROOT / "conf" / "experiment").glob("*.yaml")):
        text = path.read_text()
        command = next(line for line in text.splitlines() if line.startswith("# python -m runner "))
        words = command.removeprefix("# python -m runner ").split()
        assert f"experiment={path.stem}" in words and yaml.safe_load(text)["why"]
        assert cli.main([*words, "mode=plan"]) == 0, path
    ops = [s.op.name for s, _ in driver.calls if s.experiment == "headline"]
    assert ops == ["gelu", "softmax", "add", "cdist"]


# ---- what the user's shell sees ----


def shell(*words, code=""):
    command = [sys.executable, *(("-c", code) if code else ("-m", "runner")), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_refusal_in_a_shell():
    done = shell("op=gellu", "mode=bensh")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "runner: op=gellu: there is no op 'gellu'; did you mean 'gelu'?",
        "runner: mode=bensh: no such mode; did you mean 'bench'?",
    ]


def test_help_is_there_without_hydra():
    code = "import sys; from runner.cli import main; main(['--help']); sys.exit('hydra' in sys.modules)"
    done = shell(code=code)
    assert done.returncode == 0
    for word in ("op=", "shape.<dim>=", "experiment=", "mode=list", "debug", "exit codes", "--config-dir"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110
    assert " 'variant=[naive,builtin]' " in done.stdout  # some shells take brackets for a pattern


def test_torch_is_not_imported_for_help_refusals_plan_and_list():
    code = (
        "import sys; from runner.cli import main; "
        "words = ['op=gelu variant=x', 'op=gelu mode=plan', 'mode=list', '-m op=gelu,add mode=plan']; "
        "assert [main(each.split()) for each in words] == [2, 0, 0, 0]; "
        "sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    done = shell(code=code)
    assert done.returncode == 0, done.stderr


def test_hydras_own_pages():
    asked = "main(['--hydra-help']), main(['op=gelu', '--info', 'defaults'])"
    done = shell(code=f"from runner.cli import main; print({asked})")
    assert "0 0" in done.stdout and "Defaults List" in done.stdout and "hydra/sweeper" in done.stdout
