"""Import, compilation and fit time of a script that imports `legacy`, or the port.

The corpus is the demo corpus, settings are the defaults, each sample is a new process,
and the programs take turns. "first" starts with an empty compilation cache, "later"
with the cache that "first" wrote.
"""

import statistics
import tempfile
from pathlib import Path

from bench.processes import run_python
from bench.results import Results, Table, grouped, write_results

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


def run(samples: int = 5, programs: tuple[str, ...] = tuple(PROGRAMS)) -> Table:
    """Start-up and fit time of a script that uses the port instead of `legacy`.

    Args:
      samples: number of processes for each program.
      programs: which to run; default: all.
    """
    from embedder.data.corpus import demo_sequences

    measured = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "demo.txt")
        corpus.write_text("\n".join(map(" ".join, demo_sequences())), encoding="utf-8")
        for number in range(samples):
            cache = Path(folder, f"cache-{number}")  # empty for "first"
            for program in programs:
                script = _SCRIPT.format(imports=PROGRAMS[program])
                environment = {"XDG_CACHE_HOME": str(cache)}
                sample = run_python("-c", script, str(corpus), environment=environment)
                measured.append({"program": program, **sample})
    return table(write_results("dropin", samples=measured))


def table(results: Results) -> Table:
    """Medians, a row for each program."""
    rows = []
    for program, of_program in grouped(results["samples"], "program").items():
        cells = [
            f"{statistics.median(s[name] for s in of_program):.2f}"
            for name in ("import", "fit", "compile")
        ]
        total = statistics.median(s["import"] + s["fit"] for s in of_program)
        rows.append([program, *cells, f"{total:.2f}"])
    return Table(
        ["program", "import s", "fit s", "compile s, part of fit", "import and fit s"],
        rows,
    )


BENCHES = {"dropin": run}
TABLES = {"dropin": table}
