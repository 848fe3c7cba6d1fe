"""Variants that must never get a time: each file of `untrustworthy/variants` is one trick or one fault.

Those that exist on the CPU run here on every machine; the others, and these again, run where a GPU is.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import yaml

from runner import driver
from runner.config.compose import compose
from tests.support import DEVICE

pytestmark = pytest.mark.xdist_group("untrustworthy")  # one run over all of them, in one process

FOLDER = Path(__file__).parent / "untrustworthy" / "variants"
HONEST = "honest"

# name of the row -> (status, what its reason must name). Several functions of one file: file.function
EXPECTED: dict[str, tuple[str, str]] = {
    "u01_own_stream": ("wrong", "after it had returned"),
    "u02_lazy_subclass": ("wrong", "returned Lazy, not a tensor"),
    "u02_lazy_instance": ("wrong", "attributes of its own"),
    "u03_replaces_clocks": ("wrong", "changed global state: .*replaced"),
    "u04_caches_by_address": ("wrong", "wrong when timed|beyond the float32 bound"),
    "u04_caches_by_identity": ("wrong", "an earlier output|wrong when timed|beyond the float32 bound"),
    "u05_caches_by_content": ("wrong", "faster on inputs that it has seen before"),
    "u06_stale_memory": ("wrong", "beyond the float32 bound|being finite"),
    "u07_changes_its_input": ("wrong", "changed its input x"),
    "u08_zeros_for_tiny": ("wrong", "beyond the float32 bound"),
    "u08_all_zeros": ("wrong", "beyond the float32 bound"),
    "u09_half": ("wrong", "beyond the float32 bound"),
    "u09_bfloat16": ("wrong", "beyond the float32 bound"),
    "u09_tf32": ("wrong", "beyond the float32 bound"),
    "u10_calls_the_builtin": ("wrong", "aten::_?softmax"),
    "u11_never_launches": ("wrong", "beyond the float32 bound|being finite"),
    "u12_another_kind.none": ("wrong", "returned NoneType"),
    "u12_another_kind.a_list": ("wrong", "returned list"),
    "u12_another_kind.empty": ("wrong", "returned shape"),
    "u12_another_kind.another_shape": ("wrong", "returned shape"),
    "u12_another_kind.another_dtype": ("wrong", "returned float64"),
    "u12_another_kind.another_device": ("wrong", "returned a tensor on"),
    "u12_another_kind.another_layout": ("wrong", "returned layout"),
    "u13_right_at_first": ("wrong", "right when checked, wrong when timed"),
    "u14_slow_warmup": ("wrong", "slow"),
    "u15_pins_l2": ("wrong", "L2"),
    "u16_nan": ("wrong", "being finite"),
    "u17_known_shape": ("wrong", "cols=|rows="),
    "u17_known_values": ("wrong", "beyond the float32 bound|wrong when timed"),
    # on a CPU glibc ends the process as soon as it sees what was written over
    "u18_writes_beside": ("wrong|crashed", r"next to its output|malloc\(\)|free\(\)|corrupted|invalid size"),
    "u19_race": ("wrong", "beyond the float32 bound|different results"),
    "u20_leaks": ("wrong", "holds"),
    "x_finds_the_reference": ("wrong", "beyond the float32 bound"),
    "x_replaces_the_check": ("wrong", "beyond the float32 bound|changed global state"),
    "x_patches_tensor_methods": ("wrong", "replaced"),
    "x_knows_when_it_is_timed": ("wrong", "when timed"),
    "x_forges_its_verdict": ("wrong|error|crashed", "pipe|forged|beyond the float32 bound"),
    "x_sets_flags": ("wrong", "changed global state: .*precision"),
    "x_takes_fewer_threads": ("wrong", "changed global state: .*threads"),
    "x_leaves_a_mode": ("wrong", "changed global state: .*grad"),
    "x_leaves_a_thread": ("wrong", "thread"),
    "x_installs_a_profiler": ("wrong", "changed global state: .*profile"),
    "x_one_wrong_element": ("wrong", "1 elements"),
    "x_returns_its_input": ("wrong", "input|beyond the float32 bound"),
    "x_caches_by_one_number": ("wrong", "faster on inputs|wrong when timed|beyond the float32 bound"),
    "x_takes_anothers_answer": ("wrong", r"^\d+ elements differ in being finite"),  # when it is checked
    "x_replays_an_old_output": ("wrong", "when called again|wrong when timed|beyond the float32 bound"),
    "x_ignores_strides": ("wrong", "at .*transposed.*beyond the float32 bound"),
    "x_overrides_an_operator": ("wrong", "changed global state: the operator aten::_softmax"),
    "x_replaces_builtins": ("wrong", r"changed global state: builtins\.min"),
    "x_collects_no_garbage": ("wrong", "changed global state: the garbage collector"),
    "x_leaves_a_default_device": ("wrong|error", "the default device|meta"),
    "x_leaves_determinism": ("wrong", "changed global state: deterministic algorithms"),
    "x_kills_the_judge": ("wrong", "ended the process that judges it"),
    "x_leaves_a_process": ("wrong", "changed global state: the process"),
    "x_edits_code": ("wrong", r"changed global state: runner\.check\.exchange\.same_bits"),
    "x_changes_a_constant": ("wrong", r"changed global state: runner\.measure\.fresh\._"),
    "x_flushes_denormals": ("wrong", "changed global state: numbers that are tiny"),
    "x_sets_a_timer": ("wrong", "changed global state: .*signals"),
    "x_lowers_its_priority": ("wrong", "changed global state: its priority"),
    "x_patches_the_launcher": ("wrong", r"changed global state: JITFunction\.run"),
    "x_looks_for_the_seed": ("ok", ""),  # and finds none: while anything runs it is written nowhere it looks
    "x_replaces_an_imported_name": ("wrong", r"changed global state: .*clock_cpu\.perf_counter_ns"),
    "x_shrinks_the_flush": ("wrong", "changed global state: .*the runner's C.*Clock"),
    "x_patches_a_class_of_pythons": ("wrong", r"changed global state: SystemRandom\.random"),
    "x_patches_an_instance": ("wrong", r"changed global state: runner\.measure\.fresh\._random"),
    "x_changes_defaults": ("wrong", "changed global state: .*take_turns .other defaults"),
    "x_patches_autograd_function": ("wrong", r"changed global state: Function\.apply"),
    "x_patches_the_profiler": ("wrong", r"changed global state: torch\.autograd\.profiler\.profile"),
    "x_changes_the_environment": ("wrong", "changed global state: the environment variable PATH"),
    "x_lowers_a_limit": ("wrong", "changed global state: its limit RLIMIT_NOFILE"),
    "x_changes_the_umask": ("wrong", "changed global state: the process's Umask"),
    "x_changes_its_scheduling": ("wrong", "changed global state: how it is scheduled"),
    "x_catches_a_signal_in_c": ("wrong", "changed global state: what signal 40 calls"),
    "x_searches_for_anomalies": ("wrong", "changed global state: autograd's search for anomalies"),
    "x_hooks_saved_tensors": ("wrong", "changed global state: autograd's hooks"),
    "x_hooks_audits": ("wrong", "changed global state: the audit hooks"),
    "x_watches_python": ("wrong", "changed global state: (the tools that watch|the trace and profile)"),
    "x_stops_the_judge": ("ok", ""),  # which goes on at once: nobody loses a row
    "x_stops_itself": ("ok", ""),  # and has the time that it stood still
    # on a GPU those of CUDA are among them, and its next call fails first
    "x_closes_descriptors": ("wrong|error", "changed global state: descriptors 0 to 2|CUDA error"),
    "x_closes_all_descriptors": ("crashed", "exited with code 1|closed its pipe"),
    "x_returns_the_same_memory": ("wrong", "memory that an earlier output lies in"),
    "x_edits_anothers_call": ("wrong", "changed global state: the runner's Trial"),
    "x_slows_another": ("wrong", r"changed global state: kernels\.softmax\.naive\.softmax"),
    "x_sets_a_compiler": ("wrong", r"changed global state: torch\._inductor\.config\.max_autotune"),
    "x_sets_a_variable_in_c": ("wrong", r"changed global state: the environment variable OMP_SCHEDULE"),
    "x_makes_warnings_errors": ("wrong", "changed global state: warnings that are errors"),
    "x_leaves_a_transform": ("wrong|error", "changed global state: the transforms|vmap"),
    "x_announces_another": ("crashed", "wrote to the runner's pipe"),
    "x_leaves_a_raw_thread": ("wrong", "changed global state: the thread"),
    "f_raises": ("error", "ValueError: no such luck"),
    "f_dies_on_import": ("error", "RuntimeError: not on this machine"),
    "f_segfaults": ("crashed", "SIGSEGV"),
    "f_hangs": ("timeout", "limits.check_s"),
    "f_exits": ("error", "SystemExit"),
    "f_leaves": ("crashed", "code 0"),
    "f_floods": ("error", "printed"),
    "f_out_of_memory": ("error", "memory"),
    "f_does_not_compile": ("error", "no_such_function|not declared|undefined"),
    "f_illegal_address": ("error|crashed", "illegal memory access|misaligned"),
    "f_device_hang": ("timeout", "limits.check_s"),
    "f_device_assert": ("error|crashed", "device-side assert"),
}


def _devices(name: str) -> tuple[str, ...]:
    text = (FOLDER / f"{name.partition('.')[0]}.py").read_text()
    found = re.search(r"^DEVICES = (\(.*\))$", text, re.MULTILINE)
    return eval(found[1]) if found else ("cpu", "cuda")


NAMES = [name for name in EXPECTED if DEVICE in _devices(name)]


def _variants(names: list[str]) -> dict[str, dict]:
    declared = {HONEST: {"target": "torch.softmax"}}
    for name in names:
        file, _, function = name.partition(".")
        target = f"{FOLDER / file}.py:{function or 'softmax'}"
        declared[name.replace(".", "_")] = {"target": target}
    if "f_does_not_compile" in names:
        source = "f_does_not_compile.cpp" if DEVICE == "cpu" else "f_does_not_compile.cu"
        declared["f_does_not_compile"]["sources"] = [str(FOLDER / source)]
    return declared


def _op(names: list[str]) -> dict:
    return {
        "name": "untrusted",
        "why": "an op whose variants cheat",
        "dims": ["rows", "cols"],
        "attrs": {"dim": [-1]},
        "shapes": {
            "cpu": [{"rows": 200, "cols": 3000}],
            "cuda": [{"rows": 4096, "cols": 3000}],
            "smoke": [{"rows": 3, "cols": 257}],
        },
        "dtypes": ["float32"],
        "inputs": {"x": {"shape": ["rows", "cols"], "layouts": ["contiguous", "transposed", "offset1"]}},
        "reference": {"target": "torch.softmax"},
        "cost": {
            "forward": {
                "flops": "5*rows*cols",
                "read": "rows*cols*itemsize",
                "write": "rows*cols*itemsize",
            }
        },
        "baseline": HONEST,
        "variants": _variants(names),
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory, request):
    """One run over all that were selected: {variant: row}."""
    items = [item for item in request.session.items if hasattr(item, "callspec")]
    selected = {item.callspec.params.get("name") for item in items}
    names = [name for name in NAMES if name in selected]
    folder = tmp_path_factory.mktemp("untrustworthy")
    (folder / "op").mkdir()
    (folder / "op" / "untrusted.yaml").write_text(yaml.safe_dump(_op(names), sort_keys=False))
    device = "cpu" if DEVICE == "cpu" else "cuda:0"
    words = ["op=untrusted", "variant=all", f"device={device}", "limits.check_s=8", "limits.measure_s=60"]
    words += ["measure.budget_s=0.6", f"output={folder / 'out'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))  # it takes minutes: no other test waits for the device
        outcome = driver.execute(compose(words, [str(folder)]), show=False)
        driver.shutdown()
    with open(outcome.folder / "results.csv", newline="") as table:
        return {row["variant"]: row for row in csv.DictReader(table)}


@pytest.mark.timeout(1500)
def test_the_honest_variant_is_timed(rows):
    assert (rows[HONEST]["status"], rows[HONEST]["reason"]) == ("ok", "")
    assert float(rows[HONEST]["mean_ms"]) > 0


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", NAMES)
def test_it_gets_no_time_and_its_row_says_why_or_it_harms_nobody(rows, name):
    row = rows[name.replace(".", "_")]
    status, reason = EXPECTED[name]
    assert re.fullmatch(status, row["status"]), row["reason"]
    assert re.search(reason, row["reason"]), row["reason"]
    assert (row["mean_ms"] == "") == (status != "ok")


def test_every_file_is_expected():
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert files == {name.partition(".")[0] for name in EXPECTED}


def test_all_twenty_tricks_are_here():
    assert {f"u{number:02}" for number in range(1, 21)} == {name[:3] for name in EXPECTED if name[0] == "u"}
