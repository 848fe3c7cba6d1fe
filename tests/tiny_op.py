"""A small op in a folder of its own, for tests of the configuration: one changed thing at a time."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

OP: dict[str, Any] = {
    "name": "scale",
    "why": "one product an element",
    "dims": ["rows", "cols"],
    "dim_defaults": {"cols": "2 * rows"},
    "attrs": {"factor": [2.0, 3.0], "form": ["plain", "fancy"]},
    "shapes": {"cuda": [{"rows": 64}], "cpu": [{"rows": 8}, {"rows": 4, "cols": 4}], "smoke": [{"rows": 3}]},
    "dtypes": ["float32", "bfloat16"],
    "inputs": {"x": {"shape": ["rows", "cols"], "layouts": ["contiguous", "transposed"]}},
    "reference": {"target": "torch.mul"},
    "grad": ["x"],
    "cost": {"forward": {"flops": "rows*cols", "read": "rows*cols*itemsize", "write": "rows*cols*itemsize"}},
    "baseline": "naive",
    "variants": {
        "naive": {"target": "scale.py:scale", "why": "the plain form"},
        "builtin": {"target": "torch.mul"},
        "quick": {"target": "scale.py:scale", "params": {"block": [64, 128]}, "accepts": "cols <= 65536"},
        "other": {"target": "absent_package.ops.scale", "requires": ["absent_package"], "group": "peer"},
    },
}
KERNEL = """\
import nothing_that_exists  # importing this file would fail


def scale(x, factor, form):
    return x
"""


def write(folder: Path, changes: dict[str, Any] | None = None, name: str = "scale") -> Path:
    """`folder` as a --config-dir with the op. `changes`: dotted key -> new value; `...` removes the key."""
    op = copy.deepcopy(OP) | {"name": name}
    for key, value in (changes or {}).items():
        _change(op, key.split("."), value)
    (folder / "op").mkdir(parents=True, exist_ok=True)
    (folder / "op" / f"{name}.yaml").write_text(yaml.safe_dump(op, sort_keys=False))
    (folder / "scale.py").write_text(KERNEL)
    return folder


def _change(node: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        node = node.setdefault(key, {})
    if value is ...:
        del node[keys[-1]]
    else:
        node[keys[-1]] = value
