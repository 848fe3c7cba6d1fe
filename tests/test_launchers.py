"""A sweep's jobs in other processes. What needs joblib, Ray or Slurm runs where they are installed."""

from __future__ import annotations

import csv
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner import cli, driver
from runner.command import elsewhere, lost
from runner.config import devices, overrides
from runner.config.compose import compose
from runner.model import Refusal
from runner.plan import plan
from runner.process import device_lock
from runner.record import columns, planned
from runner.record.folder import Record, claim
from runner.record.joined import collect_jobs
from tests.kept_runs import row, write
from tests.support import ROOT

TINY = ["variant=builtin", "device=cpu", "mode=check", "shapes=[{rows: 2, cols: 2}]"]


def launching(target):
    return SimpleNamespace(hydra=SimpleNamespace(launcher={"_target_": target}))


SLURM = launching("hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher")


# ---- what can be said beforehand ----


def test_submitit_local_is_refused_with_the_remedy():
    local = launching("hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher")
    (fault,) = elsewhere.faults(local, known=True)
    assert "every job the same GPU or none" in fault and "hydra/launcher=gpus" in fault


def test_hydras_own_launcher_is_none():
    basic = launching("hydra._internal.core_plugins.basic_launcher.BasicLauncher")
    assert elsewhere.launcher(basic) == "" and not [*elsewhere.faults(basic, known=False)]


def test_jobs_that_are_not_known_beforehand_stay_here():
    assert "leave hydra/launcher out" in next(elsewhere.faults(SLURM, known=False))


@pytest.mark.parametrize("sacct", ["", "#!/bin/sh\nexit 1\n"])
def test_slurm_without_accounting_is_said(monkeypatch, tmp_path, sacct):
    monkeypatch.setenv("PATH", str(tmp_path))
    if sacct:
        (tmp_path / "sacct").write_text(sacct)
        (tmp_path / "sacct").chmod(0o755)
    assert "is then never seen to end" in next(elsewhere.warnings(SLURM))


