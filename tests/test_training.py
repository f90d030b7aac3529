"""By what a training is compiled and fed, where nothing is said."""

import re
import sys

import jax
import numpy as np
import pytest

from embedder.cli.main import main
from embedder.config import Config, with_options
from embedder.engine import rules
from embedder.engine.mesh_layout import ONE_DEVICE, MeshLayout
from embedder.errors import InputError
from embedder.tokens import cbow
from embedder.tokens.backends import pick_backend
from embedder.tokens.loader import pick_loader
from tests.commands import error_line, run_python

LONG = 10_000_000
ADAGRAD = rules.rowwise_adagrad()._replace(has_kernel=False)
SEVERAL = MeshLayout("sharded", "replicated", 2, 1)


@pytest.mark.row("B93")
@pytest.mark.parametrize("data", ["tokens.txt", "encoder.npz"])
def test_tfdata_without_tensorflow_is_one_line(own_folder, monkeypatch, capsys, data):
    (own_folder / "tokens.txt").write_text("a b c d\n" * 20)
    np.savez("encoder.npz", X=np.zeros((8, 2)), y=np.arange(8) % 2)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    command = ["train", data, "--model", data[:-4], "--loader", "tfdata"]
    assert main([*command, "--workdir", "run"]) == 2
    message = "`loader` tfdata needs TensorFlow, .*: python -m pip install tensorflow"
    assert re.search(message, error_line(capsys))
    assert not (own_folder / "run").exists()


@pytest.mark.usefixtures("usual_backend")
@pytest.mark.parametrize(
    ("options", "words", "backend"),
    [
        ({}, LONG, "numba"),
        ({}, LONG - 1, "xla"),
        ({"window": "session"}, LONG // 5, "numba"),
        ({"window": "session"}, LONG // 5 - 1, "xla"),
        ({"subwords": (3, 6)}, LONG // 3 + 1, "numba"),
        ({"subwords": (3, 6)}, LONG // 3, "xla"),
        ({"hs": True, "negative": 0}, 10**9, "numba"),
        ({"hs": True, "negative": 0}, 1000, "xla"),
        ({"update": "dense"}, LONG, "xla"),
        ({"backend": "xla"}, LONG, "xla"),
        ({"backend": "numba"}, 1, "numba"),
    ],
)
def test_long_runs_are_compiled_by_numba(monkeypatch, options, words, backend):
    """But not on several devices, on a GPU, or without Numba."""
    config = with_options(Config(), **options)
    assert pick_backend(config, words, ONE_DEVICE) == backend
    if "backend" not in options:
        assert pick_backend(config, words, SEVERAL) == "xla"
        with monkeypatch.context() as patch:
            patch.setattr(jax, "default_backend", lambda: "gpu")
            assert pick_backend(config, words, ONE_DEVICE) == "xla"
        monkeypatch.setitem(sys.modules, "numba", None)
        assert pick_backend(config, words, ONE_DEVICE) == "xla"
    elif backend == "numba":
        monkeypatch.setitem(sys.modules, "numba", None)
        with pytest.raises(ValueError, match="`backend` is 'numba', .* install numba"):
            pick_backend(config, words, ONE_DEVICE)


@pytest.mark.row("B93")
@pytest.mark.tfdata
def test_one_cpu_device_is_fed_without_tensorflow(monkeypatch):
    """And so are others where it is not installed."""
    assert pick_loader("auto", ONE_DEVICE) == "memory"
    assert pick_loader("auto", SEVERAL) == "tfdata"
    assert pick_loader("tfdata", ONE_DEVICE) == "tfdata"
    assert pick_loader("memory", SEVERAL) == "memory"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert pick_loader("auto", ONE_DEVICE) == "tfdata"
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert pick_loader("auto", SEVERAL) == "memory"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("images.npz --model encoder", "features of 0.0 MiB stay on the devices\n"),
        pytest.param("text.txt --min-count 1", "", marks=pytest.mark.slow),
    ],
)
def test_a_run_does_not_import_tensorflow_by_default(own_folder, flags, said):
    (own_folder / "text.txt").write_text("a b c d\n" * 20)
    x = np.random.default_rng(0).integers(0, 256, (40, 4, 3), np.uint8)
    np.savez("images.npz", X=x, y=np.arange(40) % 2)
    code = "import sys; from embedder.cli.main import main; code = main(sys.argv[1:]); "
    code += "print(code, 'tensorflow' in sys.modules)"
    train = f"train {flags} --workdir run --verbose"
    done = run_python("-c", code, *train.split())
    assert done.stdout.split()[-2:] == ["0", "False"], done.stderr
    assert said in done.stderr
    assert 'loader = "memory"' in (own_folder / "run" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("option", "value", "holder", "name", "without"),
    [
        ("architecture", "cbow", cbow, "CBOW", cbow.CBOW._replace(kernel=None)),
        ("optimizer", "adagrad", rules, "rowwise_adagrad", lambda: ADAGRAD),
    ],
    ids=["architecture", "optimizer"],
)
def test_what_has_no_kernel_is_compiled_by_xla(
    monkeypatch, option, value, holder, name, without
):
    config = with_options(Config(), **{option: value})
    assert pick_backend(config, LONG, ONE_DEVICE) == "numba"
    monkeypatch.setattr(holder, name, without)
    assert pick_backend(config, LONG, ONE_DEVICE) == "xla"
    with pytest.raises(InputError, match=f"must be 'xla' with `{option}` '{value}'"):
        pick_backend(with_options(config, backend="numba"), LONG, ONE_DEVICE)
