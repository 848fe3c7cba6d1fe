"""Which part imports which, in the order of `runner`'s docstring; who may know torch, Hydra, OmegaConf."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import runner
from tests.support import ROOT

LIST = re.search(r"\n\n((?: {4}\S.*\n)+)", runner.__doc__)[1]
ORDER = [
    *(name for line in LIST.splitlines() for name in re.split(r" {2,}", line.strip())[0].split()),
    "__init__",
    "__main__",
]
WITH_TORCH = ("build", "measure", "check", "profile", "worker")
OMEGACONF = ("config/compose", "config/documents")
HYDRA = ("config/compose", "config/overrides", "command/jobs")
PARENTS = (
    "cli", "driver", "collect", "command.jobs", "command.resume", "compare.__main__", "report.__main__",
)  # fmt: skip


def modules(*folders: str) -> list:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [pytest.param(path, id=path.relative_to(ROOT).with_suffix("").as_posix()) for path in paths]


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, at its top or when it is called."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(path: Path) -> str:
    """The package or module of `runner` that a file belongs to."""
    return path.relative_to(ROOT / "runner").with_suffix("").parts[0]


def test_the_order_names_every_part():
    assert len(set(ORDER)) == len(ORDER)
    assert set(ORDER) == {part(path) for path in (ROOT / "runner").rglob("*.py")}


@pytest.mark.parametrize("path", modules("runner"))
def test_a_part_imports_only_what_stands_above_it(path):
    named = [name.split(".")[1] for name in imports(path) if name.startswith("runner.")]
    later = ORDER[ORDER.index(part(path)) + 1 :]
    assert not {name for name in named if name in later}


@pytest.mark.parametrize("path", modules("runner"))
def test_who_imports_what_is_heavy(path):
    packages = {name.partition(".")[0] for name in imports(path)}
    module = path.relative_to(ROOT / "runner").with_suffix("").as_posix()
    assert "omegaconf" not in packages or module in OMEGACONF
    assert "hydra" not in packages or module in HYDRA
    assert not packages & {"torch", "triton"} or part(path) in WITH_TORCH


@pytest.mark.parametrize("path", modules("kernels"))
def test_kernels_know_no_runner(path):
    assert "runner" not in {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize("module", PARENTS)
def test_the_parent_never_imports_torch(module):
    """Also not through the packages that hold modules with torch."""
    code = f"import runner.{module}, sys; assert not {{'torch', 'triton'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
