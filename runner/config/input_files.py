"""Inputs that are read from files: where they are, what shape they tell, and whether it fits. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.config.names import Names
from runner.model import Op, Refusal
from runner.op import arrays


def paths(raw: dict[str, Any], op: Op, faults: list[str]) -> dict[str, str]:
    """Absolute paths of the inputs that are read from files."""
    asked, names = raw["inputs"], [each.name for each in op.inputs]
    Names(raw, op, faults).each("inputs", asked, names, "input")
    files = {}
    for name, text in ((name, text) for name, text in asked.items() if name in names):
        path = Path(str(text)).expanduser().absolute()
        if path.suffix not in (".pt", ".npy"):
            faults.append(f"inputs.{name}={text}: a .pt or a .npy file is needed")
        elif not path.is_file():
            faults.append(f"inputs.{name}={text}: there is no such file")
        files[name] = str(path)
    return files


def headers(files: dict[str, str], faults: list[str]) -> dict[str, arrays.Header]:
    """Of the .npy files that can be read."""
    found = {}
    for name, text in files.items():
        if text.endswith(".npy") and Path(text).is_file():
            try:
                found[name] = arrays.header(Path(text))
            except Refusal as refusal:
                faults.append(f"inputs.{name}={text}: {refusal}")
    return found


def dims(raw: dict[str, Any], op: Op, headers: dict[str, arrays.Header], faults: list[str]) -> dict[str, Any]:
    """What was typed as `shape.<dim>=`; where no shape was, the dims that the files tell."""
    if raw["shape"] or raw["shapes"] is not None:
        return raw["shape"]
    found, wrong = arrays.dims(op, headers)
    faults += wrong
    return found


def fit(op: Op, headers: dict[str, arrays.Header], chosen: dict[str, Any], faults: list[str]) -> None:
    """Files against the one shape of the run; with several the cases say which does not fit."""
    if faults or not headers:
        return
    faults += arrays.dtype_faults(op, headers, chosen["dtypes"])
    if len(chosen["shapes"]) == 1:
        attrs = {name: values[0] for name, values in chosen["attrs"].items()}
        faults += arrays.faults(op, headers, chosen["shapes"][0], attrs)
