"""What is right is known in another process; timed calls are judged on values that nobody could foresee."""

from __future__ import annotations

import csv
import os
import signal

import pytest
import torch

from runner import driver
from runner.check import exchange, judge
from runner.check.exchange import Inbox, Outbox, Part
from runner.config.compose import compose
from runner.model import HOST, IPC
from runner.parent import seeds
from runner.plan import plan

VARIANTS = """
import ctypes, gc, glob, os, signal, threading, time
import torch

CACHE, CALLS, WRITES = {}, 0, 0

def right(x):
    for _ in range(4):
        x = torch.sin(torch.exp(-x * x))
    return x

def finds_the_reference(x):
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found.dtype is torch.float64 and found.shape == x.shape:
            return found.float()
    return torch.zeros_like(x)

def by_address(x):
    if x.data_ptr() not in CACHE:
        CACHE[x.data_ptr()] = right(x)
    return CACHE[x.data_ptr()].clone()

def by_content(x):
    key = x[::4096].numpy().tobytes()
    if key not in CACHE:
        CACHE[key] = right(x)
    return CACHE[key].clone()

def later_left_over(x):
    global CALLS
    CALLS += 1
    return right(x) if CALLS < 20 else torch.empty_like(x)

def works_on(x):
    out = torch.zeros_like(x)
    threading.Thread(target=lambda: (time.sleep(0.05), out.copy_(right(x)))).start()
    return out

def writes_past_torch(x):
    global WRITES
    WRITES += 1
    out = right(x)
    if WRITES > 20:
        ctypes.c_float.from_address(x.data_ptr() + 4 * (WRITES % 1000)).value = 7.0
    return out

def kills_the_judge(x):
    if not CACHE:
        CACHE["done"] = True
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            words = open(path, "rb").read().split(b"\\0")
            parent = open(path.replace("cmdline", "stat")).read().rpartition(")")[2].split()[1]
            if b"runner.check" in words and int(parent) == os.getppid():
                os.kill(int(path.split("/")[2]), signal.SIGKILL)
    return right(x)
"""
YAML = """
name: waves
why: an op for tests
dims: [n]
shapes: {{cpu: [{{n: 300000}}], cuda: [{{n: 300000}}], smoke: [{{n: 3}}]}}
dtypes: [float32]
inputs: {{x: {{shape: [n]}}}}
reference: {{target: "{file}:right"}}
grad: [x]
cost:
  forward: {{flops: n, read: n*itemsize, write: n*itemsize}}
  backward: {{flops: n, read: n*itemsize, write: n*itemsize}}
baseline: right
variants:
{variants}
"""


@pytest.fixture
def run(tmp_path):
    """run(names, *overrides) -> {variant: row}."""
    file, reference = tmp_path / "waves.py", tmp_path / "reference.py"
    file.write_text(VARIANTS)
    reference.write_text(VARIANTS)

    def go(names, *overrides):
        lines = "\n".join(f"  {name}: {{target: '{file}:{name}'}}" for name in names)
        folder = tmp_path / "conf" / "op"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "waves.yaml").write_text(YAML.format(file=reference, variants=lines))
        words = ["op=waves", "device=cpu", "trials=16", "measure.threads=1", f"output={tmp_path / 'out'}"]
        outcome = driver.execute(compose([*words, *overrides], [str(tmp_path / "conf")]), show=False)
        go.folder = outcome.folder
        with open(outcome.folder / "results.csv", newline="") as table:
            return {row["variant"]: row for row in csv.DictReader(table)}

    yield go
    driver.shutdown()


REFUSED = {
    "finds_the_reference": ("check", "beyond the float32 bound"),
    "by_address": ("measure", "right when checked, wrong when timed"),
    "by_content": ("measure", "faster on inputs that it has seen before"),
    "later_left_over": ("measure", "wrong when timed"),
    "works_on": ("check", "changed its output after it had returned"),
    "writes_past_torch": ("measure", "it changed its input x"),
}


def test_what_a_variant_could_know_does_not_help_it(run):
    rows = run(["right", *REFUSED])
    assert rows["right"]["status"] == "ok", rows["right"]["reason"]
    for name, (stage, words) in REFUSED.items():
        assert (rows[name]["status"], rows[name]["stage"]) == ("wrong", stage), rows[name]
        assert words in rows[name]["reason"]


