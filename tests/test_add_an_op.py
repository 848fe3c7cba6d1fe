"""A user adds an op from a folder of their own: one YAML, a Python, a Triton and a C++ variant."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

from tests.support import ROOT

YAML = """
name: silu
why: an activation that this repository does not have
dims: [n]
shapes:
  cuda: [{n: 1048576}]
  cpu: [{n: 4096}]
  smoke: [{n: 1000}, {n: 1}, {n: 0}]
dtypes: [float32, bfloat16]
inputs:
  x: {shape: [n], layouts: [contiguous, offset1]}
reference: {target: torch.nn.functional.silu}
grad: [x]
cost:
  forward: {flops: 4*n, read: n*itemsize, write: n*itemsize}
  backward: {flops: 8*n, read: 2*n*itemsize, write: n*itemsize}
baseline: naive
variants:
  naive: {target: "kernels/silu.py:naive"}
  builtin: {target: torch.nn.functional.silu}
  triton_block: {target: "kernels/silu_triton.py:silu", accepts: "direction == 'forward'"}
  cpp:
    target: torch.ops.mine.silu
    sources: [kernels/silu.cpp]
    accepts: "direction == 'forward' and dtype == 'float32'"
  other: {target: "kernels/silu.py:other"}
"""

PYTHON = """
import torch

def naive(x):
    return x * torch.sigmoid(x)

def other(x):
    return x * torch.sigmoid(1.01 * x)
"""

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def silu_kernel(x, out, n, BLOCK: tl.constexpr):
    i_block = tl.program_id(0).to(tl.int64)
    o_x = i_block * BLOCK + tl.arange(0, BLOCK)
    m_x = o_x < n
    b_x = tl.load(x + o_x, mask=m_x, other=0.0).to(tl.float32)
    tl.store(out + o_x, (b_x / (1 + tl.exp(-b_x))).to(out.dtype.element_ty), mask=m_x)

def silu(x):
    out = torch.empty_like(x)
    if x.numel():
        silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""

CPP = """
#include <cmath>
#include "common/stable.h"
#include "factor.h"

torch::stable::Tensor silu(const torch::stable::Tensor& x) {
  auto out = torch::stable::empty_like(x);
  const float* in = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = kFactor * in[i] / (1.0f + std::exp(-in[i]));
  return out;
}

STABLE_TORCH_LIBRARY_FRAGMENT(mine, m) { m.def("silu(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(mine, CPU, m) { m.impl("silu", TORCH_BOX(&silu)); }
"""


def write_op(folder):
    (folder / "conf" / "op").mkdir(parents=True)
    (folder / "kernels").mkdir()
    (folder / "conf" / "op" / "silu.yaml").write_text(YAML)
    (folder / "kernels" / "silu.py").write_text(PYTHON)
    (folder / "kernels" / "silu_triton.py").write_text(TRITON)
    (folder / "kernels" / "silu.cpp").write_text(CPP)
    (folder / "kernels" / "factor.h").write_text("constexpr float kFactor = 1.0f;\n")


def run(folder, *words):
    command = [sys.executable, "-m", "runner", "--config-dir", str(folder / "conf"), "op=silu", "device=cpu"]
    command += ["trials=3", f"output={folder / 'out'}", *words]
    environment = {**os.environ, "RUNNER_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    newest = max((folder / "out").rglob("results.csv"), key=lambda path: path.stat().st_mtime)
    with open(newest, newline="") as table:
        return done, {row["variant"]: row for row in csv.DictReader(table)}


def test_an_op_from_outside_the_repository(tmp_path):
    write_op(tmp_path)
    done, rows = run(tmp_path)
    status = {name: row["status"] for name, row in rows.items()}
    expected = {"naive": "ok", "builtin": "ok", "triton_block": "checked", "cpp": "ok", "other": "wrong"}
    assert status == expected, done.stdout + done.stderr
    assert done.returncode == 1
    assert rows["cpp"]["build_cached"] == "false"

    done, rows = run(tmp_path, "variant=cpp")
    assert (done.returncode, rows["cpp"]["build_cached"]) == (0, "true")

    (tmp_path / "kernels" / "factor.h").write_text("constexpr float kFactor = 1.001f;\n")
    done, rows = run(tmp_path, "variant=cpp")
    assert (done.returncode, rows["cpp"]["status"], rows["cpp"]["build_cached"]) == (1, "wrong", "false")

    done, rows = run(tmp_path, "variant=[naive,builtin]", "direction=backward", "layout=offset1")
    assert {row["status"] for row in rows.values()} == {"ok"}, done.stdout + done.stderr
