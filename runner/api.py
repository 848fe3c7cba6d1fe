"""The runner from Python."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.files import ROOT
from runner.model import Refusal


def run(overrides: Sequence[str], config_dirs: Sequence[str] = ()) -> Any:
    """One run, as `python -m runner <overrides>`: its `results.csv` as a pandas DataFrame.

    Raises `runner.model.Refusal` with one sentence on bad input. The folder is in the frame's
    `attrs["folder"]`.
    """
    import pandas

    if isinstance(overrides, str):
        raise Refusal(f"run takes a list of overrides: run([{overrides!r}])")
    if not isinstance(overrides, Sequence) or not all(isinstance(word, str) for word in overrides):
        raise Refusal(f"run takes a list of overrides such as 'op=gelu', each a string; it got {overrides!r}")

    from runner.config.compose import compose
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
    `runner.model.Refusal` on an unknown name and `runner.build.variant.BuildError` where building fails.
    """
    from runner.config.compose import compose

    settings = compose([f"op={op}", f"variant={variant}", f"device={device}"], config_dirs)
    if variant not in settings.op.variants:
        raise Refusal(f"load: variant={variant} is a group; name one of {', '.join(settings.op.variants)}")
    wanted = settings.op.variants[variant]
    if wanted.language == "cuda" and settings.device == "cpu":
        raise Refusal(f"load: {variant} is CUDA C++ and needs a GPU; there is none here")
    if wanted.language == "triton" and settings.device == "cpu":
        _interpret_triton(variant)
    root = str(ROOT)
    if root not in sys.path:
        sys.path.insert(0, root)  # targets in `kernels` are imported from the repository
    from runner.build.variant import build

    return build(wanted, settings.device, Path(tempfile.mkdtemp())).fn


def _interpret_triton(variant: str) -> None:
    """Triton decides when a kernel is defined whether it is interpreted."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return
    if "triton" in sys.modules:
        raise Refusal(
            f"load: set TRITON_INTERPRET=1 before triton is imported to run {variant} without a GPU"
        )
    os.environ["TRITON_INTERPRET"] = "1"
