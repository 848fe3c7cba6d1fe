"""From C++ and CUDA sources to a shared library in the cache: built once, whoever asks.

torch's extension builder does the compiling. What it lacks is added here: it waits for ever on the
lock file of a build that was killed, it shows a half-built folder to others, and it drops the
compiler's output when the build succeeds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest import mock

import filelock
import torch
from torch.utils import cpp_extension

from runner.build.sources import CSRC, hash_files, inputs_of

CFLAGS = ("-O3", "-fopenmp")
LDFLAGS = ("-fopenmp",)
# No fast-math: what is wrong must be found by the check, not made by a flag. --keep leaves the PTX in ninja's
# folder; a flag that named a folder could hold the letters "arch", for which torch drops its own choice.
NVCC_FLAGS = ("-O3", "-lineinfo", "-Xptxas=-v", "--keep")
LOG = "build.log"
_KEPT = (".so", ".ptx", ".log", ".ninja")
_ERRORS = ("error:", "error :", "undefined reference", "cannot find", "ptxas fatal", "multiple definition")
_SHOWN_LINES = 20


class BuildError(Exception):
    """A variant that cannot be built: one sentence, then the compiler's own lines where it spoke."""


class StaleProcess(Exception):
    """This process holds an older version of what is asked for: a fresh process must take over."""


@dataclass(frozen=True)
class Library:
    """A built library. `ms` is compiling, or looking it up (and waiting for another process's build)."""

    path: Path
    ms: float
    cached: bool
    loaded: bool  # torch's builder has loaded what it has just built
    log: str


def cache_folder() -> Path:
    """`$RUNNER_CACHE`, else `kernel-runner` in the user's cache folder; made when missing."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(os.environ.get("RUNNER_CACHE") or f"{home}/kernel-runner").expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # as root, permission bits say nothing
            pass
    except OSError as error:
        reason = error.strerror or error
        raise BuildError(
            f"The build cache {folder} cannot be written ({reason}); set RUNNER_CACHE to a folder that can."
        ) from error
    return folder


def key_of(sources: tuple[str, ...], device: str) -> str:
    """16 hex digits over all that decides the library: contents, flags, compilers, torch, architecture."""
    files = list(dict.fromkeys(path for source in sources for path in inputs_of(source)))
    parts = [hash_files(files), CFLAGS, LDFLAGS, torch.__version__, sys.implementation.cache_tag, _compiler()]
    if _is_cuda(sources):
        parts += [NVCC_FLAGS, _nvcc(), torch.version.cuda, architectures(device)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def build_library(sources: tuple[str, ...], device: str, key: str, keep: Path) -> Library:
    """The library for `key`, from the cache or compiled now; its log and PTX are copied to `keep`.

    Raises BuildError when it does not compile, StaleProcess when a source changed meanwhile.
    """
    start = time.perf_counter()
    cache = cache_folder()
    final = cache / key
    # The operating system drops this lock with its process, so a killed build holds up nobody.
    with filelock.FileLock(cache / f"{key}.lock"):
        cached = final.is_dir()
        if not cached:
            _build_into(final, sources, device, keep)
    _copy(final, keep)
    ms = (time.perf_counter() - start) * 1e3
    log = (final / LOG).read_text(errors="replace")
    return Library(_library_in(final), ms, cached, loaded=not cached, log=log)


def architectures(device: str) -> str:
    """What nvcc compiles for: the user's TORCH_CUDA_ARCH_LIST, else the architecture of `device`.

    On Hopper 9.0a, without whose `a` nvcc has none of its matrix instructions.
    """
    named = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if named or device == "cpu":
        return named or ""
    name = "{}.{}".format(*torch.cuda.get_device_capability(device))
    return name + "a" if name == "9.0" else name


def relevant(log: str) -> str:
    """The compiler's first complaint and what follows it, without ninja's command lines."""
    lines: list[str] = []
    before = ""
    for line in log.splitlines():
        # ninja prints a command behind [1/2], and that of a failed step once more below FAILED:
        if not line.startswith(("[", "FAILED: ", "ninja: build")) and not before.startswith("FAILED: "):
            lines.append(line)
        before = line
    first = next((i for i, line in enumerate(lines) if any(word in line.lower() for word in _ERRORS)), None)
    return "\n".join(lines[-_SHOWN_LINES:] if first is None else lines[first : first + _SHOWN_LINES])


def _build_into(final: Path, sources: tuple[str, ...], device: str, keep: Path) -> None:
    """Compile in a private folder and move it into place whole. The key's lock is held."""
    for dead in final.parent.glob(f"{final.name}.build-*"):
        shutil.rmtree(dead, ignore_errors=True)  # compilers that outlive a killed build may still write
    folder = Path(tempfile.mkdtemp(prefix=f"{final.name}.build-", dir=final.parent))
    try:
        _compile(sources, device, folder, f"kernels_{final.name}")
        if key_of(sources, device) != final.name:
            raise StaleProcess(f"{_names(sources)} changed while being compiled.")
        _tidy(folder)
        folder.rename(final)
    except BaseException:  # an interrupt too must leave the log, and no rubbish
        _copy(folder, keep)
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _compile(sources: tuple[str, ...], device: str, folder: Path, name: str) -> None:
    log = folder / LOG
    environment = {"PATH": _path_with_ninja()}
    if arch := architectures(device):
        environment["TORCH_CUDA_ARCH_LIST"] = arch
    try:
        with mock.patch.dict(os.environ, environment), _output_to(log):
            cpp_extension.load(
                name=name,
                sources=list(sources),
                extra_cflags=list(CFLAGS),
                extra_ldflags=list(LDFLAGS),
                extra_cuda_cflags=list(NVCC_FLAGS),
                extra_include_paths=[str(CSRC)],
                build_directory=str(folder),
                is_python_module=False,
                verbose=True,  # only so does torch hand on what the compiler says
            )
    except (RuntimeError, OSError, ValueError) as error:
        if any(folder.glob("*.so")):
            raise BuildError(
                f"{_names(sources)} compiles, but does not load: {error.__cause__ or error}"
            ) from error
        said = relevant(log.read_text(errors="replace")) or str(error)
        raise BuildError(f"{_names(sources)} does not compile:\n{said}") from error


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send descriptor 1, which torch hands to ninja, and Python's own prints to `log`.

    Descriptor 2 stays: a library that aborts while it loads must be heard.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                yield
        finally:
            os.dup2(saved, 1)
            os.close(saved)


