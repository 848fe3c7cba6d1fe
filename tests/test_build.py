"""Sources become libraries once, whole and from the right content; a target becomes a callable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from runner.build import artifacts, library, sources
from runner.build.variant import BuildError, NotInstalled, StaleProcess, build
from runner.model import Target, Variant

ROOT = Path(__file__).resolve().parent.parent
# A library without torch in it compiles in a fraction of a second, and registers nothing.
PLAIN = '#include "outer.h"\nextern "C" int value() { return VALUE; }\n'
OPERATOR = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
int64_t run(const torch::stable::Tensor& x) { return x.numel() + NUMBER; }
STABLE_TORCH_LIBRARY_FRAGMENT(build_test, m) { m.def("NAME(Tensor x) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(build_test, CPU, m) { m.impl("NAME", TORCH_BOX(&run)); }
"""
BUILD_IN_PROCESS = """
import json, sys
from pathlib import Path
import torch
from runner.build.variant import build
from runner.model import Target, Variant
source, name, keep = sys.argv[1:]
target = Target(f"torch.ops.build_test.{name}", name, module="torch.ops.build_test")
built = build(Variant(name, target, sources=(source,)), "cpu", Path(keep))
print(json.dumps([built.cached, built.build_ms, built.fn(torch.ones(3))]))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("RUNNER_CACHE", str(folder))
    return folder


@pytest.fixture
def plain(tmp_path):
    """A source that includes a header that includes another."""
    (tmp_path / "inner.h").write_text("#define VALUE 1\n")
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    (tmp_path / "plain.cpp").write_text(PLAIN)
    return tmp_path / "plain.cpp"


def get(source: Path, keep: Path | None = None) -> library.Library:
    paths = (str(source),)
    return library.build_library(paths, "cpu", library.key_of(paths, "cpu"), keep or source.parent / "keep")


def operator(tmp_path: Path, name: str, number: int = 0, file: str = "op.cpp") -> Variant:
    source = tmp_path / file
    source.write_text(OPERATOR.replace("NAME", name).replace("NUMBER", str(number)))
    target = Target(f"torch.ops.build_test.{name}", name, module="torch.ops.build_test")
    return Variant(name, target, language="cpp", sources=(str(source),))


def python(path: Path, attribute: str = "f", **more) -> Variant:
    return Variant(
        path.stem, Target(f"{path}:{attribute}", attribute, file=str(path), path=str(path)), **more
    )


def test_second_build_comes_from_the_cache(plain):
    first, second = get(plain), get(plain)
    assert (first.cached, second.cached) == (False, True)
    assert first.path == second.path and first.path.is_file()
    assert second.log == first.log and "plain.cpp" in first.log
    assert (plain.parent / "keep" / "build.log").read_text() == first.log


def test_changed_content_rebuilds_and_touching_does_not(plain):
    first = get(plain)
    for name in ("plain.cpp", "inner.h"):
        os.utime(plain.parent / name, ns=(1, 1))
    assert get(plain).cached
    (plain.parent / "inner.h").write_text("#define VALUE 2\n")
    header = get(plain)
    plain.write_text(PLAIN + "// changed\n")
    source = get(plain)
    assert not header.cached and not source.cached
    assert len({first.path, header.path, source.path}) == 3


def test_flags_and_compiler_are_part_of_the_key(plain, monkeypatch):
    paths = (str(plain),)
    key = library.key_of(paths, "cpu")
    monkeypatch.setattr(library, "CFLAGS", ("-O1",))
    flags = library.key_of(paths, "cpu")
    monkeypatch.setattr(library, "_compiler", lambda: "another compiler 1.0")
    assert len({key, flags, library.key_of(paths, "cpu")}) == 3


def test_environment_and_output_are_restored(plain, capfd):
    before = dict(os.environ)
    get(plain)
    assert dict(os.environ) == before
    print("still here", flush=True)
    assert capfd.readouterr().out == "still here\n"


def test_compile_error_is_shown_and_nothing_is_cached(tmp_path, cache):
    source = tmp_path / "broken.cpp"
    source.write_text("int f() { return missing_name; }\n" * 30)
    with pytest.raises(BuildError) as caught:
        get(source)
    lines = str(caught.value).splitlines()
    assert lines[0] == "broken.cpp does not compile:"
    assert "broken.cpp:1:" in lines[1] and "missing_name" in lines[1]
    assert len(lines) <= 21
    assert "missing_name" in (tmp_path / "keep" / "build.log").read_text()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
    source.write_text("int f() { return 1; }\n")
    assert get(source).path.is_file()


def test_missing_header_is_left_to_the_compiler(tmp_path):
    (tmp_path / "a.cpp").write_text('#include "nowhere.h"\n')
    with pytest.raises(BuildError, match=r"nowhere.h: No such file"):
        get(tmp_path / "a.cpp")


def test_undefined_symbol_is_a_build_error(tmp_path, cache):
    (tmp_path / "a.cpp").write_text("int nowhere(); int x = nowhere();\n")
    with pytest.raises(BuildError, match=r"a.cpp compiles, but does not load: .*nowhere"):
        get(tmp_path / "a.cpp")
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_unwritable_cache_is_one_sentence(plain, monkeypatch):
    monkeypatch.setenv("RUNNER_CACHE", str(plain / "below_a_file"))
    with pytest.raises(BuildError, match=r"^The build cache .* cannot be written \(.*\); set RUNNER_CACHE"):
        get(plain)


def test_without_nvcc_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "a.cu").write_text("")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    with pytest.raises(BuildError, match=r"^There is no nvcc: .*CUDA_HOME"):
        get(tmp_path / "a.cu")


def start(variant: Variant, tmp_path: Path, **environment: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-c",
        BUILD_IN_PROCESS,
        variant.sources[0],
        variant.name,
        str(tmp_path / "keep"),
    ]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_two_processes_at_once_compile_once(tmp_path):
    variant = operator(tmp_path, "at_once")
    both = [start(variant, tmp_path) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=50)[0]) for process in both]
    assert sorted(cached for cached, _, _ in answers) == [False, True]
    assert [value for _, _, value in answers] == [3, 3]


def test_killed_build_leaves_the_next_one_free(tmp_path, cache):
    """The whole process group dies by SIGKILL while its compiler runs."""
    variant = operator(tmp_path, "killed")
    started = tmp_path / "compiling"
    slow = tmp_path / "c++"  # answers --version as the real one, so that the key is the same
    real = shutil.which(cpp_extension.get_cxx_compiler())
    slow.write_text(f'#!/bin/sh\ncase "$*" in *op.cpp*) touch {started}; sleep 60;; esac\nexec {real} "$@"\n')
    slow.chmod(0o755)
    process = start(variant, tmp_path, CXX=str(slow))
    deadline = time.monotonic() + 30
    while not started.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert any(".build-" in path.name for path in cache.iterdir())
    built = build(variant, "cpu", tmp_path / "keep")
    assert built.cached is False and built.fn(torch.ones(2)) == 2
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".lock"]


def test_changed_source_of_a_loaded_library_asks_for_a_fresh_process(tmp_path):
    variant = operator(tmp_path, "stale")
    assert build(variant, "cpu", tmp_path / "keep").fn(torch.ones(2)) == 2
    again = build(variant, "cpu", tmp_path / "keep")
    assert again.cached is True and again.fn(torch.ones(2)) == 2
    operator(tmp_path, "stale", number=1)
    with pytest.raises(StaleProcess, match=r"stale: its sources changed"):
        build(variant, "cpu", tmp_path / "keep")


def test_an_operator_registered_twice_is_refused(tmp_path):
    build(operator(tmp_path, "twice"), "cpu", tmp_path / "keep")
    other = operator(tmp_path, "twice", number=1, file="other.cpp")
    with pytest.raises(BuildError, match=r"other.cpp registers build_test::twice a second time"):
        build(other, "cpu", tmp_path / "keep")
    shared = replace(other, sources=(str(tmp_path / "op.cpp"), str(tmp_path / "other.cpp")))
    with pytest.raises(BuildError, match=r"op.cpp registers build_test::twice a second time"):
        build(shared, "cpu", tmp_path / "keep")


def test_an_operator_that_the_library_lacks(plain):
    target = Target("torch.ops.build_test.absent", "absent", module="torch.ops.build_test")
    with pytest.raises(BuildError, match=r"plain.cpp registers no operator torch.ops.build_test.absent"):
        build(Variant("absent", target, sources=(str(plain),)), "cpu", plain.parent / "keep")


def test_file_targets_of_the_same_name_do_not_meet(tmp_path):
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "mine.py").write_text(f"def f():\n    return {number}\n")
    built = [build(python(tmp_path / str(n) / "mine.py"), "cpu", tmp_path) for n in (1, 2, 1)]
    assert [one.fn() for one in built] == [1, 2, 1]
    assert built[0].fn is built[2].fn and built[0].build_ms is None and built[0].cached is None


def test_changed_module_asks_for_a_fresh_process(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def f():\n    return 1\n")
    build(python(path), "cpu", tmp_path)
    path.write_text("def f():\n    return 2\n")
    with pytest.raises(StaleProcess, match=r"mine.py changed"):
        build(python(path), "cpu", tmp_path)


def test_import_error_is_the_modules_own(tmp_path):
    path = tmp_path / "raises.py"
    path.write_text("raise RuntimeError('on import')\n")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"on import"):
            build(python(path), "cpu", tmp_path)


@pytest.mark.parametrize("name", ["surely_not_installed", "surely_not.installed"])
def test_missing_package(tmp_path, name):
    variant = Variant("peer", Target("math.sqrt", "sqrt", module="math"), requires=("math", name))
    with pytest.raises(NotInstalled, match=rf"peer needs the package {name}, which is not installed"):
        build(variant, "cpu", tmp_path)


def test_installed_target_needs_no_build(tmp_path):
    built = build(Variant("builtin", Target("torch.softmax", "softmax", module="torch")), "cpu", tmp_path)
    assert built.fn is torch.softmax and built.build_ms is None


def test_digest_follows_content_alone(plain, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def f(): ...\n")
    variant = python(path, sources=(str(plain),))
    first = sources.digest(variant)
    os.utime(path, ns=(1, 1))
    (tmp_path / "sibling.py").write_text("a user's other file")
    assert sources.digest(variant) == first and len(first) == 16
    seen = {first}
    for changed in (path, plain, tmp_path / "outer.h", tmp_path / "inner.h"):
        changed.write_text(changed.read_text() + "\n")
        seen.add(sources.digest(variant))
    assert len(seen) == 5


def test_digest_is_the_same_in_another_folder(plain, tmp_path):
    moved = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}_moved")
    files = [folder / "plain.cpp" for folder in (tmp_path, moved)]
    one, other = (sources.digest(python(file, sources=(str(file),))) for file in files)
    assert one == other


def test_digest_of_a_kernel_covers_its_folder_and_what_it_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "KERNELS", tmp_path)
    files = dict.fromkeys(("op/b.py", "shared/helper.py", "other/c.py"), "")
    files["op/a.py"] = "from kernels.shared import helper"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    variant = Variant(
        "a", Target("kernels.op.a.f", "f", module="kernels.op.a", path=str(tmp_path / "op/a.py"))
    )
    seen = [sources.digest(variant)]
    for name in ("op/b.py", "shared/helper.py", "other/c.py"):
        (tmp_path / name).write_text("changed = 1")
        seen.append(sources.digest(variant))
    assert len(set(seen[:3])) == 3 and seen[3] == seen[2]


def test_digest_of_a_package_is_its_version(monkeypatch):
    variant = Variant("builtin", Target("torch.softmax", "softmax", module="torch", path=torch.__file__))
    first = sources.digest(variant)
    monkeypatch.setattr(sources, "_version", lambda top: f"{top} 0.0")
    assert sources.digest(variant) != first


def test_digest_is_fast(plain):
    variant = python(plain, sources=(str(plain),))
    start_s = time.perf_counter()
    for _ in range(20):
        sources.digest(variant)
    assert (time.perf_counter() - start_s) / 20 < 5e-3


def test_compiled_forms_of_many_shapes_stay_compiled(tmp_path):
    """More shapes than dynamo's limit of recompilations, in one process: none may run eagerly."""
    path = tmp_path / "mine.py"
    path.write_text("def f(x, *, scale=2):\n    return x * scale\n")
    compiled, called = [], []

    def backend(graph, inputs):
        compiled.append(tuple(inputs[0].shape))
        return lambda *args: (called.append(1), graph.forward(*args))[1]

    variant = python(path, compile={"backend": backend})
    builtin = Variant("b", Target("torch.tanh", "tanh", module="torch"), compile={"backend": backend})
    shapes = [(n,) for n in range(2, 22)]
    for one, wanted in ((variant, lambda x: x * 2), (builtin, torch.tanh)):
        compiled.clear(), called.clear()
        for shape in shapes:
            x = torch.ones(shape)
            assert torch.equal(build(one, "cpu", tmp_path).fn(x), wanted(x))
        assert compiled == shapes and len(called) == len(shapes)


