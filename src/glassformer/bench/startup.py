"""How long a person waits: for `import glassformer`, and for the first line of a sheet.

    python -m glassformer.bench.startup [--repeats 5]

Leaves with status 1 where an import takes 0.3 s or a first line 3 s (medians).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

SENTENCE = "고양이가 생선을 먹었다"
MOST_IMPORT_S, MOST_SHEET_S = 0.3, 3.0


def import_s() -> float:
    """Seconds that the import itself takes in a fresh interpreter, without the interpreter's own start."""
    code = "import time; t = time.perf_counter(); import glassformer; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def sheet_s() -> float:
    """Seconds from the start of `glassformer trace` to its first printed line."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "glassformer", "trace", SENTENCE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline()
        waited = time.perf_counter() - started
        process.stdout.read()
    if process.returncode or not line:
        raise RuntimeError(f"glassformer trace left with status {process.returncode}")
    return waited


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where either is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args(arguments).repeats
    sheet_s()  # the first start reads everything from disk
    imports, sheets = (statistics.median(work() for _ in range(repeats)) for work in (import_s, sheet_s))
    print(f"import glassformer {imports:.3f} s, first line of a sheet {sheets:.2f} s (medians of {repeats})")
    return int(imports >= MOST_IMPORT_S or sheets >= MOST_SHEET_S)


if __name__ == "__main__":
    sys.exit(main())
