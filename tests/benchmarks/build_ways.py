"""How long one CUDA variant takes to build from nothing, by the way its torch binding is written.

    python tests/benchmarks/build_ways.py [--repeats 5] [--arch 90] [--csv build_ways.csv]

The same gelu, one thread per element in fp32, fp16 and bf16, is written in four ways, and each is
compiled with the flags of torch's extension builder, by ninja, in an empty folder. Runs wherever
torch, ninja and nvcc are; no GPU is needed. Where torch was built with CUDA the library is linked too.
Times are seconds of wall clock; the ways take turns, so that drift hits all of them alike.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import torch
from torch.utils import cpp_extension

KERNEL = r"""
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// torch's flags switch the implicit conversions of the half types off.
__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline void store(float* p, float v) { *p = v; }
__device__ inline void store(__half* p, float v) { *p = __float2half(v); }
__device__ inline void store(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }

template <typename T>
__global__ void gelu(const T* x, T* y, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) {
    float v = to_float(x[i]);
    store(y + i, 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))));
  }
}

template <typename T>
cudaError_t launch(const void* x, void* y, int64_t n, cudaStream_t stream) {
  if (n > 0) gelu<T><<<(n + 255) / 256, 256, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), n);
  return cudaGetLastError();
}
"""
LAUNCHER = r"""
cudaError_t gelu_launch(const void* x, void* y, int64_t n, int dtype, cudaStream_t stream) {
  if (dtype == 0) return launch<float>(x, y, n, stream);
  if (dtype == 1) return launch<__half>(x, y, n, stream);
  return launch<__nv_bfloat16>(x, y, n, stream);
}
"""
DECLARE = """
#include <cstdint>
#include <cuda_runtime.h>
cudaError_t gelu_launch(const void* x, void* y, int64_t n, int dtype, cudaStream_t stream);
"""
ATEN = r"""
at::Tensor run(const at::Tensor& x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  at::Tensor y = at::empty_like(x);
  int dtype = x.scalar_type() == at::kFloat ? 0 : x.scalar_type() == at::kHalf ? 1 : 2;
  auto stream = c10::cuda::getCurrentCUDAStream(x.get_device());
  cudaError_t error = gelu_launch(x.const_data_ptr(), y.mutable_data_ptr(), x.numel(), dtype, stream);
  TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
  return y;
}
TORCH_LIBRARY_FRAGMENT(build_ways, m) { m.def("gelu(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(build_ways, CUDA, m) { m.impl("gelu", run); }
"""
STABLE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream);

torch::stable::Tensor run(const torch::stable::Tensor& x) {
  STD_TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  torch::stable::Tensor y = torch::stable::empty_like(x);
  using torch::headeronly::ScalarType;
  int dtype = x.scalar_type() == ScalarType::Float ? 0 : x.scalar_type() == ScalarType::Half ? 1 : 2;
  void* stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream) == 0, "no stream");
  auto* s = static_cast<cudaStream_t>(stream);
  cudaError_t error = gelu_launch(x.data_ptr(), y.data_ptr(), x.numel(), dtype, s);
  STD_TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
  return y;
}
STABLE_TORCH_LIBRARY_FRAGMENT(build_ways, m) { m.def("gelu(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(build_ways, CUDA, m) { m.impl("gelu", TORCH_BOX(&run)); }
"""
STREAM = "#include <c10/cuda/CUDAStream.h>\n"
EXTENSION = "#include <torch/extension.h>\n" + STREAM
MINIMAL = (
    "#include <ATen/core/Tensor.h>\n#include <ATen/ops/empty_like.h>\n#include <torch/library.h>\n" + STREAM
)
DEVICE = {"kernel.cu": KERNEL + LAUNCHER}
WAYS = {
    "torch/extension.h in the .cu": {"all.cu": EXTENSION + KERNEL + LAUNCHER + ATEN},
    "minimal ATen binding + torch-free .cu": {"binding.cpp": MINIMAL + DECLARE + ATEN, **DEVICE},
    "stable ABI in the .cu": {"all.cu": KERNEL + LAUNCHER + STABLE},
    "stable ABI binding + torch-free .cu": {"binding.cpp": DECLARE + STABLE, **DEVICE},
}


def cuda_home() -> Path:
    """The toolkit's folder, also with a torch that was built without CUDA."""
    named = os.environ.get("CUDA_HOME") or cpp_extension.CUDA_HOME
    if named:
        return Path(named)
    done = subprocess.run(["nvcc", "--dryrun", "-c", "x.cu"], capture_output=True, text=True)
    tops = [line.split("TOP=")[1] for line in done.stderr.splitlines() if "TOP=" in line]
    return Path(tops[0]).resolve()


def ninja_file(sources: list[str], home: Path, arch: str, stubs: Path) -> str:
    """build.ninja with the flags of torch's builder; `all` links where torch has CUDA."""
    torch_include = Path(torch.__file__).parent / "include"
    python = sysconfig.get_path("include")
    folders = [torch_include, torch_include / "torch/csrc/api/include", home / "include", python, stubs]
    common = "-DTORCH_EXTENSION_NAME=build_ways " + " ".join(f"-isystem {folder}" for folder in folders)
    nvcc = " ".join(cpp_extension.COMMON_NVCC_FLAGS) + f" -gencode=arch=compute_{arch},code=sm_{arch}"
    lines = [
        "ninja_required_version = 1.3",
        f"rule cxx\n  command = c++ {common} -fPIC -std=c++20 -O3 -c $in -o $out",
        f"rule nvcc\n  command = {home}/bin/nvcc {common} {nvcc} --compiler-options -fPIC -std=c++20 -O3"
        " -lineinfo -Xptxas=-v -c $in -o $out",
        f"rule link\n  command = c++ $in -shared -L{torch_include.parent}/lib -lc10 -lc10_cuda -ltorch_cpu"
        f" -ltorch_cuda -ltorch -L{home}/lib64 -lcudart -o $out",
        *(f"build {Path(s).stem}.o: {'nvcc' if s.endswith('.cu') else 'cxx'} {s}" for s in sources),
    ]
    objects = " ".join(f"{Path(s).stem}.o" for s in sources)
    lines.append(f"build library.so: link {objects}")
    lines.append(f"build all: phony {'library.so' if can_link() else objects}")
    return "\n".join(lines) + "\n"


def can_link() -> bool:
    return (Path(torch.__file__).parent / "lib" / "libtorch_cuda.so").exists()


def make_stubs(folder: Path) -> Path:
    """A torch without CUDA lacks one generated header of a few macros, which ATen's ways include."""
    stub = folder / "c10/cuda/impl/cuda_cmake_macros.h"
    if not (Path(torch.__file__).parent / "include/c10/cuda/impl/cuda_cmake_macros.h").exists():
        stub.parent.mkdir(parents=True)
        stub.write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    return folder


def build_once(files: dict[str, str], home: Path, arch: str, stubs: Path) -> float | str:
    """Seconds, or the compiler's first complaint."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text)
        (folder / "build.ninja").write_text(ninja_file(list(files), home, arch, stubs))
        start = time.perf_counter()
        done = subprocess.run([ninja(), "all"], cwd=folder, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    if done.returncode == 0:
        return seconds
    return next((line for line in done.stdout.splitlines() if "error" in line), done.stdout[-200:])


def ninja() -> str:
    return shutil.which("ninja") or str(Path(sys.executable).parent / "ninja")


def measure(repeats: int, arch: str, ways: list[str]) -> dict[str, list[float | str]]:
    home = cuda_home()
    results: dict[str, list[float | str]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as stubs:
        make_stubs(Path(stubs))
        for round_ in range(repeats + 1):  # the first round warms the file cache and is dropped
            for name in ways:
                outcome = build_once(WAYS[name], home, arch, Path(stubs))
                if round_ or isinstance(outcome, str):
                    results[name].append(outcome)
    return results


def describe(times: list[float]) -> str:
    return f"{statistics.median(times):7.2f}  ({min(times):.2f} to {max(times):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--arch", default="90", help="compute capability without the dot")
    parser.add_argument("--csv", default="", help="where the raw figures go")
    parser.add_argument("--ways", default="1,2,3,4", help="which of the four, by number")
    options = parser.parse_args()
    ways = [list(WAYS)[int(number) - 1] for number in options.ways.split(",")]
    results = measure(options.repeats, options.arch, ways)
    linked = "compiled and linked" if can_link() else "compiled, not linked: this torch has no CUDA libraries"
    print(
        f"torch {torch.__version__}, {os.cpu_count()} cores, {linked}; seconds, median of {options.repeats}"
    )
    for name, outcomes in results.items():
        times = [outcome for outcome in outcomes if isinstance(outcome, float)]
        print(f"{name:40} {describe(times) if times else outcomes[0]}")
    if options.csv:
        rows = [
            (name, i, outcome) for name, outcomes in results.items() for i, outcome in enumerate(outcomes)
        ]
        with Path(options.csv).open("w", newline="") as file:
            csv.writer(file).writerows([("way", "repeat", "seconds"), *rows])


if __name__ == "__main__":
    main()
