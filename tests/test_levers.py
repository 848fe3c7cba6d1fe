"""Which measured variant is named for a pattern: this device and dtype, the nearest size, both directions."""

from __future__ import annotations

import csv

import pytest

from runner.profile import levers

HEAD = (
    "run_id,op,attrs,shape,dtype,direction,device,variant,group,status,mean_ms,read_bytes,write_bytes".split(
        ","
    )
)


@pytest.fixture(autouse=True)
def nothing_published(monkeypatch, tmp_path):
    monkeypatch.setattr(levers, "PUBLISHED", tmp_path / "published")
    levers._timed.cache_clear()


def _table(tmp_path, rows) -> None:
    folder = tmp_path / "out" / f"run{len(list(tmp_path.rglob('results.csv')))}"
    folder.mkdir(parents=True)
    common = {"run_id": folder.name, "op": "gelu", "attrs": "{}", "dtype": "float32", "device": "A card"}
    common |= {"group": "", "status": "ok", "direction": "forward", "shape": "big", "read_bytes": 1e9}
    with open(folder / "results.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows(common | {"write_bytes": 1e9} | row for row in rows)


def _best(tmp_path, moved=2e9, among=(), device="A card", dtype="float32"):
    return levers.best("gelu", device, dtype, moved, tmp_path / "out", among)


def _pair(variant: str, ms: float, **more):
    return [{"variant": "naive", "mean_ms": 10.0, **more}, {"variant": variant, "mean_ms": ms, **more}]


def test_the_fastest_is_named_with_its_ratio_and_table(tmp_path):
    _table(tmp_path, [*_pair("builtin", 2.0), {"variant": "tuned", "mean_ms": 1.0}])
    found = _best(tmp_path)
    assert (found.variant, found.forward, found.backward) == ("tuned", 10.0, None)
    assert found.table.endswith("run0/results.csv")


def test_one_whose_backward_was_measured_goes_first(tmp_path):
    _table(tmp_path, [*_pair("builtin", 2.0), {"variant": "tuned", "mean_ms": 1.0}])
    _table(tmp_path, _pair("builtin", 5.0, direction="backward"))
    found = _best(tmp_path)
    assert (found.variant, found.forward, found.backward) == ("builtin", 5.0, 2.0)


def test_the_nearest_size_counts(tmp_path):
    _table(tmp_path, _pair("builtin", 1.0, shape="big"))
    _table(tmp_path, _pair("builtin", 5.0, shape="small", read_bytes=1e3, write_bytes=1e3))
    assert _best(tmp_path, moved=2e9).forward == 10.0
    assert _best(tmp_path, moved=4e3).forward == 2.0


@pytest.mark.parametrize("other", [{"device": "Another card"}, {"dtype": "bfloat16"}])
def test_other_devices_and_dtypes_do_not_count(tmp_path, other):
    _table(tmp_path, _pair("builtin", 1.0))
    assert _best(tmp_path, **other) is None


def test_peers_and_what_has_no_time_do_not_count(tmp_path):
    rows = [*_pair("builtin", 2.0), {"variant": "quack", "mean_ms": 0.5, "group": "peer"}]
    _table(tmp_path, [*rows, {"variant": "broken", "status": "wrong", "mean_ms": ""}])
    assert _best(tmp_path).variant == "builtin"


def test_one_variant_can_be_asked_for(tmp_path):
    _table(tmp_path, [*_pair("builtin", 2.0), {"variant": "tuned", "mean_ms": 1.0}])
    assert _best(tmp_path, among=("builtin",)).forward == 5.0
    assert _best(tmp_path, among=("compile",)) is None


def test_nothing_measured_is_no_lever(tmp_path):
    assert _best(tmp_path) is None
