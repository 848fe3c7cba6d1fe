"""Where a `target` or a source file is: found by reading files, nothing imported and nothing run.

Three forms: `package.module.function`, `path/to/file.py:function`, `torch.ops.<namespace>.<op>`.
Names are looked for in the syntax tree of our own and the user's files; of an installed package
only a name that appears nowhere in the module's text is refused, since packages build their names
in many ways.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import machinery
from importlib.machinery import ModuleSpec
from pathlib import Path

from runner.files import ROOT
from runner.model import Target
from runner.typed import nearest

BUILT_IN_OPS = ("aten", "prims", "inductor", "quantized", "mkldnn", "_c10d_functional")
CPP, CUDA = (".cpp", ".cc", ".cxx", ".c"), (".cu",)
TORCH_TEXTS = ("functional.py", "_C/_VariableFunctions.pyi", "_C/__init__.pyi")  # of names in `torch` itself
DEFINITION = re.compile(r"^(?:def|class) (\w+)|^(\w+)\s*[:=]", re.MULTILINE)
TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


LOADERS = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


class NotFound(Exception):
    """Half a sentence on what is not there."""


@dataclass(frozen=True)
class Search:
    """Folders that relative paths are looked for in, in order."""

    folders: tuple[Path, ...]

    @classmethod
    def beside(cls, config_dirs: Iterable[Path]) -> Search:
        """The current folder, each --config-dir and its parent, the repo."""
        own = [folder for each in config_dirs for folder in (each.resolve(), each.resolve().parent)]
        return cls(tuple(dict.fromkeys([Path.cwd(), *own, ROOT])))

    def file(self, text: str) -> Path:
        """The first file of that name. Raises NotFound."""
        path = Path(text).expanduser()
        tried = [path] if path.is_absolute() else [folder / path for folder in self.folders]
        for each in tried:
            if each.is_file():
                return each.resolve()
        neighbours = [n.name for each in tried if each.parent.is_dir() for n in each.parent.iterdir()]
        near = nearest(path.name, neighbours) if neighbours else ""
        hint = near if "did you mean" in near else ""
        looked = ", ".join(str(each.parent) for each in tried)
        raise NotFound(f"there is no file {text} (looked in {looked}){hint}")

    def owns(self, path: Path) -> bool:
        """Whether a file is ours or the user's, rather than an installed package's."""
        inside = any(path.is_relative_to(folder) for folder in self.folders)
        return inside and not {"site-packages", "dist-packages"} & set(path.parts)


def find(text: str, search: Search, sources: Sequence[str] = (), requires: Sequence[str] = ()) -> Target:
    """The target of that name. `sources` are the variant's files, `requires` packages that may be missing.

    Raises NotFound with half a sentence.
    """
    if ".py:" in text:
        return _in_file(text, search)
    parts = text.split(".")
    if not all(part.isidentifier() for part in parts):
        raise NotFound(f"{text!r} is no target: write package.module.function or path/to/file.py:function")
    if parts[:2] == ["torch", "ops"]:
        return _torch_op(text, parts, sources, requires)
    return _in_module(text, parts, search, requires)


def language(target: Target, sources: Sequence[str]) -> str:
    """What a variant needs to run: cuda, cpp, triton or python."""
    endings = {Path(source).suffix for source in sources}
    if endings.intersection(CUDA):
        return "cuda"
    if endings.intersection(CPP):
        return "cpp"
    own = target.path.endswith(".py") and target.module.partition(".")[0] != "torch"
    return "triton" if own and TRITON.search(_text(Path(target.path))) else "python"


def _in_file(text: str, search: Search) -> Target:
    name, _, function = text.rpartition(":")
    path = search.file(name)
    if not function.isidentifier():
        raise NotFound(f"{text!r} names no function: write {name}:function")
    _check_tree(path, function)
    return Target(text, function, file=str(path), path=str(path))


def _torch_op(text: str, parts: list[str], sources: Sequence[str], requires: Sequence[str]) -> Target:
    if len(parts) not in (4, 5):
        raise NotFound(f"{text!r} is no operator: write torch.ops.<namespace>.<op>")
    namespace, op = parts[2], parts[3]
    target = Target(text, ".".join(parts[3:]), module=f"torch.ops.{namespace}")
    if sources:
        if not any(_appears(op, Path(source)) for source in sources):
            raise NotFound(f"{op!r} appears in none of its sources ({', '.join(sources)})")
    elif namespace == "aten":
        _check_aten(op)
    elif namespace not in BUILT_IN_OPS and not requires:
        raise NotFound(f"nothing registers {text!r}: give its `sources`, or the package under `requires`")
    return target


def _check_aten(op: str) -> None:
    declared = _package_folder("torchgen") / "packaged/ATen/native/native_functions.yaml"
    known = set(re.findall(r"^- func: (\w+)", _text(declared), re.MULTILINE))
    if known and op not in known:
        raise NotFound(f"torch has no operator aten::{op}{_close(op, known)}")


def _in_module(text: str, parts: list[str], search: Search, requires: Sequence[str]) -> Target:
    """The longest prefix that is a module, then a name inside it."""
    spec, used = None, 0
    for used in range(1, len(parts) + 1):
        found = _spec(".".join(parts[:used]), spec)
        if found is None:
            used -= 1
            break
        spec = found
    if spec is None:
        return _missing_package(text, parts, requires)
    module, attribute = ".".join(parts[:used]), ".".join(parts[used:])
    if not attribute:
        raise NotFound(f"{text!r} is a module, not a function in one")
    path = Path(spec.origin) if spec.has_location and spec.origin else None
    if path is None and spec.submodule_search_locations is not None:
        folder = next(iter(spec.submodule_search_locations))
        hint = _close(parts[used], _submodules(spec))
        raise NotFound(f"there is no {parts[used]!r} in the folder {folder}{hint}")
    if path and search.owns(path):
        _check_tree(path, parts[used], _submodules(spec))
    else:
        _check_installed(module, parts[used], path, spec)
    return Target(text, attribute, module=module, path=str(path or ""))


def _missing_package(text: str, parts: list[str], requires: Sequence[str]) -> Target:
    if parts[0] in {each.replace("-", "_").partition(".")[0] for each in requires} and len(parts) > 1:
        return Target(text, parts[-1], module=".".join(parts[:-1]))
    hint = f"; if it may be missing, say requires: [{parts[0]}]" if len(parts) > 1 else ""
    raise NotFound(f"there is no module {parts[0]!r} here{hint}")


def _spec(name: str, parent: ModuleSpec | None) -> ModuleSpec | None:
    """The spec of a module, given its parent's, without importing either; the repo comes first."""
    if parent is not None:
        return _submodule(name, parent)
    own = machinery.PathFinder.find_spec(name, [str(ROOT)])
    if own is not None:
        return own
    found = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in found if spec is not None), None)


