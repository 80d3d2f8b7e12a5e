"""How long a model takes to load beside the mere reading of its file, both from the page cache, one after the other.

python -m glassformer.bench.loading [NAME OR FOLDER]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ..catalogue import folder_of
from ..checkpoint import load_model
from ..data.tokenizer import Tokenizer

TIMES = 7


def measured(folder: Path, times: int = TIMES) -> dict[str, float]:
    """Medians in seconds: `read_s` of reading model.safetensors into memory, `load_s` of loading model and tokenizer,
    and their `ratio`; `bytes` of the file. The two take turns, so that what else the machine does meets both."""
    file = folder / "model.safetensors"
    read, loaded = [], []
    for _ in range(times + 1):
        read.append(_seconds(file.read_bytes))
        loaded.append(_seconds(lambda: (load_model(folder), Tokenizer.load(folder / "tokenizer.json"))))
    read_s, load_s = (statistics.median(one[1:]) for one in (read, loaded))  # the first of each warms up
    return {"read_s": read_s, "load_s": load_s, "ratio": load_s / read_s, "bytes": file.stat().st_size}


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    made = run()
    end = time.perf_counter()
    del made
    return end - start


if __name__ == "__main__":
    given = Path(sys.argv[1])
    for name, value in measured(given if given.is_dir() else folder_of(sys.argv[1])).items():
        print(f"{name}: {value:,.4g}")
