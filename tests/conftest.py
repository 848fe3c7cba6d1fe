"""Before anything imports triton: on a machine without a GPU its kernels run in the interpreter."""

import os

import pytest


def _gpu() -> bool:
    from runner.config.devices import obstacle

    return not obstacle()


if not _gpu():
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests' processes share the processors as it is


def pytest_collection_modifyitems(items):
    if _gpu():
        return
    skip = pytest.mark.skip(reason="needs a GPU")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
