"""What a sweep costs beyond its measurements: 100 tiny jobs against a bare Hydra app with the same schema.

    python tests/benchmarks/multirun.py [--jobs 100] [--repeats 3]

Both compose the same configuration with the same overrides; the bare app's job does nothing, ours plans,
builds, checks and records one variant of a 4-element op. Whole processes, wall seconds, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BARE = f"""
import hydra
import runner.config.compose  # stores the schema
@hydra.main(version_base="1.3", config_path="{ROOT / "conf"}", config_name="config")
def main(config):
    pass
main()
"""


def seconds(command: list[str], folder: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    rows = "shape.rows=" + ",".join(map(str, range(1, asked.jobs + 1)))
    words = ["-m", "op=add", "variant=builtin", "mode=check", "device=cpu", "shape.cols=4", rows]
    times: dict[str, list[float]] = {"bare": [], "runner": []}
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        for _ in range(asked.repeats):
            output = f"output={folder}"
            # The runner's own hook would compose for the bare app too.
            plain = [*words, output, "~hydra.callbacks.runner"]
            times["bare"].append(seconds([sys.executable, str(bare), *plain], folder))
            times["runner"].append(seconds([sys.executable, "-m", "runner", *words, output], folder))
    for name, taken in times.items():
        print(f"{name:7} {statistics.median(taken):6.2f} s  ({', '.join(f'{t:.2f}' for t in taken)})")
    print(f"ratio   {statistics.median(a / b for a, b in zip(times['runner'], times['bare'])):6.2f}")


if __name__ == "__main__":
    main()