def test_slurm_with_accounting_is_quiet(monkeypatch, tmp_path):
    (tmp_path / "sacct").symlink_to(shutil.which("true"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(elsewhere.warnings(SLURM)) == []


@pytest.mark.parametrize(
    ("preset", "extra"), [(name, extra) for name, (extra, _) in overrides.EXTRAS.items()]
)
def test_a_preset_without_its_package_names_the_extra(monkeypatch, capsys, preset, extra):
    monkeypatch.setattr(overrides, "find_spec", lambda name: None)
    assert cli.main(["-m", "op=add", f"hydra/launcher={preset}"]) == 2
    assert f"pip install 'kernel-runner[{extra}]'" in capsys.readouterr().err
    assert (ROOT / "conf" / "hydra" / "launcher" / f"{preset}.yaml").is_file()


# ---- devices ----


def test_a_device_of_another_machine_is_taken_by_its_name():
    assert [devices.named(text) for text in ("cpu", "auto", "cuda", "cuda:1", "cuda:any")] == [
        "cpu",
        "cuda:0",
        "cuda:0",
        "cuda:1",
        "cuda:any",
    ]
    with pytest.raises(Refusal, match="not a device"):
        devices.named("gpu")


def test_any_gpu_needs_one(monkeypatch):
    monkeypatch.setattr(devices, "driver", lambda: (0, "no CUDA driver here"))
    with pytest.raises(Refusal, match="device=cuda:any: no CUDA driver here"):
        devices.resolve("cuda:any")


def test_a_job_that_comes_to_a_host_without_a_gpu_does_not_wait_for_one(monkeypatch):
    monkeypatch.setattr(devices, "driver", lambda: (0, "no CUDA driver here"))
    with pytest.raises(Refusal, match="device=cuda:any: no CUDA driver here"):
        driver.execute(SimpleNamespace(device=devices.ANY, mode="bench", command=()))


def test_jobs_of_joblib_run_on_this_machine():
    joblib = launching("hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher")
    assert elsewhere.launcher(joblib) and not elsewhere.other_hosts(joblib)
    assert elsewhere.other_hosts(SLURM)


@pytest.mark.parametrize(("shown", "names"), [("", ["0", "1"]), ("3, 5", ["3", "5"])])
def test_the_locks_are_those_of_the_cards_whatever_is_visible(monkeypatch, shown, names):
    monkeypatch.setattr(devices, "driver", lambda: (2, ""))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    expected = {f"run-on-gpu-{name}": f"cuda:{i}" for i, name in enumerate(names)}
    assert devices.keys() == expected


def test_each_run_takes_a_free_card_and_the_next_waits(monkeypatch, tmp_path):
    monkeypatch.setattr(device_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    said = []
    with take(said.append) as first, take(said.append) as second:
        assert (first, second, said) == ("a", "b", [])
        with pytest.raises(KeyboardInterrupt), take(interrupt(said)):
            pass
    assert said == ["all 2 GPUs are taken by other runs: waiting"]
    with take(said.append) as again:
        assert again == "a"


def take(waiting):
    return device_lock.first_free(["a", "b"], waiting)


def interrupt(said):
    def waiting(text):
        said.append(text)
        raise KeyboardInterrupt

    return waiting


# ---- jobs that do not come to their end ----


def test_every_job_that_was_lost_is_named(tmp_path):
    write(tmp_path / "0_a", [row()])
    write(tmp_path / "1_b", [row()])
    lost.leave_word(write(tmp_path / "2_c", []), "no space\nleft")
    assert lost.find(tmp_path, {"0_a": 1, "1_b": 3, "2_c": 2, "3_d": 4}) == {
        "1_b": "it was ended from outside; it had written 1 of its 3 rows",
        "2_c": "no space left; it had written 0 of its 2 rows",
        "3_d": "it never began, or was ended from outside at once; it had written 0 of its 4 rows",
    }


def test_a_job_that_dies_leaves_word(tmp_path, monkeypatch):
    killed = SimpleNamespace(returncode=-9)
    monkeypatch.setattr(elsewhere.subprocess, "run", lambda *a, **k: killed)
    assert elsewhere.execute(None, tmp_path, "job 1") is None
    assert lost.find(tmp_path.parent, {tmp_path.name: 1}) == {
        tmp_path.name: "its process died of signal 9; it had written 0 of its 1 rows"
    }


@pytest.fixture
def planned_sweep(tmp_path):
    """(sweep, settings by job): two jobs of three rows, one of which does not apply; no folders yet."""
    words = ["op=gelu", "variant=[naive,builtin,cuda_thread]", "device=cpu", "shapes=[{rows: 2, cols: 2}]"]
    jobs = {f"{i}_x": compose([*words, f"seed={i}", f"output={tmp_path}"]) for i in range(2)}
    sweep = claim(tmp_path)
    planned.keep(sweep, jobs, sweep=True)
    return sweep, jobs


def rows_of(folder):
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def one_row_of(sweep, name, settings):
    """A job's folder as one that was killed after its first row leaves it."""
    (sweep / name).mkdir()
    record = Record(sweep / name, settings, alone=False)
    each = plan(settings).cases[0]
    identity = {"run_id": record.run_id, "seed": 1, "device_name": "a card", "device_uuid": "u"}
    record.add(columns.row(identity, each.case, each.entries[0], {"status": "checked", "stage": "check"}))
    record.environment(settings, {"device_name": "a card", "device_uuid": "u"})
    record.close()
    with open(sweep / name / "results.csv", "a") as file:
        file.write("1,torn")


def test_each_planned_row_of_a_dead_job_has_its_row(planned_sweep):
    sweep, jobs = planned_sweep
    one_row_of(sweep, "0_x", jobs["0_x"])
    found = lost.find(sweep, dict.fromkeys(jobs, 3))
    assert lost.make_up(sweep, jobs, found) == [f"resume={sweep} runs those rows"]
    collect_jobs(sweep)
    seen = [(r["variant"], r["status"], r["stage"], r["device"]) for r in rows_of(sweep)]
    assert seen == [
        ("naive", "checked", "check", "a card"),
        ("builtin", "crashed", "job", "a card"),
        ("cuda_thread", "skipped", "", "a card"),
        ("naive", "crashed", "job", "cpu"),
        ("builtin", "crashed", "job", "cpu"),
        ("cuda_thread", "skipped", "", "cpu"),
    ]
    assert len({r["row_id"] for r in rows_of(sweep)}) == 6
    assert all(r["source_sha"] and r["seed"] == "" for r in rows_of(sweep)[1:])
    before = "the process of this row's job ended before it came to it: it"
    never = f"{before} never began, or was ended from outside at once; it had written 0 of its 3 rows"
    assert [r["reason"] for r in rows_of(sweep) if r["stage"] == "job"] == [
        f"{before} was ended from outside; it had written 1 of its 3 rows",
        *[never] * 2,
    ]
    assert all((sweep / name / "report.md").is_file() for name in jobs)


def test_lost_rows_are_written_once_and_taken_out_when_the_job_is_carried_on_with(planned_sweep):
    sweep, jobs = planned_sweep
    one_row_of(sweep, "0_x", jobs["0_x"])
    for _ in range(2):
        lost.make_up(sweep, jobs, {"0_x": "so"})
        assert len(rows_of(sweep / "0_x")) == 3
    record = Record(sweep / "0_x", jobs["0_x"], alone=False)
    record.close()
    assert [r["variant"] for r in record.rows] == ["naive", "cuda_thread"]
    assert [r["variant"] for r in rows_of(sweep / "0_x")] == ["naive", "cuda_thread"]


def test_a_job_that_is_alive_after_all_keeps_its_table(planned_sweep):
    sweep, jobs = planned_sweep
    one_row_of(sweep, "0_x", jobs["0_x"])
    before = (sweep / "0_x" / "results.csv").read_bytes()
    with planned.in_use(sweep / "0_x"):
        (said,) = lost.make_up(sweep, jobs, {"0_x": "so"})
    assert "is in use by a run that is alive" in said
    assert (sweep / "0_x" / "results.csv").read_bytes() == before


def finished(monkeypatch, sweep, jobs, told=()):
    """What `cli.finish` says after a sweep of these jobs through a launcher, and its exit code."""
    said = []
    monkeypatch.setattr(cli, "complain", said.append)
    monkeypatch.setattr(cli.interrupts, "told", list(told))
    monkeypatch.setattr("runner.driver.finish", lambda sweep, outcomes: 0)
    run = SimpleNamespace(sweep=sweep, outcomes=[], launcher="JoblibLauncher", ended="")
    run.by_folder, run.expected = lambda: jobs, lambda: dict.fromkeys(jobs, 3)
    return cli.finish(run), said[0].splitlines()


def test_a_sweep_ends_with_what_was_lost_and_the_remedy(planned_sweep, monkeypatch):
    sweep, jobs = planned_sweep
    code, said = finished(monkeypatch, sweep, jobs)
    never = "it never began, or was ended from outside at once; it had written 0 of its 3 rows"
    assert (code, said) == (
        1,
        [f"job {name}: {never}" for name in jobs] + [f"resume={sweep} runs those rows"],
    )
    assert finished(monkeypatch, sweep, {}) == (0, [])


def test_an_interrupted_sweep_leaves_its_rows_to_resume(planned_sweep, monkeypatch):
    sweep, jobs = planned_sweep
    code, said = finished(monkeypatch, sweep, jobs, told=[signal.SIGINT])
    assert code == 1 and len(said) == 2 and not list(sweep.rglob("results.csv"))


def test_a_sent_job_is_the_one_that_was_composed(tmp_path):
    run = SimpleNamespace(folder=tmp_path, jobs={("x=1",): 1, ("x=2",): 2})
    run.load = lambda config, key: {"composed": run.jobs[tuple(key)]}
    sent = pickle.loads(pickle.dumps(elsewhere.Frozen(run)))
    run.jobs[("x=1",)] = "edited meanwhile"
    assert sent(None, ["x=1"]) == {"composed": 1} and sent(None, ["x=2"]) == {"composed": 2}


# ---- for real ----


def installed(module):
    there = find_spec("hydra_plugins") and find_spec(f"hydra_plugins.{module}")
    return pytest.mark.skipif(not there, reason=f"{module} is not installed")


def sweep(folder, *words, **more):
    command = [sys.executable, "-m", "runner", "-m", *TINY, f"output={folder}", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment(folder), **pipes, **more)


def environment(folder):
    own = {"SWEEP": str(folder), "PYTHONPATH": str(ROOT), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    return os.environ | own


def statuses(folder):
    (path,) = Path(folder).glob("*/*/results.csv")
    with open(path, newline="") as file:
        return {one["op"]: one["status"] for one in csv.DictReader(file)}


JOBLIB = ["hydra/launcher=gpus", "hydra.launcher.n_jobs=2"]
RAY = ["hydra/launcher=ray_gpu", *(f"+hydra.launcher.ray.init.num_{what}=2" for what in ("gpus", "cpus"))]
NO_SLURM = pytest.mark.skipif("SLURM_CONF" not in os.environ, reason="no Slurm: launchers/slurm_node.sh")
LAUNCHERS = [
    pytest.param(JOBLIB, marks=installed("hydra_joblib_launcher")),
    pytest.param(RAY, marks=installed("hydra_ray_launcher")),
    pytest.param(
        ["hydra/launcher=slurm_gpu", "hydra.launcher.cpus_per_task=1"],
        marks=[installed("hydra_submitit_launcher"), NO_SLURM],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("words", LAUNCHERS, ids=lambda words: words[0].partition("=")[2])
def test_all_jobs_of_a_sweep_are_joined(tmp_path, words):
    process = sweep(tmp_path, "op=gelu,add,softmax", *words)
    _, err = process.communicate(timeout=280)
    assert process.returncode == 0, err[-3000:]
    assert statuses(tmp_path) == dict.fromkeys(("gelu", "add", "softmax"), "checked")
    assert "3 of 3 jobs are done, 3 of 3 rows" in err


@pytest.mark.slow
@pytest.mark.parametrize("words", LAUNCHERS, ids=lambda words: words[0].partition("=")[2])
def test_a_job_that_is_killed_costs_its_rows_only(tmp_path, words):
    process = sweep(tmp_path, "op=gelu,add,softmax", *words)
    kill_one(tmp_path)
    _, err = process.communicate(timeout=280)
    assert process.returncode == 1, err[-3000:]
    assert sorted(statuses(tmp_path).values()) == ["checked", "checked", "crashed"]
    (said,) = [line for line in err.splitlines() if line.startswith("runner: job ")]
    assert "its process died of signal 9; it had written 0 of its 1 rows" in said
    (sweep_folder,) = [path.parent for path in tmp_path.glob("*/*/results.csv")]
    command = [sys.executable, "-m", "runner", f"resume={sweep_folder}"]
    resumed = subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert statuses(tmp_path) == dict.fromkeys(("gelu", "add", "softmax"), "checked")


@pytest.mark.slow
@pytest.mark.parametrize("words", LAUNCHERS[:1], ids=lambda words: words[0].partition("=")[2])
def test_a_sweep_that_is_killed_with_its_jobs_is_resumed(tmp_path, words):
    process = sweep(tmp_path, "op=gelu,add,softmax", *words, start_new_session=True)
    kill_one(tmp_path, lambda job: os.killpg(process.pid, signal.SIGKILL))
    process.communicate(timeout=60)
    (folder,) = [path.parent for path in tmp_path.glob("*/*/planned.json")]
    assert not (folder / "results.csv").exists()
    assert cli.main([f"resume={folder}"]) == 0
    assert statuses(tmp_path) == dict.fromkeys(("gelu", "add", "softmax"), "checked")


def kill_one(folder, kill=lambda job: os.kill(job, signal.SIGKILL)):
    """Kill the first job's process, once it has begun."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if (
                b"runner.command.elsewhere" in words
                and str(folder).encode() in (path.parent / "environ").read_bytes()
            ):
                kill(int(path.parent.name))
                return
        time.sleep(0.02)
    raise AssertionError("no job began")
