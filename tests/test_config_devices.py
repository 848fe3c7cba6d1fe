"""Which device: by the driver and torch's version file, both replaced here."""

import pytest

from runner.config import devices
from runner.model import Refusal


@pytest.fixture
def machine(monkeypatch):
    def make(count, why="", obstacle=""):
        monkeypatch.setattr(devices, "driver", lambda: (count, why))
        monkeypatch.setattr(devices, "torch_obstacle", lambda: obstacle)

    return make


def test_auto_takes_a_gpu_when_it_can_be_used(machine):
    machine(2)
    assert devices.resolve("auto") == "cuda:0"
    machine(2, obstacle="the installed torch is built for the CPU only")
    assert devices.resolve("auto") == "cpu"
    machine(0, "no driver")
    assert devices.resolve("auto") == "cpu"


@pytest.mark.parametrize(("text", "device"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_named(machine, text, device):
    machine(2)
    assert devices.resolve(text) == device


def test_refusals_give_the_reason(machine):
    machine(2)
    with pytest.raises(Refusal, match="device=cuda:2: there are only cuda:0 to cuda:1"):
        devices.resolve("cuda:2")
    with pytest.raises(Refusal, match=r"not a device; did you mean 'cuda:any'\?"):
        devices.resolve("cuda:a")
    machine(0, "no CUDA driver here")
    with pytest.raises(Refusal, match="no CUDA driver here; device=cpu runs without"):
        devices.resolve("cuda")


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", "built for the CPU only"),
        ("cuda: Optional[str] = '13.0'\n", ""),
        ("cuda = None\n", "built for the CPU only"),
    ],
)
def test_torch_is_asked_through_its_version_file(monkeypatch, tmp_path, text, obstacle):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert obstacle in devices.torch_obstacle.__wrapped__()
    assert bool(devices.torch_obstacle.__wrapped__()) == bool(obstacle)


def test_this_machines_answer_is_a_device():
    assert devices.resolve("auto") in ("cpu", "cuda:0")
