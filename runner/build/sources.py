"""What makes a variant: the files behind it, and one digest over their contents. No torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
from functools import lru_cache
from pathlib import Path

from runner.files import ROOT
from runner.model import Variant

CSRC = ROOT / "csrc"
KERNELS = ROOT / "kernels"

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_SIBLING = re.compile(rb"^\s*(?:from|import)\s+(?:kernels\.|kernels\s+import\s+|\.\.)(\w+)", re.MULTILINE)


def digest(variant: Variant) -> str:
    """16 hex digits over the content of every file that makes `variant`, or its package's version.

    Only names and contents count: touching a file, or moving the checkout, changes nothing.
    """
    sha = hashlib.sha256()
    for path in [*python_files(variant), *native_files(variant)]:
        _add(sha, path)
    sha.update(_package(variant).encode())
    return sha.hexdigest()[:16]


def digest_now(variant: Variant) -> str:
    """The digest of what lies there now, for a row whose variant was not imported; empty where it is gone."""
    try:
        return digest(variant)
    except OSError:
        return ""


def inputs_of(source: str | Path) -> list[Path]:
    """`source` and every header that it reaches, each once, in the order of first sight.

    An include is looked up next to the including file, then in csrc/; what lies elsewhere (the
    toolkit's or torch's headers) is covered by their versions, and what is missing is the
    compiler's to report.
    """
    found: list[Path] = []
    todo = [Path(source).resolve()]
    while todo:
        path = todo.pop(0)
        if path not in found and path.is_file():
            found.append(path)
            todo += _included(path)
    return found


def native_files(variant: Variant) -> list[Path]:
    """The C++ and CUDA sources of `variant` with their headers, each once."""
    return list(dict.fromkeys(path for source in variant.sources for path in inputs_of(source)))


def python_files(variant: Variant) -> list[Path]:
    """The Python files whose change makes `variant` another one.

    A user's file is that file alone. A file under kernels/ comes with its folder, and with the
    folders under kernels/ that those files import.
    """
    target = variant.target
    if target.file:
        return [Path(target.file).resolve()]
    if not target.path or _package(variant):
        return []
    path = Path(target.path).resolve()
    return _kernel_files(path) if path.is_relative_to(KERNELS) else [path]


def hash_files(paths: list[Path]) -> str:
    """sha256 over names and contents of `paths`, in their order."""
    sha = hashlib.sha256()
    for path in paths:
        _add(sha, path)
    return sha.hexdigest()


def _add(sha: hashlib._Hash, path: Path) -> None:
    content = path.read_bytes()
    sha.update(f"{path.name} {len(content)}\n".encode())
    sha.update(content)


def _included(path: Path) -> list[Path]:
    found = []
    for name in _INCLUDE.findall(path.read_bytes()):
        text = name.decode(errors="replace")
        places = (path.parent / text, CSRC / text)
        found += [place.resolve() for place in places if place.is_file()][:1]
    return found


def _kernel_files(path: Path) -> list[Path]:
    """The .py files of the folder of `path`, and of the kernels/ folders they import, sorted."""
    files: set[Path] = set()
    todo = {path.parent}
    seen: set[Path] = set()
    while todo:
        folder = todo.pop()
        seen.add(folder)
        own = set(folder.glob("*.py"))
        files |= own
        named = {KERNELS / name.decode() for file in own for name in _SIBLING.findall(file.read_bytes())}
        files |= {module for name in named if (module := name.with_suffix(".py")).is_file()}
        todo |= {name for name in named if name.is_dir()} - seen
    return sorted(files)


def _package(variant: Variant) -> str:
    """`name version` of the installed package behind the target; empty for a user's own code."""
    top = variant.target.module.partition(".")[0]
    if not top or (variant.sources and variant.target.module.startswith("torch.ops.")):
        return ""
    if top in sys.stdlib_module_names:
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    path = variant.target.path
    if path and "site-packages" not in Path(path).parts and "dist-packages" not in Path(path).parts:
        return ""
    return _version(top)


@lru_cache
def _version(top: str) -> str:
    try:
        return f"{top} {importlib.metadata.version(top)}"
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(top, [])  # slow: reads every package
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))
