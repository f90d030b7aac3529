"""What a script that imports `legacy` pays for the port: import, compilation, a fit.

The corpus is the demo corpus, the settings are the defaults, and each sample is a new
process. The programs take turns. "first" finds no compiled program on disk, "later"
the one that "first" left.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.results import Table, write_results
from bench.systems import machine

PROGRAMS = {
    "legacy": "import legacy",
    "drop-in, first": "import migration.dropin, legacy",
    "drop-in, later": "import migration.dropin, legacy",
}
_SCRIPT = """
import json, logging, sys, time
class Listener(logging.Handler):
    seconds = 0.0
    def emit(self, record):
        if "to compile" in record.msg:
            Listener.seconds = record.args[0]
logger = logging.getLogger("embedder.engine.epochs")
logger.addHandler(Listener())
logger.setLevel(logging.DEBUG)
start = time.perf_counter()
{imports}
trainer = legacy.EmbeddingTrainer()
imported = time.perf_counter()
trainer.fit(sys.argv[1])
done = time.perf_counter()
print(json.dumps({{"import": imported - start, "fit": done - imported,
                   "compile": Listener.seconds, "loss": trainer.loss_history[-1]}}))
"""


def run(samples: int, programs: list[str]) -> Table:
    """Runs each of `programs` `samples` times."""
    from embedder.tables.demo import demo_sequences

    measured = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "demo.txt")
        corpus.write_text("\n".join(map(" ".join, demo_sequences())), encoding="utf-8")
        for number in range(samples):
            cache = Path(folder, f"cache-{number}")  # anew for "first"
            for program in programs:
                sample = _sample(PROGRAMS[program], corpus, cache)
                measured.append({"program": program, **sample})
    write_results("dropin", machine=machine(), samples=measured)
    return _table(programs, measured)


def _sample(imports: str, corpus: Path, cache: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(imports=imports), str(corpus)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _table(programs: list[str], measured: list[dict[str, Any]]) -> Table:
    rows = []
    for program in programs:
        of_program = [s for s in measured if s["program"] == program]
        cells = [
            f"{statistics.median(s[name] for s in of_program):.2f}"
            for name in ("import", "fit", "compile")
        ]
        total = statistics.median(s["import"] + s["fit"] for s in of_program)
        rows.append([program, *cells, f"{total:.2f}"])
    return Table(
        ["program", "import s", "fit s", "of it compiling s", "import and fit s"], rows
    )
