"""The header of `results.csv` and the one pure function that fills a row. Readers never compute again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.model import Case, Entry
from runner.plan import canonical, short_hash
from runner.statistics import Summary, summarize

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

FAILED = ("wrong", "error", "crashed", "timeout")

_MEDIAN_APART = 0.02  # of the mean, beyond which a note says so
_RECORD_SHARE, _RECORD_US = 0.03, 0.5  # faster than the limit by more than both is said


def row(run: dict[str, Any], case: Case, entry: Entry, facts: dict[str, Any]) -> dict[str, Any]:
    """A full row. `run` holds run_id, seed, device and device_uuid; `facts` what the stages found.

    Facts used beside columns of the same name: `samples_us` and `host_samples_us` (lists),
    `copy_gbps`, `baseline_ms`, `notes` (a list of sentences), `held` (a count).
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
        result |= _times(case, facts, notes)
    result["note"] = "; ".join(notes)
    return result


def row_id(run_id: str, case: Case, entry: Entry) -> str:
    return short_hash([run_id, case.case_id, entry.variant.name, entry.params])


def cell(value: Any) -> str:
    """One CSV cell: JSON for lists and dicts, lower-case booleans, 9 digits for floats."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return canonical(value)
    if isinstance(value, float):
        return f"{value:.9g}"
    return "" if value is None else str(value)


def _ratio(a: float, b: float) -> float | str:
    return a / b if b else ""


def _times(case: Case, facts: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The columns that only an `ok` row has."""
    summary = summarize(facts["samples_us"])
    mean_s = summary.mean * 1e-6
    moved = case.read_bytes + case.write_bytes
    filled = _summary_columns(summary)
    filled["host_us"] = summarize(facts["host_samples_us"]).median
    filled["gbps"] = _ratio(moved / 1e9, mean_s)
    filled["tflops"] = _ratio(case.flops / 1e12, mean_s)
    if facts.get("baseline_ms") and mean_s:
        filled["speedup"] = facts["baseline_ms"] / (summary.mean / 1e3)
    if facts.get("copy_gbps") and moved:
        limit_ms = moved / facts["copy_gbps"] / 1e6
        filled |= {"limit_ms": limit_ms, "percent_of_limit": _ratio(100 * limit_ms, summary.mean / 1e3)}
        notes += _beyond_limit(summary.mean, limit_ms * 1e3)
    notes += _noise(summary, facts.get("held", summary.trials))
    return filled


def _summary_columns(summary: Summary) -> dict[str, Any]:
    mean_low, mean_high = summary.mean_ci or (None, None)
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


def _beyond_limit(mean_us: float, limit_us: float) -> list[str]:
    if limit_us > mean_us * (1 + _RECORD_SHARE) and limit_us - mean_us > _RECORD_US:
        return [
            "faster than a copy of as many bytes: the mix of reads and writes or a cache makes that possible"
        ]
    return []


def _noise(summary: Summary, held: int) -> list[str]:
    notes = []
    if summary.mean and abs(summary.median - summary.mean) > _MEDIAN_APART * summary.mean:
        notes.append(f"median {100 * (summary.median / summary.mean - 1):+.0f} % from the mean")
    if held < summary.trials:
        notes.append(
            f"launch latency is in {summary.trials - held} of {summary.trials} times: the host was slower"
        )
    return notes


def best_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with times, fastest first, then the others in their order."""
    timed = [r for r in rows if r["mean_ms"] not in ("", None)]
    rest = [r for r in rows if r["mean_ms"] in ("", None)]
    return sorted(timed, key=lambda r: float(r["mean_ms"])) + rest