def test_one_compiled_form_refuses_rather_than_runs_eagerly(tmp_path):
    variant = Variant("b", Target("torch.tanh", "tanh", module="torch"), compile={"backend": "eager"})
    fn = build(variant, "cpu", tmp_path).fn
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        for n in range(2, 2 + 2 * torch._dynamo.config.recompile_limit):
            fn(torch.ones(n))


def test_generated_source_is_kept_from_a_fresh_compile_and_from_the_cache(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import torch\n\ndef f(x):\n    return torch.tanh(x) + 1\n")
    variant = python(path, compile={})
    for attempt in ("first", "second"):
        keep = tmp_path / attempt
        built = build(variant, "cpu", keep)
        with artifacts.capture(variant, built) as captured:
            built.fn(torch.ones(5, 7))
        kept = artifacts.collect(variant, built, captured, keep)
        assert kept.files == ("generated_0.py",) and not kept.note
        assert "tanh" in (keep / "generated_0.py").read_text()


PTXAS = """
[1/3] nvcc -c row.cu
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z11softmax_rowIfEvPKT_PS0_l' for 'sm_90'
ptxas info    : Function properties for _Z11softmax_rowIfEvPKT_PS0_l
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Function properties for _Z6helperv
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '_Z6spillyPKfPf' for 'sm_90'
ptxas info    : Function properties for _Z6spillyPKfPf
    688 bytes stack frame, 456 bytes spill stores, 512 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 688 bytes cumulative stack size
"""


def test_registers_and_spills_are_read_from_ptxas(monkeypatch):
    row, spilly = artifacts.parse_ptxas(PTXAS)
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    assert artifacts.parse_ptxas(PTXAS)[0].name == "_Z11softmax_rowIfEvPKT_PS0_l"
    if row.name != "_Z11softmax_rowIfEvPKT_PS0_l":  # c++filt is here
        assert (row.name, spilly.name) == ("softmax_row<float>", "spilly")
    assert row == artifacts.Kernel(row.name, "sm_90", 12, 0, 0, 1024)
    assert spilly == artifacts.Kernel(spilly.name, "sm_90", 32, 456, 512, 0)
    assert artifacts.describe([row]) == f"{row.name}: 12 registers, no spills"
    assert artifacts.describe([row, spilly]).endswith(
        "968 spilled (456 stores, 512 loads), most in " + spilly.name
    )


TRITON = """
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

def double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n, other=0.0) * 2, mask=i < n)

kernel = triton.autotune([triton.Config({})], key=["n"])(JITFunction(double))

def f(x):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    signature = {"x": "*fp32", "o": "*fp32", "n": "i32", "B": "constexpr"}
    source = ASTSource(kernel.fn, signature, {(3,): 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    compiled.n_regs, compiled.n_spills = 16, 0  # the driver tells them when it loads the kernel
    kernel.fn.device_caches[0] = ({"key": compiled}, {})
    return x * 2
"""


def test_ptx_of_triton_kernels_is_kept(tmp_path):
    """Triton compiles for a GPU that is not there; only loading is played."""
    pytest.importorskip("triton")
    (tmp_path / "t.py").write_text(TRITON)
    variant = python(tmp_path / "t.py", language="triton")
    built = build(variant, "cpu", tmp_path)
    with artifacts.capture(variant, built) as captured:
        built.fn(torch.ones(3))
    kept = artifacts.collect(variant, built, captured, tmp_path / "keep")
    assert kept.summary == "double: 16 registers, no spills" and not kept.note
    assert sorted(Path(name).suffix for name in kept.files) == [".csv", ".ptx", ".ttir"]
    assert ".visible .entry double" in next((tmp_path / "keep").glob("*.ptx")).read_text()


CUDA = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
__global__ void increment(int* x) { x[threadIdx.x] += 1; }
int64_t run(const torch::stable::Tensor& x) {
  increment<<<1, static_cast<unsigned>(x.numel())>>>(static_cast<int*>(x.data_ptr()));
  return static_cast<int64_t>(cudaDeviceSynchronize());
}
STABLE_TORCH_LIBRARY_FRAGMENT(build_test, m) { m.def("increment(Tensor x) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(build_test, CUDA, m) { m.impl("increment", TORCH_BOX(&run)); }
"""


@pytest.mark.gpu
def test_cuda_source_runs_and_leaves_ptx_and_registers(tmp_path):
    (tmp_path / "increment.cu").write_text(CUDA)
    target = Target("torch.ops.build_test.increment", "increment", module="torch.ops.build_test")
    variant = Variant("increment", target, language="cuda", sources=(str(tmp_path / "increment.cu"),))
    built = build(variant, "cuda:0", tmp_path / "keep")
    x = torch.zeros(8, dtype=torch.int32, device="cuda:0")
    with artifacts.capture(variant, built) as captured:
        assert built.fn(x) == 0
    assert x.tolist() == [1] * 8
    kept = artifacts.collect(variant, built, captured, tmp_path / "keep")
    assert kept.files == ("build.log", "increment.ptx", "registers.csv")
    assert " registers, no spills" in kept.summary and not kept.note
    major, minor = torch.cuda.get_device_capability(0)
    assert f",sm_{major}{minor}" in (tmp_path / "keep" / "registers.csv").read_text()


@pytest.mark.gpu
def test_triton_and_inductor_kernels_tell_their_registers(tmp_path):
    (tmp_path / "t.py").write_text(INTERPRETED)
    for name, more in (("triton", {"language": "triton"}), ("compiled", {"compile": {}})):
        variant = python(tmp_path / "t.py", "g" if name == "triton" else "f", **more)
        built = build(variant, "cuda:0", tmp_path / name)
        with artifacts.capture(variant, built) as captured:
            built.fn(torch.ones(64, 64, device="cuda:0"))
        kept = artifacts.collect(variant, built, captured, tmp_path / name)
        assert " registers, no spills" in kept.summary and not kept.note, kept
        assert any(file.endswith((".ptx", "generated_0.py")) for file in kept.files)


INTERPRETED = """
import triton

@triton.jit
def kernel(x):
    pass

def f(x):
    return x * 2

def g(x):
    kernel[(1,)](x)
    return x
"""


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton compiles here")
def test_the_interpreter_says_that_nothing_was_compiled(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "t.py").write_text(INTERPRETED)
    variant = python(tmp_path / "t.py", language="triton")
    built = build(variant, "cpu", tmp_path)
    with artifacts.capture(variant, built) as captured:
        built.fn(1)
    assert artifacts.collect(variant, built, captured, tmp_path / "keep").summary.startswith(
        "Triton's interpreter"
    )


def test_unreadable_listings_become_a_note(tmp_path, monkeypatch):
    variant = Variant("builtin", Target("torch.tanh", "tanh", module="torch"))
    built = build(variant, "cpu", tmp_path)
    monkeypatch.setattr(artifacts, "parse_ptxas", lambda log: 1 / 0 if log else [].missing)
    with artifacts.capture(variant, built) as captured:
        built.fn(torch.ones(1))
    kept = artifacts.collect(variant, built, captured, tmp_path / "keep")
    assert kept.summary == "" and kept.note.startswith(
        "What the compiler said could not be kept: AttributeError"
    )
