"""Runs of tokens: where they begin, go on, are scored, and are mirrored."""

import json

import numpy as np

from tests.refusals.rows import Content, Refusal, rows_of


def manifest(path: str) -> str:
    """That of a mirror, with a file at this path."""
    entry = {"path": "config.toml", "size": 1, "sha256": "0" * 64}
    values = {"format": 1, "writer": "", "finished": False, "files": {path: entry}}
    return json.dumps(values)


def vectors(value: float) -> dict[str, np.ndarray]:
    """Of an .npz with the vector of `w1`."""
    tokens = {"tokens": np.frombuffer(b"w1", np.uint8), "token_ends": np.array([2])}
    return {"vectors": np.full((1, 4), value), **tokens}


MANIFESTS = ("{", "[]", '{"format": 2}', *map(manifest, (
    *("../../escaped", "/etc/passwd", ".lock", "checkpoints/../../x", "config.toml"),
    f"checkpoints/{'9' * 5000}/x",
)))  # fmt: skip
FILES: dict[str, Content] = {
    "others/photo.png": b"mine",
    "alone.txt": "a\nb\nc\n" * 20,
    "known.txt": "a b a\n" * 30,
    "odd.txt": "x y z\n" * 9,
    "texts/a.txt": "fine\n",
    "texts/b.txt": b"fine\n\xe4 not\n",
    "unknown.txt": ": s\nx y z w\n",
    "rates.toml": "alpha = [0.02, 0.05]",
    "frozen.toml": 'freeze = ["all", "known"]',
    "bad/config.toml": "",
    "bad/corpus.json": "{",
    "half/corpus.json": "{",
    "lost/corpus.json": '{"source": "/data/books.txt"}',
    "new/start.txt": "1 4\nw1 1 2 3 4\n",
    "pq.txt": "2 4\np 1 2 3 4\nq 1 2 3 4\n",
    "short.txt": "1 3\nw1 1 2 3\n",
    "nan.txt": "2 4\nw1 1 2 3 4\nw2 1 nan 3 4\n",
    "large.npz": vectors(1e300),
    "nobody.txt": "nobody\nno one\n",
    "empty.txt": "\n\n",
    "bytes.txt": b"w1\n\xff\n",
    **{f"mirror{i}/mirror.json": text for i, text in enumerate(MANIFESTS)},
}
WORDS = {
    "FAST": "--loader memory --vector-size 4 --min-count 1",
    "SAME": "FAST --epochs 1 --no-report --workdir",
    "NEW": "train text.txt FAST --workdir next",
    "HELD": "NEW --holdout 0.1 --best-by",
}
"""What words of capitals stand for in commands; WORDS may stand in others."""
TEXT = r"""
[B39]
NEW --result best
    `result` best needs `holdout` or `best_by`, got 'best'.
NEW --best-by nothing.tsv
    …/nothing.tsv: No such file or directory.
NEW --patience 3
    `patience` needs `holdout` or `best_by`, got 3.
NEW --eval-every 100
    `eval_every` needs `holdout` or `best_by`, by which vectors are scored, got '100'.
NEW --best-by held-out
    `best_by` held-out needs `holdout`, such as 0.01, got 0.0.
HELD held-out --patience 3 --eval-every never
    `patience` counts evaluations, got 3 with `eval_every` = 'never'.
HELD held-out --eval-every often
    `eval_every` must be a number of updates, a time as 30s, 10min or 2h, a number of
    passes as 1epoch, or never, got 'often'.
HELD held-out --holdout 1e-9
    `holdout` = 1e-09 holds out none of the 292 sequences of the corpus: give a larger
    share, or a corpus of more lines.
train known.txt FAST --workdir next --holdout 0.1 --best-by next-item
    `holdout` 0.1 holds out no sequence whose last item is new in it, which the score
    next-item needs: give a larger share.
sweep rates.toml text.txt FAST --holdout 0.1 --best-by held-out --eval-every 9
    `eval_every` applies only to train, got '9': a sweep scores trials after their last
    epoch, and ends some early by --halving.
NEW --best-by unknown.txt
    …/unknown.txt must have a question of four words in the vocabulary, got none of 1.
[B38]
train alone.txt FAST --workdir next --holdout 0.1 --best-by held-out
    `holdout` 0.1 holds out no sequence of two tokens or more, which the score held-out
    needs: give a larger share.
[F12]
train text.txt SAME text.txt
    `workdir` must be a folder, got the file text.txt.
train text.txt SAME others
    `workdir` must be a run, or empty, or new: others holds other files.
[B16]
train text.txt SAME run --window 3 --seed 9
    run holds a run with other settings: `seed` 1 there, 9 now, `window` 5 there, 3 now.
    Give another --workdir, or --overwrite to start anew.
train more.txt SAME run
    run holds a run with another corpus (text.txt there, more.txt now). Give another
    --workdir, --force if its content is the same, or --overwrite to start anew.
[B43]
train text.txt SAME run --epochs 0
    run holds a run with other settings: `epochs` 1 there, 0 now. It was trained for 1
    epochs: give more to train on. Give another --workdir, or --overwrite to start anew.
train text.txt SAME run --epochs 4 --step 7
    `step` must be of a run that resumes, got 7: run/longer holds no run.
train text.txt SAME run --epochs 4 --mirror mirror
    `mirror` does not go with more epochs of the finished run run: train without it, and
    then give the same command with a new mirror.
train text.txt SAME replicas --replicas 2 --epochs 4
    replicas has no checkpoint of its end, with which replicas and encoders go on
    (--save-every 1epoch saves it): give --overwrite to train all epochs anew.
[F37]
train text.txt SAME replicas --replicas 3
    replicas holds a run with other settings: `replicas` 2 there, 3 now. Give another
    --workdir, or --overwrite to start anew.
[F14]
NEW --step 7
    `step` must be of a run that resumes, got 7: next holds no run.
[]
train --workdir bad
    bad/corpus.json is damaged (Expecting property name enclosed in double quotes: line
    1 column 2 (char 1)): give another --workdir, or the corpus and --overwrite to start
    anew.
train --workdir half FAST
    half/corpus.json is damaged (Expecting property name enclosed in double quotes: line
    1 column 2 (char 1)): give another --workdir, or the corpus and --overwrite to start
    anew.
train --workdir lost FAST
    lost has no config.toml, which a run on /data/books.txt has lost: give the corpus to
    start anew, or another --workdir.
train --workdir run --grow
    run was started without --grow: give --resume too.
train more.txt --workdir next --resume old --vector-size 5
    `vector_size` must be that of the run to start from, 4, got 5.
train examples.npz --workdir next --resume old --model encoder
    `resume` applies only to `model` = 'tokens', got 'encoder' and old.
train text.txt --workdir old --resume old --overwrite
    `workdir` must be another folder than that of the run to resume, old: give --workdir
    NEW.
train odd.txt --workdir next --resume old
    Nothing in odd.txt is in the vocabulary of `resume`: give --grow.
NEW --grow
    `grow` needs `resume`, the run whose vectors are the start.
NEW --resume nowhere
    `resume` must be a run of tables, or a model file: nowhere does not exist.
[B36]
NEW --resume start.txt
    `resume` must be a run of tables, or a model file, got start.txt: if it has vectors,
    give --init-from start.txt to start from them.
NEW --init-from missing.txt
    `init_from` must be a file of vectors, a model file or a run of tables:
    …/missing.txt does not exist.
train text.txt FAST --workdir new --init-from new/start.txt
    `workdir` must be another folder than that of `init_from` …/new/start.txt: give
    --workdir NEW.
NEW --init-from start.txt --resume old
    `init_from` and `resume` both name vectors to start from: give one of them.
NEW --init-from pq.txt
    `init_from` …/pq.txt has no token of the corpus: its first keys are 'p', 'q', those
    of the corpus 'w0', 'w1', 'w2'.
NEW --init-from short.txt
    `init_from` …/short.txt has vectors of 3 numbers, and `vector_size` is 4: set it to
    3.
NEW --init-from nan.txt
    …/nan.txt line 3: column 3 must be a finite number, got 'nan'.
NEW --init-from large.npz
    `init_from` …/large.npz has a value that float32 cannot hold, 1e+300: give --dtype
    float64.
NEW --freeze known
    `freeze` known needs vectors to start from: give --init-from or --resume.
NEW --freeze missing.txt
    `freeze` must be all, known, or a file with a key a line, got '…/missing.txt', which
    does not exist.
NEW --freeze /dev/null
    `freeze` must be all, known, or a file with a key a line, got '/dev/null', which is
    no file on disk.
NEW --best-by /dev/null
    `best_by` must be a file on disk, got /dev/null: it is read more than once.
NEW --freeze nobody.txt
    `freeze` …/nobody.txt has no token of the vocabulary: its first keys are 'nobody',
    'no one'.
NEW --freeze empty.txt
    `freeze` …/empty.txt has no key.
NEW --freeze bytes.txt
    `freeze` …/bytes.txt is not UTF-8 text: byte 0xff in line 2.
convert start.txt next
    SOURCE must be a run, or a file of EmbeddingTrainer.save, got start.txt: if it has
    vectors, `embedder train --init-from start.txt` starts from them.
sweep frozen.toml text.txt
    SPACE frozen.toml: `freeze` cannot be tried: all trials have the same frozen rows.
[B25]
NEW --replicas 1000000000000000000000000000000
    `replicas` must be an integer from 1 to 65536, got 1000000000000000000000000000000.
[F40]
NEW --replicas 1024 --vector-size 1280000
    Tables of 60 x 1280000 of 1024 replicas need 9258.1 GiB on each device with
    `table_sharding` = 'replicated', and it has … GiB of …: no layout fits
    on the devices here: give fewer `replicas`, a smaller `vector_size`, a larger
    `min_count`, or more devices.
[F19]
NEW --vector-size 1000000000
    Tables of 60 x 1000000000 need 7063.2 GiB on each device with `table_sharding` =
    'replicated', and it has … GiB of …: no layout fits on the devices
    here: give a smaller `vector_size`, a larger `min_count`, or more devices.
[B34]
NEW --mirror https://example.org/run?sig=hunter2
    `mirror` must be a folder, or a URL that can be written, such as s3://bucket/run,
    got 'https://example.org/run?***'.
NEW --mirror 's3://bucket/*'
    `mirror` must be without *, ? and [, got s3://bucket/*.
NEW --mirror nope://bucket/run
    nope://bucket/run cannot be accessed: …
NEW --mirror zip://a::s3://b/c
    zip://a::s3://b/c: URLs within URLs (::) are not read: unpack the archive.
NEW --mirror next/mirror
    `mirror` must be outside of the workdir next, got next/mirror.
NEW --mirror .
    `mirror` must be outside of the workdir next, got ..
NEW --mirror text.txt
    `mirror` must be a folder, got the file text.txt.
NEW --mirror others
    `mirror` must be the mirror of a run, or empty, or new: others holds other files.
parity --mirror mirror
    Unknown option `--mirror`…
[B24]
train - --dry-run
    `dry_run` would read standard input, which can be read only once: write it to a
    file, or leave --dry-run out.
sweep rates.toml - FAST
    Corpus - must be a file on disk, not a stream: it is read more than once. Write the
    text to a file.
[B40]
verify s3://key:hunter2@data/run
    `RUN` s3://***@data/run is a URL, where a path on this machine is needed: copy it
    first, or a run by --mirror.
neighbors '' a
    `RUN` must be a path or a URL, got ''.
[]
convert run/model.npz others
    TARGET must be a run, or empty, or new: others holds other files.
convert run others
    TARGET must be a model file, got the folder others.
parity --corpus text.txt --seeds 1 x
    `--seeds` must be numbers, got '1', 'x'.
parity --corpus text.txt --stages loses
    Unknown stage `loses`, did you mean `loss`? The stages are: vocabulary,
    distributions, blocks, loss, row gradients, one update, 100 updates, whole epoch,
    replicas, bootstrap, row factors, model update, resume, converters, neighbours,
    workers.
parity --corpus text.txt --sample 1e-30 --stages loss
    `sample` = 1e-30 leaves no token to train.
parity --corpus text.txt --pairs no.tsv
    File no.tsv does not exist.
parity --corpus texts
    texts/b.txt is not UTF-8 text: line 2 has b'\xe4'.
train examples.npz --model encoder --optimizer rprop --schedule cosine
    `optimizer` 'rprop' takes no schedule of its rate: give `rate_schedule` constant.
parity text.txt
    Give the corpus as --corpus text.txt.
"""


ROWS = rows_of(TEXT, WORDS, FILES)
ROWS += [
    Refusal(
        f"train text.txt --workdir next --mirror mirror{i}",
        f"mirror{i}/mirror.json is damaged…",
        FILES,
        rows=("B34",),
    )
    for i in range(len(MANIFESTS))
]
