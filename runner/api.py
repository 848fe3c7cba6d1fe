"""The runner from Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def run(overrides: Sequence[str], config_dirs: Sequence[str] = ()) -> Any:
    """One run, as `python -m runner <overrides>`: its `results.csv` as a pandas DataFrame.

    Raises `runner.model.Refusal` with one sentence on bad input. The folder is in the frame's
    `attrs["folder"]`.
    """
    import pandas

    from runner.config import compose
    from runner.driver import execute

    outcome = execute(compose(list(overrides), config_dirs), show=False)
    if outcome.folder is None:
        return pandas.DataFrame()
    frame = pandas.read_csv(outcome.folder / "results.csv")
    frame.attrs["folder"] = str(outcome.folder)
    return frame


def load(op: str, variant: str, device: str = "auto", config_dirs: Sequence[str] = ()) -> Callable[..., Any]:
    """A variant as a callable in this process, built if it has to be.

    It takes the op's inputs in order, then attributes and parameters by name. Raises
    `runner.model.Refusal` on an unknown name and `runner.build.BuildError` where building fails.
    """
    from runner.build import build
    from runner.config import compose

    settings = compose([f"op={op}", f"variant={variant}", f"device={device}"], config_dirs)
    return build(settings.op.variants[variant], settings.device, Path(tempfile.mkdtemp())).fn
