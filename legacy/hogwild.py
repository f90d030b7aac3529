"""Runs a function in several processes over arrays in shared memory, without locks.

What one process writes to the tables another may overwrite: Hogwild, Niu et al. 2011,
arXiv:1106.5730. Rows are many and steps small, so little is lost; but the result cannot
be reproduced.

Processes are spawned: a fork after BLAS has started its threads can hang.
"""

import contextlib
import math
import multiprocessing
import os
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np

_ALIGNMENT = 64  # bytes: a cache line
_SHARED_FOLDER = "/dev/shm"  # where Linux keeps shared memory
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SECONDS_TO_END = 10.0


class _Place(NamedTuple):
    """Where an array lies in the shared memory."""

    offset: int  # bytes
    shape: tuple[int, ...]
    dtype: str


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


def run_workers(
    work: Callable[..., Any],
    state: Sequence[np.ndarray],
    arrays: Sequence[np.ndarray],
    plan: Any,
    num_workers: int,
) -> list[Any]:
    """What `work(state, arrays, plan, worker, num_workers)` returns in each process.

    All processes write to the same arrays of `state`, which are copied back when all
    are done, and left alone after an error. The other arrays are to be read only.
    `work` has to be a function of a module, and `plan` to pickle.

    Raises:
        RuntimeError: a worker raised an exception, or died.
        MemoryError: there is too little shared memory.
    """
    places = _places([*state, *arrays])
    shared, workers = None, []
    try:
        with _uninterrupted():
            shared = SharedMemory(create=True, size=_room(places))
            _copy_in([*state, *arrays], shared, places)
            split = places[: len(state)], places[len(state) :]
            for number in range(num_workers):
                arguments = work, shared.name, split, plan, number, num_workers
                workers.append(_start(arguments))
        results = _collect(workers)
        with _uninterrupted():
            for array, place in zip(state, places, strict=False):
                array[...] = _copy_of(shared, place)
        return results
    finally:
        with _uninterrupted():
            for worker in workers:
                _end(worker)
            if shared is not None:
                shared.close()
                shared.unlink()


def _places(arrays: Sequence[np.ndarray]) -> list[_Place]:
    places, offset = [], 0
    for array in arrays:
        places.append(_Place(offset, array.shape, array.dtype.str))
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return places


def _room(places: list[_Place]) -> int:
    """Bytes that the arrays take.

    Raises:
        MemoryError: more than there are. Linux would kill the first process that wrote
            beyond them, without a word.
    """
    offset, shape, dtype = places[-1]
    room = offset + max(1, math.prod(shape)) * np.dtype(dtype).itemsize
    if os.path.isdir(_SHARED_FOLDER):
        free = shutil.disk_usage(_SHARED_FOLDER).free
        if room > free:
            raise MemoryError(
                f"`workers` > 1 needs {room} bytes of shared memory, "
                f"but {_SHARED_FOLDER} has {free} free."
            )
    return room


def _view(shared: SharedMemory, place: _Place) -> np.ndarray:
    """The array in shared memory, which cannot be closed as long as the view lives."""
    return np.ndarray(place.shape, place.dtype, shared.buf, place.offset)


def _copy_in(arrays, shared: SharedMemory, places: list[_Place]) -> None:
    for array, place in zip(arrays, places, strict=True):
        _view(shared, place)[...] = array


def _copy_of(shared: SharedMemory, place: _Place) -> np.ndarray:
    return _view(shared, place).copy()


def _start(arguments: tuple) -> _Worker:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_worker_main, args=(*arguments, sender), daemon=True
    )
    try:
        # With our own end closed, the pipe ends when the worker does.
        with sender, _one_blas_thread(), _interrupts_blocked():
            process.start()
    except BaseException:
        receiver.close()
        raise
    return _Worker(process, receiver)


def _collect(workers: list[_Worker]) -> list[Any]:
    """The results in the order of the workers, or the first error."""
    waiting = {worker.connection: number for number, worker in enumerate(workers)}
    results = [None] * len(workers)
    while waiting:
        for connection in wait(list(waiting)):
            number = waiting.pop(connection)
            results[number] = _result(number, workers[number])
    return results


def _result(number: int, worker: _Worker) -> Any:
    try:
        result, error = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode
        raise RuntimeError(f"Worker {number} died with exit code {code}.") from None
    if error is not None:
        summary, details = error
        failure = RuntimeError(f"Worker {number} failed: {summary}")
        failure.add_note(details)
        raise failure
    return result


def _end(worker: _Worker) -> None:
    """Ends a worker that has not ended by itself; it has nothing to tidy up."""
    worker.connection.close()
    worker.process.kill()
    worker.process.join(_SECONDS_TO_END)
    worker.process.close()


def _worker_main(work, name: str, places, plan, number: int, num_workers, sender):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    result, error = None, None
    try:
        result = _work(work, name, places, plan, number, num_workers)
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}", traceback.format_exc()
    with contextlib.suppress(OSError):  # the parent has gone
        sender.send((result, error))


def _work(work, name: str, places, plan, number: int, num_workers: int) -> Any:
    shared = SharedMemory(name)
    state, arrays = ([_view(shared, place) for place in part] for part in places)
    try:
        return work(state, arrays, plan, number, num_workers)
    finally:
        state.clear()
        arrays.clear()  # a view left would keep the memory from being closed
        with contextlib.suppress(BufferError):  # an exception's frames have some left
            shared.close()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


@contextlib.contextmanager
def _one_blas_thread():
    """Processes started here use one BLAS thread each: they read it when they start."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_blocked():
    """Processes started here keep Ctrl-C blocked, until `_worker_main` ignores it.

    Else one that comes while they import fills the terminal with their tracebacks. This
    is of no use before the resource tracker runs, whose start ends the block.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _uninterrupted():
    """Holds Ctrl-C back until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not callable(handler):  # Ctrl-C raises nothing here
        yield
        return
    held_back = []
    signal.signal(signal.SIGINT, lambda *arguments: held_back.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held_back:
            signal.raise_signal(signal.SIGINT)
