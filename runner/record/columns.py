"""The header of `results.csv` and the one pure function that fills a row. Readers never compute again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from runner.files import short_hash
from runner.measure import noise, roofline
from runner.measure.statistics import Summary, in_words, summarize
from runner.measure.stopping import half_width
from runner.model import Case, Entry

SCHEMA_VERSION = 1

COLUMNS = tuple(
    "schema_version,run_id,row_id,case_id,op,attrs,shape,layout,dtype,direction,"
    "device,device_uuid,variant,params,group,unit,accuracy,source_sha,"
    "status,stage,reason,note,"
    "seed,max_abs_err,max_rel_err,norm_rel_err,max_ulp,err_over_builtin,deterministic,"
    "build_ms,build_cached,first_call_ms,timing,trials,stop_reason,"
    "mean_ms,median_ms,min_ms,p20_ms,p80_ms,std_ms,"
    "mean_ci_low_ms,mean_ci_high_ms,median_ci_low_ms,median_ci_high_ms,"
    "event_overhead_us,host_us,end_to_end_us,graph_us,"
    "sm_mhz,mem_mhz,temperature_c,power_w,throttled,peak_memory_mb,"
    "kernels_per_call,flops,read_bytes,write_bytes,intensity,gbps,tflops,"
    "limit_ms,percent_of_limit,bound,baseline,speedup".split(",")
)

SAMPLE_COLUMNS = tuple(
    "row_id,timing,round,turn,start_ns,device_us,host_us,end_to_end_us,sm_mhz,checked".split(",")
)

TRAP_COLUMNS = ("row_id", "variant", "way", "reads_us", "over_right", "lesson")

FAILED = ("wrong", "error", "crashed", "timeout")
LOST = "job"  # the stage of a row whose job ended before it: it says nothing of its variant

COLD = ("cold", "graph")  # the timings that find the cache empty


def row(run: dict[str, Any], case: Case, entry: Entry, facts: dict[str, Any]) -> dict[str, Any]:
    """A full row. `run` holds run_id, seed, device and device_uuid; `facts` what the stages found.

    Facts used beside columns of the same name: `samples_us` and `host_samples_us` (lists, in time order),
    `ceilings` (of the device), `baseline_ms`, `notes` (sentences), `held` (a count), `precision` (asked for),
    `sm_mhz_samples` and `throttle` (the card while it was timed).
    """
    variant = entry.variant
    result = dict.fromkeys(COLUMNS, "")
    result |= {name: facts[name] for name in COLUMNS if facts.get(name) is not None}
    result |= {
        "schema_version": SCHEMA_VERSION,
        "run_id": run["run_id"],
        "row_id": row_id(run["run_id"], case, entry),
        "case_id": case.case_id,
        "op": case.op,
        "attrs": case.attrs,
        "shape": case.shape,
        "layout": case.layout,
        "dtype": case.dtype,
        "direction": case.direction,
        "device": run["device_name"],
        "device_uuid": run["device_uuid"],
        "variant": variant.name,
        "params": entry.params,
        "group": variant.group,
        "unit": variant.unit,
        "accuracy": variant.accuracy,
        "seed": run["seed"],
        "baseline": case.baseline,
        "flops": case.flops,
        "read_bytes": case.read_bytes,
        "write_bytes": case.write_bytes,
        "intensity": _ratio(case.flops, case.read_bytes + case.write_bytes),
    }
    notes = list(facts.get("notes", ()))
    if facts["status"] == "ok":
        result |= _times(case, entry, facts, notes)
    result["note"] = "; ".join(notes)
    return result


def row_id(run_id: str, case: Case, entry: Entry) -> str:
    return short_hash([run_id, case.case_id, entry.variant.name, entry.params])


def _ratio(a: float, b: float) -> float | str:
    return a / b if b else ""


def _times(case: Case, entry: Entry, facts: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The columns that only an `ok` row has; a time that no device can reach makes it an error instead."""
    summary = summarize(facts["samples_us"])
    host_us = median(facts["host_samples_us"])
    limit = _limit(case, entry, facts)
    if (
        limit
        and facts["timing"] in COLD
        and case.device != "cpu"
        and roofline.beats(limit.ms, summary.mean / 1e3)
    ):
        return {"status": "error", "stage": "measure", "reason": _beyond(summary.mean, limit)}
    moved = case.read_bytes + case.write_bytes
    filled = _summary_columns(summary, facts["samples_us"])
    filled |= {
        "host_us": host_us,
        "gbps": _ratio(moved / 1e9, summary.mean * 1e-6),
        "tflops": _ratio(case.flops / 1e12, summary.mean * 1e-6),
    }
    if facts["timing"] == "graph":
        filled["graph_us"] = summary.median
    if facts.get("baseline_ms") and summary.mean:
        filled["speedup"] = facts["baseline_ms"] / (summary.mean / 1e3)
    if limit and summary.mean:
        percent = 100 * limit.ms / (summary.mean / 1e3)
        bound = roofline.bound_of(limit, summary.mean, host_us, facts["ceilings"])
        filled |= {"limit_ms": limit.ms, "percent_of_limit": percent, "bound": bound}
        floor = roofline.floor_us(facts["ceilings"])
        words = roofline.verdict_words(percent, bound, host_us, summary.mean, floor)
        notes.insert(0, words if facts["timing"] in COLD else f"{words} (the cache was not emptied)")
    notes += _noise(summary, facts)
    return filled


