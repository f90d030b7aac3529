"""Every row of the matrix of faults and bad inputs is a test, or says why not.

A test names its rows by `@pytest.mark.row`; `python -m pytest --collect-only -m row`
lists them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAULTS = {
    "F1": "kill -9 at a random step, in each mode",
    "F2": "kill -9 within a save, or in the window of its renaming",
    "F3": "kill -9 between two parts of what is saved",
    "F4": "SIGTERM, and a second one",
    "F5": "SIGTERM to one of two processes",
    "F6": "SIGINT within compiling or loading",
    "F7": "another process of the run is killed",
    "F8": "another process of the run hangs",
    "F9": "wrong address, taken port, an id given twice",
    "F10": "processes that see different files",
    "F11": "a full disk, a quota",
    "F12": "no folder to write checkpoints to",
    "F13": "a flipped bit in a checkpoint",
    "F14": "a missing or short file of a checkpoint",
    "F15": "a checkpoint of other sizes or settings",
    "F16": "going on with another mode or number of devices",
    "F17": "parameters that are not finite",
    "F18": "a leap of the loss, gradients of zero, a loader that stalls",
    "F19": "more memory than there is",
    "F20": "a disk slower than the interval of saving",
    "F21": "two runs in one folder",
    "F22": "buffers that were donated",
    "F23": "several devices compute what one does",
    "F24": "an error within a loader's thread",
    "F25": "versions of JAX that are slow on a GPU",
    "F26": "the log or standard output fails: full disk, closed, no reader",
    "F27": "SIGHUP: the terminal is closed",
    "F28": "a cache of compiled programs that is damaged, full or read-only",
    "F29": "kill -9 in a container that starts again under another hostname",
    "F30": "kill -9 while encoding into a shared cache",
    "F31": "fork after training, then training in the child",
    "F32": "another busy process on a core of the kernel",
    "F33": "a memory limit of a container, or of the address space",
    "F34": "concurrent calls on one trainer",
    "F35": "a pickled subclass of a trainer",
    "F36": "kill -9 of a run with replicas, in each mode",
    "F37": "SIGTERM of a run with replicas; other replicas or devices when it resumes",
    "F38": "one replica of several diverges",
    "F39": "a damaged file of replicas: flipped, cut short, claims of other sizes",
    "F40": "more replicas than memory holds",
    "F41": "a server that answers 503, cuts a connection, is slow, or is away",
    "F42": "kill -9 while remote data are copied",
    "F44": "SIGTERM of an update that replays earlier corpora",
    "F43": "a mirror that fails, is cut, damaged or of another run; a lost folder",
    "F46": "kill -9 of a finished run while it gets longer",
    "F45": "kill -9 during an evaluation while training, and between two",
    "F48": "kill -9 while a folder, or an index with its keys, is exported",
    "F49": "a full disk while a folder, or an index with its keys, is exported",
    "F53": "kill -9 of a run within the report that it ends with",
    "F54": "a full disk for a report, a report that fails",
    "F47": "networks with state and random numbers: several devices, kill -9, replicas",
    "F50": "an index that is damaged: flipped, cut, missing parts, of another folder",
    "F51": "kill -9 while an index or a batch of neighbours is written",
    "F52": "an index of other vectors than those that are searched",
    "F58": "kill -9 of a run with hierarchical softmax",
    "F59": "a model file of hierarchical softmax with the tables of another objective",
}
INPUTS = {
    "B1": "missing, empty, a folder for a file",
    "B2": "a .gz cut short",
    "B4": "bytes that are not UTF-8, NUL, CRLF, byte order marks",
    "B5": "a line or a sentence without an end",
    "B6": "ids and numbers out of range",
    "B7": "nothing left to learn from",
    "B8": "settings out of bounds",
    "B9": "batches that devices do not divide",
    "B10": "counts all equal, or one word nearly all",
    "B11": "arrays with objects, bombs, other orders and dtypes",
    "B12": "model files whose parts do not fit, odd words",
    "B13": "text vectors with faulty lines",
    "B14": "settings that nobody knows",
    "B15": "odd paths",
    "B16": "a corpus that changed between save and resume",
    "B17": "a file whose content is another format than its name says",
    "B18": "names that are not UTF-8",
    "B19": "a corpus that grows or changes while it is read",
    "B20": "tables and edge lists given as text",
    "B21": "metadata that claim little where the data are large",
    "B22": "a target or an input that is part of the run itself",
    "B23": "a token of megabytes",
    "B24": "a corpus that is no regular file: a pipe, standard input",
    "B25": "a number of replicas out of bounds; flags of replicas without replicas",
    "B26": "tables of sessions whose columns are unclear, missing or of wrong types",
    "B27": "edge lists with wrong columns, weights <= 0 or not finite, no edge",
    "B28": "names of keys that are missing, unknown, or no table",
    "B29": "a URL that is wrong, denied, or of a file system that is not installed",
    "B30": "secrets in a URL: in messages, in files of a run",
    "B31": "whole sessions: windows of other words or types, blocks that are too long",
    "B32": "weights of sessions that are no numbers, out of bounds, or not of a table",
    "B33": "frames that are no table; columns and values of names that do not exist",
    "B35": "tables that are small files of large rows, or crash their reader",
    "B41": "a table that needs more memory than the training may have",
    "B36": "vectors to start from, and frozen keys, that are wrong, unknown or changed",
    "B37": "an update: earlier corpora that have gone or changed, wrong schedules",
    "B38": "held-out data without a case, of unknown keys, with wrong flags or labels",
    "B39": "evaluations and patience without a score, or with nothing held out",
    "B34": "a mirror that is wrong, denied, or no folder of a mirror",
    "B42": "phrases: options out of bounds, targets that exist or are the corpus",
    "B43": "a finished run that is given other epochs, and cannot go on",
    "B40": "a run at a URL to look up: unfinished, denied, changing, its server away",
    "B49": "examples of classes that an encoder does not know, or of one example each; "
    "labels and vectors of other examples",
    "B50": "a sheet of images: data that are changed, missing, no images; hostile keys",
    "B46": "an archive of images: cut, damaged, hostile names, sizes that are claimed",
    "B47": "augmentations that are unknown, out of bounds or larger than images",
    "B51": "arguments of networks, objectives and schedules: unknown, out of bounds",
    "B53": "a format of export that is unknown, or fits neither the ending nor the run",
    "B54": "values and dimensions of smaller vectors that are wrong or fit no format",
    "B55": "an export onto a folder or an index that exists, or without its library",
    "B56": "tokens that a tokenizer, a text format or a database cannot hold",
    "B57": "hostile tokens and names in a model card",
    "B63": "a report of what is no finished run, or of damaged vectors",
    "B64": "a report of a run whose metrics are missing, damaged or not finite",
    "B65": "names and labels of a report that are missing or unknown",
    "B66": "a report to a folder, to no HTML, to a file of a run; one that exists",
    "B52": "parts of a batch, and objectives, that do not fit each other",
    "B58": "a batch of queries: files that are missing, damaged, without a known key",
    "B59": "filters by counts that are out of bounds, leave nothing, or lack counts",
    "B60": "an index: options out of bounds, runs that have none",
    "B61": "lines to look up: unknown tokens, wrong sums and commands, no text",
    "B62": "spaces to compare that share no tokens; numbers out of bounds",
    "B81": "no negatives without hierarchical softmax",
    "B82": "a model of hierarchical softmax that is to grow, or of another objective",
    "B83": "items to rank by hierarchical softmax alone, which has no rows of items",
    "B84": "a trainer whose objective is changed, a sweep of several",
}
NOT_HERE = {"B3": "TFRecord files are not read: there is nothing to corrupt"}


def marked(tree: ast.AST) -> Iterator[str]:
    """The rows that the tests of a module name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row":
            yield from (argument.value for argument in node.args)


def test_every_row_has_a_test():
    paths = sorted(ROOT.rglob("test_*.py"))
    found = {row for path in paths for row in marked(ast.parse(path.read_text()))}
    assert found == {*FAULTS, *INPUTS}
    assert not found & {*NOT_HERE}
