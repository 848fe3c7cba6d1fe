"""Device code compiles wherever nvcc is, for every architecture it is meant for, without spilling."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.support import ROOT

SOURCES = sorted((ROOT / "csrc").rglob("*.cu"))
HALF = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
]


def test_there_are_sources():
    assert len(SOURCES) >= 4


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_device_code_compiles_and_does_not_spill(source, tmp_path):
    """With the definitions that torch's builder sets; -c: torch is not linked, and not needed.

    The older architecture as far as its PTX, which is what its own branches are in, and together with the
    host's code; neither is optimized, for that takes longer than all else.
    """

    def compiled(*how: str) -> str:
        command = ["nvcc", "-std=c++17", *HALF, *how, str(source), "-o", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stderr

    told = compiled("-arch=sm_90", "-cubin", "-O3", "-Xptxas=-v")
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", told)]
    assert spills, "ptxas said nothing of spills"
    assert max(spills) == 0
    compiled("-gencode=arch=compute_80,code=compute_80", "-Xcicc", "-O0", "-c")


@pytest.mark.parametrize("path", sorted((ROOT / "csrc").rglob("*.cu*")), ids=lambda path: path.name)
def test_device_code_knows_no_torch(path):
    assert not re.search(r"#include\s*[<\"](torch|ATen|c10)/", path.read_text())