def _limit(case: Case, entry: Entry, facts: dict[str, Any]) -> roofline.Limit | None:
    if not facts.get("ceilings"):
        return None
    variant, costs = entry.variant, (case.read_bytes, case.write_bytes, case.flops)
    unit = roofline.unit_of(variant.unit, case.dtype)
    limit = roofline.limit(*costs, unit, variant.work, facts["ceilings"])
    return limit if limit.ms else None


def _beyond(mean_us: float, limit: roofline.Limit) -> str:
    times = f"{in_words(mean_us)} against a {limit.bound} limit of {in_words(limit.ms * 1e3)}"
    return (
        f"faster than this device can be: {times}, so the call did not do the declared work, "
        "or the op's cost is declared too high"
    )


def _noise(summary: Summary, facts: dict[str, Any]) -> list[str]:
    return noise.notes(
        facts["samples_us"],
        sm_mhz=facts.get("sm_mhz_samples", ()),
        throttle=facts.get("throttle", ()),
        held=facts.get("held"),
        stop_reason=facts.get("stop_reason", ""),
        precision=facts.get("precision"),
        summary=summary,
    )


def _summary_columns(summary: Summary, samples_us: Sequence[float]) -> dict[str, Any]:
    half = half_width(samples_us)  # wider than the plain interval where neighbours are alike
    mean_low, mean_high = (summary.mean - half, summary.mean + half) if math.isfinite(half) else (None, None)
    median_low, median_high = summary.median_ci or (None, None)
    microseconds = {
        "mean_ms": summary.mean,
        "median_ms": summary.median,
        "min_ms": summary.min,
        "p20_ms": summary.p20,
        "p80_ms": summary.p80,
        "std_ms": summary.std,
        "mean_ci_low_ms": mean_low,
        "mean_ci_high_ms": mean_high,
        "median_ci_low_ms": median_low,
        "median_ci_high_ms": median_high,
    }
    scaled = {name: "" if value is None else value / 1e3 for name, value in microseconds.items()}
    return scaled | {"trials": summary.trials}


def best_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with times, fastest first, then the others in their order."""
    timed = [r for r in rows if r["mean_ms"] not in ("", None)]
    rest = [r for r in rows if r["mean_ms"] in ("", None)]
    return sorted(timed, key=lambda r: float(r["mean_ms"])) + rest
