"""The asked calls once more, in NVTX ranges, for a profiler: `python -m runner.profile.replay <request>`.

Everything is built, drawn and warmed up first; only the calls lie between cudaProfilerStart and -Stop.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.files import ROOT
from runner.model import PlannedCase, Workload


@dataclass(frozen=True)
class Request:
    """Variants of a case by their indices, or a workload. `seed` is not the run's: no variant sees that."""

    run_id: str
    device: str
    seed: int
    keep: str
    title: str
    planned: PlannedCase | None = None
    indices: tuple[int, ...] = ()
    workload: Workload | None = None
    calls: int = 1


def variant_range(name: str) -> str:
    """The NVTX range of a variant; Nsight Compute picks kernels by it."""
    return f"variant {name}"


def main(path: str) -> None:
    sys.path.insert(0, str(ROOT))  # `kernels` is also a published package
    request: Request = pickle.loads(Path(path).read_bytes())
    import torch

    from runner.profile.nvtx import Ranges, phases

    on_gpu = request.device != "cpu"
    if on_gpu:
        torch.cuda.set_device(request.device)
    calls = list(_calls(request))
    for _, prepare, call in calls:
        for _ in range(2):
            prepare()
            call()
    ranges = Ranges(on_gpu)
    with _captured(on_gpu), ranges.range(f"run {request.run_id}"), ranges.range(f"case {request.title}"):
        for name, prepare, call in calls:
            for _ in range(request.calls):
                prepare()
                _synchronize(on_gpu)
                with ranges.range(variant_range(name)), phases(ranges) if request.workload else _nothing():
                    call()
                _synchronize(on_gpu)
    print(f"replayed {', '.join(name for name, _, _ in calls)}")


def _synchronize(on_gpu: bool) -> None:
    import torch

    if on_gpu:
        torch.cuda.synchronize()


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextlib.contextmanager
def _captured(on_gpu: bool) -> Iterator[None]:
    import torch

    _synchronize(on_gpu)
    if on_gpu:
        torch.cuda.profiler.start()
    try:
        yield
    finally:
        _synchronize(on_gpu)
        if on_gpu:
            torch.cuda.profiler.stop()


def _calls(request: Request) -> Iterator[tuple[str, Callable, Callable]]:
    """(name, prepare, call) of what is asked for."""
    if request.workload is not None:
        from runner.profile.workload import make

        step = make(request.workload, request.device, request.seed, Path(request.keep))
        yield request.workload.name, lambda: None, step
        return
    from runner.build.inputs import make_inputs, upstream_gradient
    from runner.build.variant import build
    from runner.check.prove import OpenCase, make_trial

    case = request.planned.case
    one = OpenCase(case, lambda parts: None)  # nothing is judged here
    one.inputs = make_inputs(case, request.seed)
    for index in request.indices:
        entry = request.planned.entries[index]
        fn = build(entry.variant, request.device, Path(request.keep)).fn
        if one.grad_positions and one.upstream is None:
            shape = fn(*one.inputs, **case.attrs, **entry.variant.kwargs, **entry.params).shape
            one.upstream = upstream_gradient(case, shape, request.seed)
        trial = make_trial(one, entry, fn)
        yield entry.variant.name, trial.prepare, trial.call


if __name__ == "__main__":
    main(sys.argv[1])
