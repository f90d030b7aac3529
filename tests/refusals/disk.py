"""URLs, callbacks, and settings of a finished run that are refused."""

from embedder import EmbeddingTrainer, every
from tests.refusals.rows import calls_of, rows_of

COMMANDS = r"""
[B29]
train nosuch://a/b.txt --workdir next
    nosuch://a/b.txt cannot be read: Protocol not known: nosuch.
train memory://nothing --workdir next
    memory://nothing does not exist.
train 'memory://nothing/*.txt' --workdir next
    memory://nothing/*.txt matches no file.
train zip://a.txt::http://x/a.zip --workdir next
    zip://a.txt::http://x/a.zip: URLs within URLs (::) are not read: unpack the archive.
train https://***@host/a --workdir next
    https://***@host/a had credentials or a query, which are not stored: give the whole
    URL again.
[B16]
train examples.npz --model encoder --workdir encoder --batch-size 9 --layers 6 9 3
    encoder holds a run with other settings: `layers` (6, 4, 3) there, (6, 9, 3) now,
    `batch_size` 32 there, 9 now. Give another --workdir, or --overwrite to start anew.
"""
CALLS = r"""
[B45]
EmbeddingTrainer().fit([], callbacks=3)
    InputTypeError: `callbacks` must be functions of one argument, or `every(N,
    function)`, got 3.
EmbeddingTrainer().fit([], callbacks=[print, "x"])
    InputTypeError: `callbacks` must be functions of one argument, or `every(N,
    function)`, got 'x'.
EmbeddingTrainer().fit([], verbose="yes")
    InputTypeError: `verbose` must be True, False or None, got 'yes'.
every(3, None)
    InputTypeError: `callbacks` must be functions of one argument, or `every(N,
    function)`, got None.
every(0, print)
    `updates` must be at least 1, got 0.
every(True, print)
    InputTypeError: `updates` must be an integer, got True.
"""
ROWS = rows_of(COMMANDS, {}, {})
ROWS += calls_of(CALLS, {"EmbeddingTrainer": EmbeddingTrainer, "every": every}, {})
