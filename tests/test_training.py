import re
import subprocess
import sys

import jax
import numpy as np
import pytest

from embedder.cli import main
from embedder.config import Config, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.engine.layout import ONE_DEVICE, Layout
from embedder.errors import InputError
from embedder.tables import cpu
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import thread
from embedder.tables.encode import encode
from embedder.tables.loader import pick_loader
from embedder.tables.options import TablesOptions
from embedder.tables.training import Training, pick_backend
from tests.commands import error_line

LONG = 10_000_000


@pytest.mark.parametrize(
    ("options", "words", "backend"),
    [
        ({}, LONG, "numba"),
        ({}, LONG - 1, "xla"),
        ({"window": "session"}, LONG // 5, "numba"),
        ({"window": "session"}, LONG // 5 - 1, "xla"),
        ({"subwords": (3, 6)}, LONG // 3 + 1, "numba"),
        ({"subwords": (3, 6)}, LONG // 3, "xla"),
        ({"update": "dense"}, LONG, "xla"),
        ({"backend": "xla"}, LONG, "xla"),
        ({"backend": "numba"}, 1, "numba"),
    ],
)
def test_long_runs_are_compiled_by_numba(options, words, backend):
    assert pick_backend(with_options(Config(), **options), words, ONE_DEVICE) == backend


def test_several_devices_get_xla():
    layout = Layout("sharded", "replicated", 2, 1)
    assert pick_backend(Config(), LONG, layout) == "xla"


def test_a_gpu_gets_xla(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert pick_backend(Config(), LONG, ONE_DEVICE) == "xla"


@pytest.mark.tfdata
def test_one_cpu_device_is_fed_without_tensorflow(monkeypatch):
    several = Layout("sharded", "replicated", 2, 1)
    assert pick_loader("auto", ONE_DEVICE) == "memory"
    assert pick_loader("auto", several) == "tfdata"
    assert pick_loader("tfdata", ONE_DEVICE) == "tfdata"
    assert pick_loader("memory", several) == "memory"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert pick_loader("auto", ONE_DEVICE) == "tfdata"


@pytest.mark.row("B93")
@pytest.mark.parametrize("data", ["tables.txt", "encoder.npz"])
def test_tfdata_without_tensorflow_is_one_line(tmp_path, monkeypatch, capsys, data):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables.txt").write_text("a b c d\n" * 20)
    np.savez("encoder.npz", X=np.zeros((8, 2)), y=np.arange(8) % 2)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    command = ["train", data, "--model", data[:-4], "--loader", "tfdata"]
    assert main([*command, "--workdir", "run"]) == 2
    message = "`loader` tfdata needs TensorFlow, .*: python -m pip install tensorflow"
    assert re.search(message, error_line(capsys))
    assert not (tmp_path / "run").exists()


@pytest.mark.row("B93")
def test_several_devices_are_fed_from_memory_without_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    several = Layout("sharded", "replicated", 2, 1)
    assert pick_loader("auto", several) == "memory"


@pytest.mark.slow
def test_a_run_imports_tensorflow_only_if_it_loads_with_it(tmp_path):
    (tmp_path / "text.txt").write_text("a b c d\n" * 20)
    train = "['train', 'text.txt', '--workdir', '{}', '--min-count', '1', {}]"
    for loader, options in (("memory", ""), ("tfdata", "'--loader', 'tfdata'")):
        code = (
            "import sys; from embedder.cli import main; "
            f"assert main({train.format(loader, options)}) == 0; "
            "print('tensorflow' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.stdout.split()[-1] == str(loader == "tfdata"), done.stderr
        toml = (tmp_path / loader / "config.toml").read_text()
        assert f'loader = "{loader}"' in toml


def test_without_numba_xla_does_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert pick_backend(Config(), LONG, ONE_DEVICE) == "xla"
    with pytest.raises(ValueError, match="`backend` is 'numba', .* pip install numba"):
        pick_backend(with_options(Config(), backend="numba"), LONG, ONE_DEVICE)


def test_dense_updates_are_not_for_numba():
    with pytest.raises(ValueError, match="`update` must be 'rows' with numba"):
        TablesOptions(backend="numba", update="dense")


@pytest.mark.spread(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_backends_leave_the_same_arrays(sequences, dtype):
    encoded = encode(sequences_corpus(sequences), 1)
    options = {"loader": "memory", "vector_size": 20, "epochs": 2, "dtype": dtype}
    ends = {}
    for backend in ("xla", "numba"):
        config = with_options(Config(), backend=backend, **options)
        training = Training(resolve(config, encoded.num_tokens), encoded, range(2))
        state, place = run_epochs(training, training.initial_state())
        ends[backend] = state.params["tables"], place.losses
    rtol = {"float32": 1e-4, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(ends["numba"][1], ends["xla"][1], rtol=rtol)
    for name, theirs in ends["xla"][0].items():
        ours = ends["numba"][0][name]
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=rtol, atol=rtol)
        assert type(ours) is np.ndarray and ours.dtype == dtype
        assert ours.flags.c_contiguous and not ours.flags.writeable


@pytest.mark.parametrize(
    ("kernels", "option", "value"),
    [("OBJECTIVES", "architecture", "cbow"), ("OPTIMIZERS", "optimizer", "adagrad")],
)
def test_what_has_no_kernel_is_compiled_by_xla(monkeypatch, kernels, option, value):
    config = with_options(Config(), **{option: value})
    assert pick_backend(config, LONG, ONE_DEVICE) == "numba"
    monkeypatch.setattr(cpu, kernels, getattr(cpu, kernels)[:1])
    assert pick_backend(config, LONG, ONE_DEVICE) == "xla"
    with pytest.raises(InputError, match=f"must be 'xla' with `{option}` '{value}'"):
        pick_backend(with_options(config, backend="numba"), LONG, ONE_DEVICE)


def test_the_kernel_refuses_an_optimizer_that_it_lacks():
    with pytest.raises(ValueError, match="adam"):
        thread.apply_on_thread("float32", "adam", "uint8")