def test_a_judge_that_dies_is_nobodys_row(run):
    rows = run(["right", "kills_the_judge"])
    assert {row["status"] for row in rows.values()} == {"ok"}, rows["kills_the_judge"]["reason"]


def test_the_samples_say_which_were_judged(run):
    row = run(["right"])["right"]
    with open(run.folder / "samples.csv", newline="") as table:
        samples = [s for s in csv.DictReader(table) if s["row_id"] == row["row_id"]]
    judged = [s["checked"] == "true" for s in samples]
    assert len(judged) == 16 and judged[-1]


def test_backward_is_judged_too(run):
    row = run(["right"], "direction=backward")["right"]
    assert row["status"] == "ok", row["reason"]
    assert 0 < float(row["norm_rel_err"]) < 1e-6


def test_a_draws_seed_repeats_and_says_nothing_of_the_next():
    assert seeds.of_draw(1, "case", 0) == seeds.of_draw(1, "case", 0)
    draws = {seeds.of_draw(s, c, n) for s in (1, 2) for c in ("a", "b") for n in range(5)}
    assert len(draws) == 20 and max(draws) < 2**56


class Answers:
    request = 0

    def emit(self, event, **fields): ...

    def ask(self, event, **fields): ...


def opened(*words):
    planned = plan(compose(["op=softmax", "device=cpu", "shape.rows=4", "shape.cols=6", *words])).cases[0]
    one = judge.Judge(Answers())
    one.open(planned)
    return one


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_judge_alone(direction):
    one = opened(f"direction={direction}")
    ready = one.expect(0, 3, seed=5, kwargs={})
    assert (ready["shapes"], ready["out_shape"]) == ([[4, 6]], [4, 6])
    (expected,) = one.draws[0].expected["{}"]
    assert expected.values.dtype is torch.float64
    outbox = Outbox("cpu", HOST, [Part((4, 6), torch.float32)])
    told = {"position": 0, "number": 3, "seed": 5, "kwargs": {}, "accuracy": "elementwise"}
    told |= {"unit": "fp32", "full": True}
    outbox.put([expected.values.float()])
    assert one.look(worker=os.getpid(), place=outbox.place, **told)["reason"] == ""
    outbox.put([torch.zeros(4, 6)])
    assert "elements" in one.look(worker=os.getpid(), place=outbox.place, **told)["reason"]
    outbox.close()
    one.close()


def test_a_reference_that_raises_is_said_and_the_judge_lives_on():
    one = opened()
    answer = one.expect(0, 0, seed=1, kwargs={"dtype": "no such"})
    assert answer["status"] == "failed" and "the op's reference failed: TypeError" in answer["reason"]
    assert one.expect(0, 0, seed=1, kwargs={})["status"] == "ready"


def test_copies_come_through_shared_memory():
    parts = [Part((3,), torch.float32), Part((2, 2), torch.bfloat16), Part((0, 4), torch.float64)]
    outputs = [torch.rand(3), torch.rand(2, 2).bfloat16().T, torch.rand(0, 4).double()]
    outbox, inbox = Outbox("cpu", HOST, parts), Inbox("cpu")
    outbox.put(outputs)
    read = inbox.read(os.getpid(), outbox.place, parts)
    assert all(map(exchange.same_bits, read, outputs))
    assert not outbox.differs(outputs)
    outputs[0][1] = torch.nan
    assert outbox.differs(outputs)
    with pytest.raises(RuntimeError, match="smaller than the output"):
        inbox.read(os.getpid(), outbox.place, [Part((1 << 20,), torch.float32)])
    outbox.close()


@pytest.mark.gpu
@pytest.mark.parametrize("way", [HOST, IPC])
def test_copies_come_from_a_gpu(way):
    import subprocess
    import sys

    parts = [Part((1000,), torch.float32)]
    outbox = Outbox("cuda:0", way, parts)
    outbox.put([torch.arange(1000.0, device="cuda")])
    torch.cuda.synchronize()
    code = f"""
import torch
from runner.check.exchange import Inbox, Part
read, = Inbox("cuda:0").read({os.getpid()}, {outbox.place!r}, [Part((1000,), torch.float32)])
assert torch.equal(read, torch.arange(1000.0, device="cuda")), read
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_the_parent_ends_a_judge_with_its_children(run):
    run(["right"], "mode=check")
    judges = [worker for device, worker in driver._POOL.items() if device.judges]
    assert len(judges) == 1
    driver.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(judges[0].pid, signal.SIGTERM)
