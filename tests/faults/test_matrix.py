"""Every row of the matrix of faults and bad inputs has a test.

A test, or a row of bad input in tests/refusals, names the rows that it covers by
`@pytest.mark.row`; `python -m pytest --collect-only -m row` lists them.
"""

import re
from pathlib import Path

from tests.contract.test_features import cells
from tests.refusals.test_refusals import cells as refusals

ROOT = Path(__file__).parents[1]
OF_CONTRACT = {
    **{"F1": "killed-skip-gram", "F3": "killed-mlp", "F23": "devices-skip-gram"},
    **{"F36": "killed-replicas", "F44": "killed-replay", "F60": "killed-subwords"},
    **{"F45": "killed-the best by held-out items", "F47": "killed-vision transformer"},
    **{"F58": "killed-hierarchical softmax", "F63": "killed-attributes"},
}
"""Rows that hold for each feature of tests/contract, with one of the cells."""
ROWS = """
F1 kill -9 at a random step; F2 within a save or its renaming; F3 between two parts of
it. F4 SIGTERM, and a second one; F5 to one of two processes. F6 SIGINT within compiling
or loading. Another process: F7 is killed, F8 hangs. F9 wrong address, taken port, an id
given twice. F10 processes that see different files. F11 a full disk, a quota. F12 no
folder for checkpoints. A checkpoint: F13 flipped, F14 missing or short, F15 of other
settings. F16 another mode or number of devices. F17 parameters that are not finite. F18
a leap of the loss, no gradients, a stall. F19 more memory than there is. F20 a slow
disk. F21 two runs in one folder. F22 donated buffers. F23 devices compute what one
does. F24 an error in a loader's thread. F25 versions of JAX that are slow on a GPU. F26
a log that fails. F27 SIGHUP. F28 a faulty cache of compiled programs. F29 kill -9 of a
container that gets another hostname. F30 kill -9 while encoding into a shared cache.
F31 fork after training. F32 a busy core. F33 memory limits of containers. F34
concurrent calls. F35 a pickled subclass. Replicas: F36 kill -9, F37 SIGTERM and other
numbers, F38 one diverges, F39 a damaged file, F40 more than memory holds. F41 a server
with faults. F42 kill -9 while copying. F43 a mirror that fails, or is damaged; a lost
folder. F44 kill -9 of a replay; F45 at evaluations; F46 while a run gets longer. F47
networks with state. Exports of several files: F48 kill -9, F49 a full disk. An index:
F50 damaged, F51 kill -9, F52 of other vectors. A report: F53 kill -9, F54 fails. What
is watched: F55 its checkpoint goes, F56 it is killed. F57 kill -9, a full disk, while
points are written. Hierarchical softmax: F58 kill -9, F59 other tables. Subwords: F60
kill -9, F61 rows that do not fit, F62 a faulty .bin of fastText. Attributes: F63 kill
-9, F64 a damaged file.

B1 missing, empty, a folder. B2 a .gz cut short. B4 no UTF-8, NUL, CRLF. B5 lines
without an end. B6 numbers out of range. B7 nothing to learn from. B8 settings out of
bounds. B9 batches that devices do not divide. B10 counts all equal. B11 hostile arrays.
B12 model files, B13 text vectors with faulty parts. B14 unknown settings. B15 odd
paths. B16 a corpus that changed. B17 content of another format. B18 names that are not
UTF-8. B19 a corpus that changes while it is read. B20 tables given as text. B21 false
claims of sizes. B22 a file of the run itself. B23 a token of megabytes. B24 pipes. B25
numbers of replicas. B26 columns of sessions. B27 edge lists. B28 names of keys. B29 a
wrong URL, B30 secrets in it. B31 whole sessions. B32 weights of sessions. B33 frames
that are no table. B34 a wrong mirror. B35 tables of large rows. B36 vectors to start
from, frozen keys. B37 an update. B38 held-out data without a case. B39 evaluations
without a score. B40 a run at a URL. B41 a table larger than memory. B42 phrases. B43
more epochs. B45 callbacks. B46 archives of images. B47 augmentations. B48 images
decoded each time. B49 examples of unknown classes. B50 a sheet of images. B51 arguments
of networks, B52 that do not fit each other. Exports: B53 formats, B54 smaller vectors,
B55 targets that exist, B56 tokens, B57 a hostile model card. B58 a batch of queries.
B59 filters by counts. B60 options of an index. B61 lines to look up. B62 spaces without
shared tokens. Reports: B63 of no run, B64 of damaged metrics, B65 labels, B66 targets.
Watching: B67 no run, B68 probe words, B69 damaged lines, B70 hostile tokens.
TensorBoard: B71 hostile tokens, B72 thumbnails. embedder.gensim: B73 tables of other
shapes, B74 a damaged file, B75 pickles, B76 word2vec files, B77 a corpus, B78 scores,
B79 programs, B90 numbers. Hierarchical softmax: B81 no negatives, B82 that grows, B83
items to rank, B84 another objective. Subwords: B85 bounds, B86 other settings, B87 that
grow, B88 unknown words. B89 images of another shape. B91 damaged scores. B92 a package
of an extra, B93 TensorFlow is missing. B94 what comes next, B95 its damaged files.
Attributes: B96 columns and keys, B97 other settings, B98 runs without.
"""


def test_every_row_has_a_test():
    """B3, a damaged TFRecord, needs none: they are not read."""
    marks = re.compile(r"mark\.row\(([^)]*)\)")
    texts = [path.read_text() for path in ROOT.rglob("test_*.py")]
    named = [name for text in texts for name in marks.findall(text)]
    found = {row for each in named for row in re.findall('"([FB][0-9]+)"', each)}
    for cell in refusals():
        found |= {row for mark in cell.marks if mark.name == "row" for row in mark.args}
    contract = {cell.id for cell in cells()}
    assert {*OF_CONTRACT.values()} <= contract
    rows = re.findall(r"\b[FB][0-9]+\b", ROWS)
    assert len(rows) == len({*rows})
    assert found | {*OF_CONTRACT} == {*rows}
