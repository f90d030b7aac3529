"""Reports, sweeps and what is watched."""

from tests.refusals.rows import Content, Refusal, rows_of

FILES: dict[str, Content] = {
    "bare/vectors.safetensors": b"",
    "cut/config.toml": "",
    "cut/vectors.safetensors": b"cut",
    "names.csv": "key,name,kind\nw1,Fox,animal\n",
    "keys.csv": "key\n1\n",
    "folder.html/file": "",
    "space.toml": "window = [2]",
    "walks.toml": "walks = [2, 0]",
    "both.toml": "architecture = ['skipgram', 'cbow']",
    "range.toml": "alpha = { low = 0.01, high = 0.1 }",
    "unknown.tsv": "x\ty\t1\n",
    "others/notes.txt": "mine",
    "damaged/sweep.json": '{"a": 1}',
    "damaged/trials.jsonl": "",
    "grid.toml": f"window = {[*range(1, 102)]}\nnegative = {[*range(1, 102)]}",
}
WORDS = {
    "SWEEP": "sweep space.toml text.txt --min-count 1",
    "RANGE": "sweep range.toml text.txt --replicas 3",
}
TEXT = r"""
[B63]
report missing
    RUN missing does not exist.
report run/vectors.txt
    RUN must be the folder of a run, got run/vectors.txt.
report bare
    RUN must be the folder of a run, got bare.
report run --to x.html --compare bare
    `compare` must be the folder of a run, got bare.
report
    `RUN` must be the folder of a run, got none: `embedder report RUN`, or `embedder
    report --compare RUN RUN`.
report cut
    cut/vectors.safetensors is not a whole vectors file: …
[B65]
report run --label kind
    `label` needs `names`, got 'kind'.
report run --names names.csv --label sort
    `label` must be a column of names.csv, which has 'key', 'name', 'kind', got 'sort'.
report run --names nowhere.csv
    `names` nowhere.csv does not exist.
[B66]
report run --to folder.html
    `to` must be a file, got the folder folder.html.
report run --to report.txt
    `to` must end in .html or .htm, got report.txt.
report run --to none/x.html
    `to` none/x.html: folder none does not exist.
report run --to replicas/report.html
    `to` must not be a file of a run, got replicas/report.html in the run …/replicas:
    give another name.
[B67]
watch new
    RUN new does not exist.
watch run --every 0
    `every` must be > 0 and <= 86400 seconds, got 0.0.
watch run --every nan
    `every` must be > 0 and <= 86400 seconds, got nan.
watch https://x.org/run
    `RUN` https://x.org/run is a URL, where a path on this machine is needed: copy it
    first, or a run by --mirror.
watch text.txt
    RUN must be a folder, got the file text.txt.
watch others
    RUN must be a run, or empty, or new: others holds other files.
[B68]
watch run --probe w1 w1
    `probe` must have each word once, got w1 w1.
watch run --probe W1
    `probe` 'W1' is not in the vocabulary: did you mean 'w1'?
[B28]
watch run --names no.csv
    `names` no.csv does not exist.
watch run --names keys.csv
    `names` must be a table with the columns key and name, got keys.csv with ['key'].
train text.txt --workdir new --names no.csv
    `names` …no.csv does not exist.
train text.txt --workdir new --names keys.csv --dry-run
    `names` must be a table with the columns key and name, got …keys.csv with ['key'].
sweep space.toml text.txt --names names.csv
    `names` needs `best`, the run that keeps them, got …names.csv.
sweep space.toml text.txt --names no.csv --best new
    `names` …no.csv does not exist.
[B1]
sweep
    Missing from embedder sweep: SPACE
sweep missing.toml text.txt
    missing.toml: No such file or directory.
sweep space.toml missing.txt
    Corpus missing.txt does not exist.
sweep text.txt text.txt
    SPACE text.txt: …
SWEEP --workdir text.txt
    `workdir` must be a folder, got the file text.txt.
SWEEP --workdir others
    `workdir` must be a sweep, or empty, or new: others holds other files.
SWEEP --best text.txt
    `best` must be a folder, got the file text.txt.
SWEEP --best embedder-sweep
    `best` must be outside of the sweep in embedder-sweep, got embedder-sweep.
[B8 B14]
SWEEP --score val-loss
    `score` must be 'held-out' or 'next-item' or 'pairs' for texts, got 'val-loss'.
SWEEP --score pairs
    `score` pairs needs --pairs FILE, which applies only to it, got `score` 'pairs' and
    `pairs` None.
SWEEP --pairs p.tsv
    `score` pairs needs --pairs FILE, which applies only to it, got `score` 'held-out'
    and `pairs` 'p.tsv'.
SWEEP --walks 2 --score held-out
    `score` must be 'links' or 'pairs' for walks over a graph, got 'held-out'.
SWEEP --score links
    `score` must be 'held-out' or 'next-item' or 'pairs' for texts, got 'links'.
SWEEP --dry-run --score pairs --pairs unknown.tsv
    unknown.tsv must have 2 pairs or more with both words in the vocabulary, got 0 of 1.
SWEEP --dry-run --score next-item --hs --negative 0
    The score next-item needs output rows of items, which `hs` alone has not: give a
    `negative` above 0.
sweep walks.toml text.txt
    SPACE walks.toml: `walks` of all trials must be above 0 and --walks be given, or
    none: the data are opened once, got 2 with --walks 0.
sweep walks.toml edges.tsv --walks 4
    SPACE walks.toml: `walks` of all trials must be above 0 and --walks be given, or
    none: the data are opened once, got 0 with --walks 4.
sweep both.toml text.txt
    SPACE must not have `architecture` with `score` held-out: skip-gram and CBOW predict
    other things. Give --score next-item or pairs.
sweep grid.toml text.txt
    SPACE grid.toml has 10201 combinations, more than 10000: give ranges without
    `steps`, which are searched.
SWEEP --halving 1
    `halving` must be 0 or an integer >= 2, got 1.
SWEEP --halving 2 --first-epochs 9
    `first_epochs` must be from 1 to `epochs` 5, got 9.
SWEEP --trials 0
    `trials` must be an integer >= 1, got 0.
SWEEP --side-by-side 0
    `side_by_side` must be an integer >= 1, got 0.
SWEEP --holdout 1.5
    `holdout` must be a number in [0, 1), got 1.5.
RANGE --side-by-side 2
    `side_by_side` must hold the 3 `replicas` of a trial, got 2.
RANGE --side-by-side 3 --halving 2
    `side_by_side` must hold `halving` trials of a search, which are compared with each
    other, got 3 models of 3 replicas each with `halving` 2.
[F13]
SWEEP --workdir damaged
    damaged/sweep.json is damaged: give another --workdir, or --overwrite to start anew.
"""
SPACES = r"""
[B8 B14]
alhpa = [0.1]
    Unknown option `alhpa`, did you mean `alpha`?

    it names no setting to try.
alpha = 0.1
    `alpha` must be a list of values, or a range as { low = 1, high = 10, scale = "log"
    }, got 0.1.
alpha = [0.1, -1]
    `alpha` must be a finite number > 0, got -1.
window = {low = 1}
    the range of `window` must have low and high, and may have scale and steps, got low.
window = {low = 1, high = 500}
    `window` must be an integer from 1 to 127 or 'session', got 500.
window = {low = 1.5, high = 3}
    low and high of `window` must be integers, got 1.5 and 3.
alpha = {low = 'a', high = 3}
    low and high of `alpha` must be numbers, got 'a'.
alpha = {low = nan, high = 1.0}
    low of `alpha` must be less than high, got nan and 1.0.
alpha = {low = 0.1, high = 1, scale = 'ln'}
    scale of `alpha` must be 'lin' or 'log', got 'ln'.
sample = {low = 0, high = 1, scale = 'log'}
    low of `sample` must be > 0 with 'log', got 0.
alpha = {low = 0.1, high = 1, steps = 1}
    steps of `alpha` must be an integer >= 2, got 1.
cap = [1]; max_pairs_per_row = [2]
    `max_pairs_per_row` is given twice.
learning_rate = [0.1]
    `learning_rate` applies only to `model` = 'encoder', got it with 'tokens'.
momentum = [0.1]
    Unknown option `momentum`.
replicas = [2]
    `replicas` cannot be tried: give it as a flag: the score is the mean of a trial's
    replicas.
init_network = ['run']
    `init_network` cannot be tried: all trials start from the same network.
unicode_errors = ['replace']
    `unicode_errors` cannot be tried: the data are opened once for all trials.
best_by = ['a.tsv']
    `best_by` cannot be tried: give the set as --score pairs --pairs FILE.
min_count = [2]
    `min_count` cannot be tried: trials are compared with the same vocabulary.
epochs = [2]
    `epochs` cannot be tried: trials are compared after the same epochs.
threads = [1]
    `threads` cannot be tried: it does not change the vectors.
"""
ROWS = [
    *rows_of(TEXT, WORDS, FILES),
    *(
        Refusal(
            "sweep space.toml text.txt",
            f"SPACE space.toml: {row.message}",
            {"space.toml": row.call.replace("; ", "\n")},
            rows=row.rows,
        )
        for row in rows_of(SPACES, {}, {})
    ),
]
