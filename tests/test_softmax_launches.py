"""How wide rows are launched, on cards that are not here: every choice is one that the card can run."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess

import pytest

from tests.support import ROOT

FLOAT32, FLOAT16, BFLOAT16 = 1, 2, 3  # kernels::Dtype
BYTES = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2}
HELD = {FLOAT32: 65536, FLOAT16: 32768, BFLOAT16: 32768}  # bytes of columns, by a block of a cluster
# Major compute capability, multiprocessors, bytes of shared memory that a block may ask for.
CARDS = {
    "a100": (8, 108, 166912),
    "h200": (9, 132, 232448),
    "h100 of 16": (9, 16, 232448),
    "b200": (10, 148, 232448),
    "rtx": (12, 170, 101376),
}
REPLACED = [
    "cudaGetDevice",
    "cudaDeviceGetAttribute",
    "cudaFuncSetAttribute",
    "cudaMemsetAsync",
    "cudaLaunchKernelExC",
]

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return built(tmp_path_factory, "wide_launches", "staged", "ring")


@pytest.fixture(scope="module")
def strided(tmp_path_factory):
    return built(tmp_path_factory, "strided_launches", "strided_cluster")


def built(tmp_path_factory, test, *launchers):
    out = tmp_path_factory.mktemp("launches") / test
    sources = [ROOT / f"tests/{test}.cu", *(ROOT / f"csrc/softmax/{name}.cu" for name in launchers)]
    wrap = "-Xlinker=" + ",".join(f"--wrap={name}" for name in REPLACED)
    # PTX alone: its kernels are never launched.
    target = ["-std=c++17", "-gencode=arch=compute_90,code=compute_90", f"-I{ROOT / 'csrc'}"]
    subprocess.run(["nvcc", *target, *sources, wrap, "-o", out], check=True, capture_output=True)
    return out


def launches(program, cases):
    """One dict for each (card, dtype, rows, cols, stride, x, y, cluster) or, of columns, (card, dtype, outer,
    length, inner, cluster, columns).
    """
    lines = [" ".join(str(n) for n in (*CARDS[card], *rest)) for card, *rest in cases]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    found = [dict(word.split("=") for word in line.split()) for line in done.stdout.splitlines()]
    assert len(found) == len(cases)
    return [{k: v if k == "design" else int(v) for k, v in one.items()} for one in found]


def some_cases():
    """Rows of every width that changes a choice, give or take one, and of random ones, at any start."""
    any_of = random.Random(0)
    for card, dtype in itertools.product(CARDS, BYTES):
        vectors = [
            1,
            1024,
            2048,
            4096,
            4097,
            6144,
            8192,
            65536,
            65544,
            65545,
            131072,
            1 << 18,
            1 << 20,
            1 << 22,
        ]
        cols = [max(1, v * 16 // BYTES[dtype] + more) for v in vectors for more in (-1, 0, 1, 8)]
        cols += [any_of.randint(1, 1 << any_of.randint(1, 22)) for _ in range(400)]
        for n in cols:
            rows = any_of.choice([1, 2, 7, 40, 131, 132, 4096, 70001])
            stride = n + any_of.choice([0, 0, 1, 8, 64])
            x, y = (4096 + BYTES[dtype] * any_of.choice([0, 0, 1, 5, 8]) for _ in range(2))
            yield card, dtype, rows, n, stride, x, y, -1


def line_vectors(case):
    """Of the row that needs the most: vectors from a boundary of 128 bytes to the end of its output."""
    _, dtype, rows, cols, _, _, y, _ = case
    width = cols * BYTES[dtype]
    starts = ((y + row * width) % 128 for row in range(min(rows, 128)))
    return max(-(-(start + width) // 16) for start in starts)


def assert_launched(case, found, cluster, blocks_together):
    shared = CARDS[case[0]][2]
    assert found["error"] == 0, case
    assert found["bytes"] + found["own"] <= shared, case
    assert found["limit"] == found["bytes"], case
    assert found["bytes"] >= found["slice"] * 16, case
    assert found["cluster"] == cluster and found["beyond"] == (cluster > 8), case
    assert found["slice"] % 8 == 0 and blocks_together * found["slice"] >= line_vectors(case), case


def test_every_choice_can_be_launched(program):
    cases = list(some_cases())
    seen = set()
    for case, found in zip(cases, launches(program, cases), strict=True):
        card, rows = case[0], case[2]
        seen.add((card, found["design"]))
        if found["design"] == "staged":
            cluster = found["blocks"] // rows
            assert found["blocks"] == rows * cluster and found["threads"] == 256
            assert found["attributes"] == (cluster > 1), "A launch of one block has no cluster."
            assert cluster in (1, 2, 4, 8) + ((16,) if CARDS[card][0] in (9, 10) else ())
            assert_launched(case, found, cluster, cluster)
        if found["design"] == "ring":
            assert found["blocks"] % found["team"] == 0 and found["blocks"] <= CARDS[card][1]
            assert found["together"] == (found["team"] > 1)
            assert_launched(case, found, 1, found["team"])
    assert {(card, "staged") for card in CARDS if card != "a100"} <= seen
    assert {design for card, design in seen if card == "a100"} == {"vector", "online"}


@pytest.mark.parametrize("cluster", range(1, 17))
def test_every_cluster_takes_the_widest_row_that_it_holds(program, cluster):
    held = cluster * (224 * 1024 // 16)  # vectors
    for dtype, short in itertools.product(BYTES, (0, 1)):
        cols = (held - 8 * short) * 16 // BYTES[dtype]
        case = ("h200", dtype, 3, cols, cols + short, 4096, 4096, cluster)
        (found,) = launches(program, [case])
        assert found["blocks"] == 3 * cluster
        assert_launched(case, found, cluster, cluster)
        (refused,) = launches(
            program, [("h200", dtype, 3, cols + 1 + short * 128, cols + 200, 4096, 4096, cluster)]
        )
        assert refused["error"] != 0 and "blocks" not in refused


def test_what_cannot_be_asked_for_is_an_error(program):
    for card, cluster in (("h200", 17), ("h200", -2), ("a100", 1), ("rtx", 1)):
        (found,) = launches(program, [(card, FLOAT32, 3, 40000, 40000, 4096, 4096, max(cluster, 0) or 99)])
        assert found["error"] != 0 and "blocks" not in found
    rows = (1 << 31) // 16
    (found,) = launches(program, [("h200", FLOAT32, rows, 131072, 131072, 4096, 4096, 16)])
    assert found["error"] != 0 and "blocks" not in found, "More blocks than a grid has."


def test_the_widest_row_of_the_variant_fits_at_any_start(program):
    for dtype, start in itertools.product(BYTES, range(0, 128, 2)):
        if start % BYTES[dtype]:
            continue
        cols = (16 * 224 * 1024 - 256) // BYTES[dtype]
        case = ("h200", dtype, 5, cols, cols + 1, 4096, 4096 + start, 0)
        (found,) = launches(program, [case])
        assert_launched(case, found, 16, 16)


# Chosen where the times in NOTES.md were taken.
@pytest.mark.parametrize(
    "dtype, rows, cols, cluster",
    [
        (BFLOAT16, 8192, 32768, 2),
        (FLOAT32, 4096, 65536, 8),
        (BFLOAT16, 4096, 131072, 8),
        (FLOAT32, 4096, 131072, 16),
        (FLOAT32, 2047, 131073, 16),
        (FLOAT32, 1024, 262144, 16),
        (BFLOAT16, 512, 524288, 16),
        (BFLOAT16, 1, 32768, 8),
    ],
)
def test_clusters_of_an_h200(program, dtype, rows, cols, cluster):
    (found,) = launches(program, [("h200", dtype, rows, cols, cols, 4096, 4096, -1)])
    assert (found["design"], found["cluster"]) == ("staged", cluster)


def test_threads_do_not_lower_each_others_limit(program):
    done = subprocess.run([program, "20000"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def some_columns():
    any_of = random.Random(1)
    for card, dtype in itertools.product(CARDS, BYTES):
        for _ in range(400):
            vectors = any_of.choice([1, 2, 3, 4, 8, 9, 512, any_of.randint(1, 5000)])
            length = any_of.choice([1, 2, 1024, 4096, 4097, any_of.randint(1, 1 << any_of.randint(1, 20))])
            outer = any_of.choice([1, 3, 200, 70001 if vectors < 10 else 1])
            cluster = any_of.choice([0, 0, 1, 2, 3, 8, 16])
            columns = any_of.choice([0, 0, 16, 32, 64, 128, 256])
            yield card, dtype, outer, length, vectors * 16 // BYTES[dtype], cluster, columns


def test_every_tile_of_columns_can_be_launched(strided):
    cases, seen = list(some_columns()), set()
    for case, found in zip(cases, launches(strided, cases), strict=True):
        card, dtype, outer, length, inner, cluster, columns = case
        seen.add((card, found["fits"]))
        if not found["fits"]:
            assert found["error"] != 0 and "blocks" not in found
            rows = -(-length // (cluster or (16 if CARDS[card][0] in (9, 10) else 8)))
            too_long = rows * (columns or 16) > HELD[dtype]
            narrow = columns > inner * BYTES[dtype]  # what fits then is less than was asked for
            assert card == "a100" or too_long or narrow, case
            continue
        share, width = found["share"], found["columns"] * BYTES[dtype]
        assert found["error"] == 0 and found["blocks"] == outer * found["tiles"] * share, case
        assert share == (cluster or share) and width <= (columns or 256), case
        assert found["tiles"] * found["columns"] >= inner > (found["tiles"] - 1) * found["columns"], case
        assert -(-length // share) * width <= HELD[dtype] == found["threads"] * 256, case
        assert found["bytes"] + found["own"] <= 48 * 1024, "What a block has without asking for it."
        assert found["columns"] <= found["threads"], "A thread has a column."
        assert (found["cluster"], found["beyond"]) == (share, share > 8), case
        assert found["attributes"] == (share > 1), "A launch of one block has no cluster."
    (found,) = launches(strided, [("h200", BFLOAT16, 70001, 2, 19344, 16, 16)])
    assert found["error"] != 0 and "blocks" not in found, "More blocks than a grid has."
    assert {(card, 1) for card in CARDS if card != "a100"} <= seen and ("a100", 1) not in seen


@pytest.mark.parametrize(
    "dtype, length, columns, cluster",
    [(BFLOAT16, 1024, 64, 2), (BFLOAT16, 4096, 64, 8), (FLOAT32, 1024, 256, 4), (FLOAT32, 4096, 128, 8)],
)
def test_tiles_are_those_that_were_measured(strided, dtype, length, columns, cluster):
    inners = (64, 256, 1024, 4096)
    cases = [("h200", dtype, (1 << 28) // length // n, length, n, 0, 0) for n in inners]
    for found in launches(strided, cases):
        assert (found["share"], found["columns"] * BYTES[dtype]) == (cluster, columns)


def test_few_tiles_are_shared_by_more_blocks(strided):
    few, many = launches(strided, [("h200", BFLOAT16, n, 1024, 32, 0, 0) for n in (1, 200)])
    assert few["share"] == 8 and many["share"] == 2


def test_short_columns_fill_a_block(strided):
    (found,) = launches(strided, [("h200", BFLOAT16, 4096, 128, 1024, 0, 0)])
    assert (found["share"], found["columns"]) == (1, 128)