def _tidy(folder: Path) -> None:
    """Drop objects and nvcc's intermediate files: the library, its PTX and the log are what is kept."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in _KEPT:
            path.unlink()


def _copy(folder: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for path in [folder / LOG, *folder.glob("*.ptx")]:
        if path.is_file():
            shutil.copyfile(path, keep / path.name)


def _library_in(folder: Path) -> Path:
    return next(folder.glob("*.so"))  # torch appends a version to the name after a failed try


def _names(sources: tuple[str, ...]) -> str:
    return " and ".join(Path(source).name for source in sources)


def _is_cuda(sources: tuple[str, ...]) -> bool:
    return any(source.endswith(".cu") for source in sources)


def _path_with_ninja() -> str:
    path = os.environ.get("PATH", os.defpath)
    if shutil.which("ninja"):
        return path
    beside = Path(sys.executable).parent  # the environment may be used without being activated
    if not (beside / "ninja").exists():
        raise BuildError("ninja, which compiles sources, is not installed: pip install ninja.")
    return f"{beside}{os.pathsep}{path}"


def _compiler() -> str:
    command = cpp_extension.get_cxx_compiler()
    if not shutil.which(shlex.split(command)[0]):
        raise BuildError(f"There is no C++ compiler {command}: install g++, or set CXX to yours.")
    return _version(command)


def _nvcc() -> str:
    home = cpp_extension.CUDA_HOME
    if not home or not (Path(home) / "bin" / "nvcc").is_file():
        raise BuildError(
            "There is no nvcc: install the CUDA toolkit, or set CUDA_HOME to the folder that holds it."
        )
    return _version(os.environ.get("PYTORCH_NVCC") or shlex.quote(f"{home}/bin/nvcc"))


@lru_cache
def _version(command: str) -> str:
    return subprocess.run(
        [*shlex.split(command), "--version"], capture_output=True, text=True, check=True
    ).stdout
