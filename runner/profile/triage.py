"""Which constraint holds each operation of a step, which lever moves it, and what the step gains. Pure.

The judgement is `rules.RULES`. The most that a step can
gain from an operation is Amdahl's (AFIPS 1967): its measured share, less the least time that its bytes and
products need at this device's measured ceilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.profile.rules import BUSY_PERCENT, LIBRARY, RULES, TILE, WORTH_PERCENT, Finding, Rule, Step

COLUMNS = tuple(
    "operation,where,device_us,share_percent,cumulated_percent,forward_us,backward_us,optimizer_us,calls,kernels,"
    "intensity,limit_us,percent_of_roofline,constraint,lever,reason,predicted_saving_us,predicted_gain_percent,"
    "most_gain_percent".split(",")
)


ON_THE_HOST = ("launch", "Python on the host")
FEWER_LAUNCHES = "fewer launches first, by torch.compile or a CUDA graph"


def judged(finding: Finding) -> dict[str, Any]:
    """The row of one operation; `cumulated_percent` is filled by `table`."""
    rule = next(rule for rule in RULES if rule.when(finding))
    f, step, operation = finding, finding.step, finding.operation
    saving = _felt(rule.saves_us(f), f, rule)
    most = max(_felt(f.most_us, f, rule), saving)  # a cache may let a measured variant pass the roofline
    words = _words(f)
    moved = operation.moved_bytes
    return {
        "operation": operation.name,
        "where": operation.where,
        "device_us": operation.us,
        "share_percent": f.share_percent,
        "forward_us": operation.phase_us("forward"),
        "backward_us": operation.phase_us("backward"),
        "optimizer_us": operation.phase_us("optimizer"),
        "calls": sum(not one.backward for one in operation.instances) or len(operation.instances),
        "kernels": operation.kernels if step.on_gpu else "",
        "intensity": operation.flops / moved if moved else "",
        "limit_us": f.limit_us if f.percent is not None else "",
        "percent_of_roofline": f.percent if f.percent is not None else "",
        "constraint": rule.constraint or f.roof,
        "lever": rule.lever.format(**words),
        "reason": rule.reason.format(**words),
        "predicted_saving_us": saving,
        "predicted_gain_percent": gain_percent(step.step_us, saving),
        "most_gain_percent": gain_percent(step.step_us, most),
    }


def _felt(saving_us: float, f: Finding, rule: Rule) -> float:
    """What of a saving the step feels: of the device's never below the time that its host needs, of the
    host's never below that which the device works."""
    step = f.step
    if not step.on_gpu or rule.constraint in ("sync", "data"):
        return min(saving_us, step.step_us)
    other_us = step.busy_us if rule.constraint in ON_THE_HOST else step.host_us
    return min(saving_us, max(step.step_us - other_us, 0.0))


def _words(f: Finding) -> dict[str, Any]:
    one = f.measured
    backward = f"{one.backward:.2f}x backward" if one and one.backward else "backward not measured"
    return {
        "worth": WORTH_PERCENT,
        "tile": TILE,
        "measured": one,
        "backward": backward,
        "library": LIBRARY.get(f.pattern, ""),
        "pattern": f.pattern,
        "kernels": f.parts_per_call,
        "units": "kernels" if f.step.on_gpu else "operators",
        "percent": "no known share" if f.percent is None else f"{f.percent:.0f} %",
    }


def gain_percent(step_us: float, saved_us: float) -> float:
    """Of the step's time."""
    return 100 * saved_us / step_us if step_us else 0.0


def _host_bound(step: Step) -> str:
    """The launches of all operations are one queue: a lever gains there what it gains of the whole step."""
    most = gain_percent(step.step_us, max(step.step_us - step.busy_us, 0.0))
    return (
        f"the device works {step.busy_percent:.0f} % of the step and waits for the host: {FEWER_LAUNCHES} "
        f"of the whole step, or a larger batch; it gains at most {most:.0f} % of the step"
    )


def table(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """All operations, the largest first; shares are of the sum of all, so that they add up to 100."""
    rows, so_far = [], 0.0
    for finding in sorted(findings, key=lambda each: -each.operation.us):
        row = judged(finding)
        so_far += row["share_percent"]
        rows.append(row | {"cumulated_percent": so_far})
    return rows


def conclusion(rows: Sequence[dict[str, Any]], step: Step) -> str:
    """The one sentence: what to do first, or that nothing is worth doing."""
    worth = [
        row for row in rows if row["predicted_gain_percent"] >= WORTH_PERCENT and row["lever"] != "nothing"
    ]
    if worth:
        first = max(worth, key=lambda row: row["predicted_gain_percent"])
        gain = f"{first['predicted_gain_percent']:.0f} % of the step"
        if first["constraint"] in ON_THE_HOST:
            return _host_bound(step)
        return f"first: {first['operation']} ({first['where']}), {first['lever']}: {gain}"
    if step.on_gpu and step.host_us >= BUSY_PERCENT / 100 * step.step_us:
        busy = f"the host needs {100 * step.host_us / step.step_us:.0f} % of the step"
        return f"{busy}, so nothing on the device alone shortens it: {FEWER_LAUNCHES}"
    if step.on_gpu and step.bound == "host":
        return _host_bound(step)
    return f"nothing here is worth doing: no lever gains {WORTH_PERCENT:g} % of the step"
