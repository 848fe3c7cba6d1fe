"""What this worker runs on: versions and device, as plain values."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch


def worker_facts(device: str) -> dict[str, Any]:
    """For `environment.json` and the device columns of every row."""
    facts = {
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "torch_git": torch.version.git_version,
        "triton": _triton_version(),
        "cpu": _cpu_name(),
        "cpu_cores": os.cpu_count(),
        "cpu_threads": torch.get_num_threads(),
        "memory_bytes": memory_bytes("cpu"),
    }
    return facts | (_cpu_device() if device == "cpu" else _cuda_device(device))


def memory_bytes(device: str) -> int:
    """All memory of the device (on the CPU: of the machine)."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return torch.cuda.get_device_properties(device).total_memory


def _cpu_device() -> dict[str, Any]:
    return {"device": "cpu", "device_name": _cpu_name(), "device_uuid": ""}


def _cuda_device(device: str) -> dict[str, Any]:
    torch.zeros(1, device=device)  # the context exists before anything is timed
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": device,
        "device_name": properties.name,
        "device_uuid": str(properties.uuid),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "device_memory_bytes": properties.total_memory,
        "driver": _driver_version(),
        "cudnn": torch.backends.cudnn.version(),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }


def _driver_version() -> str:
    """The kernel module's version on Linux; empty elsewhere."""
    path = Path("/sys/module/nvidia/version")
    return path.read_text().strip() if path.exists() else ""


def _triton_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("triton")
    except PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