def _submodule(name: str, parent: ModuleSpec) -> ModuleSpec | None:
    """As the import system would, but folder by folder: its own finder wants the parent imported."""
    namespace: list[str] = []
    for folder in parent.submodule_search_locations or ():
        spec = machinery.FileFinder(folder, *LOADERS).find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        if spec is not None:
            namespace += spec.submodule_search_locations or ()
    if not namespace:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = namespace
    return spec


def _package_folder(name: str) -> Path:
    spec = _spec(name, None)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else Path("/")


def _check_tree(path: Path, name: str, besides: Sequence[str] = ()) -> None:
    """Raises NotFound when a file of ours defines no such name; a file that cannot be parsed passes,
    since importing it will say more."""
    defined = _defined(path, path.stat().st_mtime_ns)
    if defined is not None and name not in defined:
        raise NotFound(f"{path} defines no {name!r}{nearest(name, sorted(defined.union(besides)))}")


@functools.lru_cache(512)
def _defined(path: Path, changed: int) -> frozenset[str] | None:
    """Names a module binds at its top level; None when that cannot be told."""
    try:
        tree = ast.parse(_text(path))
    except (SyntaxError, ValueError):
        return None
    found: set[str] = set()
    for node in _top_level(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((each.asname or each.name).partition(".")[0] for each in node.names)
        else:
            found.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _stored(n))
    return None if found & {"*", "__getattr__"} else frozenset(found)


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _top_level(tree: ast.AST) -> Iterable[ast.stmt]:
    """Statements that run on import, those inside if, try, with, for and while included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ExceptHandler)):
            yield from _top_level(node)
        if isinstance(node, ast.stmt):
            yield node


def _check_installed(module: str, name: str, path: Path | None, spec) -> None:
    """Raises NotFound when a name appears nowhere in the text of an installed module."""
    texts = [p for p in _texts_of(module, path) if p.is_file()]
    if not texts or any(_appears(name, each) for each in texts):
        return
    if module != "torch" and re.search(r"import \*|def __getattr__|globals\(\)", _text(texts[0])):
        return  # it builds its names when it is imported
    pairs = [pair for each in texts for pair in re.findall(DEFINITION, _text(each))]
    hint = _close(name, {a or b for a, b in pairs} | set(_submodules(spec)))
    raise NotFound(f"{module} has no {name!r}{hint}")


def _submodules(spec) -> list[str]:
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    return [child.stem for folder in folders if folder.is_dir() for child in folder.iterdir()]


def _texts_of(module: str, path: Path | None) -> list[Path]:
    if path is None:
        return []
    stem = path.with_name(path.name.partition(".")[0])  # softmax.cpython-311-x86_64-linux-gnu.so
    texts = [stem.with_suffix(".py"), stem.with_suffix(".pyi")]
    if module == "torch":
        texts += [path.parent / each for each in TORCH_TEXTS]
    return texts


def _close(name: str, known: Iterable[str]) -> str:
    hint = nearest(name, sorted(known))
    return hint if "did you mean" in hint else ""


def _appears(name: str, path: Path) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", _text(path)) is not None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
