"""The rows that a sweep's job did not come to, because its process ended: written by whoever started it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner.build import sources
from runner.model import Entry, Settings
from runner.plan import plan
from runner.record import columns, planned
from runner.record.folder import Record, writing


def make_up(folder: Path, settings: Settings, why: str) -> int:
    """Give each planned row that a job's folder lacks one that says `why`; how many those are.

    They are `crashed` at the stage `job`, by which a resumed run knows that they are to be found again. What
    does not apply is `skipped`, as ever. Raises Refusal where the job is alive after all.
    """
    with writing(folder):
        folder.mkdir(exist_ok=True)
    with planned.in_use(folder):
        record = Record(folder, settings, alone=False)
        try:
            return _written(record, settings, why)
        finally:
            record.close()


def _written(record: Record, settings: Settings, why: str) -> int:
    identity = {"run_id": record.run_id, "seed": settings.seed, **_device(record.folder, settings)}
    for each in plan(settings).cases:
        for entry in each.entries:
            if not record.row_of(columns.row_id(record.run_id, each.case, entry)):
                record.add(columns.row(identity, each.case, entry, _facts(entry, why)))
    return record.fresh


def _facts(entry: Entry, why: str) -> dict[str, Any]:
    sha = {"source_sha": sources.digest_now(entry.variant)}
    if entry.skip:
        return {"status": "skipped", "stage": "", "reason": entry.skip} | sha
    return {"status": "crashed", "stage": columns.LOST, "reason": why} | sha


def _device(folder: Path, settings: Settings) -> dict[str, str]:
    """The device as the job's worker named it, or as it was asked for."""
    path = folder / "environment.json"
    facts = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {
        "device_name": facts.get("device_name", settings.device),
        "device_uuid": facts.get("device_uuid", ""),
    }
