"""Exports of an encoder for other programs: parameters, or the network as ONNX or as
StableHLO, which JAX loads and calls.

The StableHLO file is that of `jax.export`, which later versions of JAX read, too:
https://docs.jax.dev/en/latest/export/export.html#compatibility-guarantees
"""

import contextlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from embedder.disk.files import atomic_file, short_reason
from embedder.encoders.artefact import EncoderFile, read_model
from embedder.encoders.networks.convolution import plain_convolutions
from embedder.encoders.networks.network import named_arrays
from embedder.encoders.outputs import load_model
from embedder.encoders.predictor import predictor_of
from embedder.engine.replicas import stack_states
from embedder.errors import InputError, check_installed
from embedder.vectors.array_formats import save_arrays

OUTPUTS = ("embeddings", "probabilities")
"""Names of the outputs of an ONNX file: f[n, E] and f[n, C]."""

_TOLERANCE = 1e-5  # of outputs by ONNX, relative to the largest


def export_parameters(run: Path, path: Path) -> int:
    """Writes the parameters of a run, or of an encoder file, atomically.

    The arrays of the .safetensors file are named module/name, as Haiku names them, with
    the moving averages of batch normalisation. Of K replicas they have K first, and
    `rotations` [K, E, E] align the embeddings. The metadata are texts of JSON:
    `settings`, `classes`, `example_shape`, `example_dtype`, and `columns`, the names of
    features that have some.

    Returns:
      Number of values of the parameters.

    Raises:
      InputError: `path` ends otherwise, or see `read_model`.
    """
    if path.suffix.lower() != ".safetensors":
        raise InputError(f"`to` must end in .safetensors, got {path}.")
    model = read_model(run)
    networks = [*map(named_arrays, model.models)]
    named = networks[0] if model.rotations is None else stack_states(networks)
    arrays = {n.partition("/")[2]: np.ascontiguousarray(x) for n, x in named.items()}
    num_values = sum(array.size for array in arrays.values())
    if model.rotations is not None:
        arrays["rotations"] = model.rotations
    with atomic_file(path) as part:
        save_arrays(arrays, part, _metadata(model))
    return num_values


def export_onnx(run: Path, path: Path) -> None:
    """Writes the network of a run, or of an encoder file, as ONNX, atomically.

    The input `features` [n, ...] has the shape of the examples, and is u8 if they are,
    else in the dtype of the encoder. The outputs are `OUTPUTS`, of replicas the means;
    the metadata are those of `export_parameters`. The file is run, and compared.

    Raises:
      InputError: jax2onnx is missing or cannot convert the network, or the file
        computes something else; or see `read_model`.
    """
    check_installed("jax2onnx", "`to` .onnx")
    model = read_model(run)
    content = _converted(run, model)
    check_outputs(run, model, lambda x: _run_onnx(run, content, x), "ONNX")
    with atomic_file(path) as part:
        part.write_bytes(content)


def _metadata(model: EncoderFile) -> dict[str, str]:
    values: dict[str, Any] = {
        "settings": model.settings,
        "classes": [str(name) for name in model.classes],
        "example_shape": model.example_shape,
        "example_dtype": model.example_dtype,
    }
    if model.columns:
        values["columns"] = model.columns
    return {n: json.dumps(x, default=np.generic.item) for n, x in values.items()}


def forward(model: EncoderFile) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """Features to `OUTPUTS`, by the one network or by all replicas."""
    networks = [load_model(model.network, each) for each in model.models]

    def forward(x: jax.Array) -> tuple[jax.Array, ...]:
        # The form for CPUs is that of training: converters do not know its parts.
        with plain_convolutions():
            vectors = [encoder.embed(own, x) for encoder, own in networks]
            scores = [encoder.scores(own, x) for encoder, own in networks]
        if model.rotations is not None:
            pairs = zip(vectors, model.rotations, strict=True)
            vectors = [jnp.matmul(v, r, precision="highest") for v, r in pairs]
        shares = [jax.nn.softmax(each) for each in scores]
        return tuple(sum(x[1:], x[0]) / len(x) for x in (vectors, shares))

    return forward


def input_dtype(model: EncoderFile) -> str:
    """The dtype of features: jax2onnx makes all floats float64, or none."""
    if model.example_dtype == "uint8":
        return model.example_dtype
    return model.settings["dtype"]


def _converted(run: Path, model: EncoderFile) -> bytes:
    log = logging.getLogger("onnx_ir")
    level = log.level
    log.setLevel(logging.ERROR)  # it warns of its own shapes
    is_float64 = model.settings["dtype"] == "float64"
    shape: Any = ("n", *model.example_shape)
    try:
        with _refused(run, "converted to ONNX"), jax.enable_x64(is_float64):
            from jax2onnx import to_onnx
            from onnx.helper import set_model_props

            converted = to_onnx(
                forward(model),
                [jax.ShapeDtypeStruct(shape, input_dtype(model))],
                model_name="encoder",
                enable_double_precision=is_float64,
                input_names=["features"],
                output_names=OUTPUTS,
            )
            set_model_props(converted, _metadata(model))
            return converted.SerializeToString()
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def _refused(run: Path, what: str) -> Iterator[None]:
    """Raises InputError for any error: converters raise anything for a network that
    they do not know. Their warnings are ignored."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        reason = short_reason(error)
        raise InputError(f"RUN {run} cannot be {what}: {reason}.") from error


def check_outputs(
    run: Path,
    model: EncoderFile,
    outputs: Callable[[np.ndarray], Sequence[np.ndarray]],
    kind: str,
) -> None:
    """Checks that a file computes what the encoder does, for batches of 1 and 3.

    Args:
      outputs: features to the first of `OUTPUTS`, or all, by the file.
      kind: of the file, for the message.

    Raises:
      InputError: it does not.
    """
    predictor = predictor_of(model)
    rng = np.random.default_rng(0)
    for num in (1, 3):
        x = rng.integers(256, size=(num, *model.example_shape), dtype=np.uint8)
        dtype = input_dtype(model)
        features = x if dtype == "uint8" else (x / 255).astype(dtype)
        vectors = predictor.vectors(features, model.rotations)
        expected = vectors, predictor.predict(features).probabilities
        others = outputs(features)
        for name, own, other in zip(OUTPUTS, expected, others, strict=False):
            limit = _TOLERANCE * max(1.0, float(np.abs(own).max()))
            if own.shape != other.shape or not (np.abs(own - other) <= limit).all():
                raise InputError(
                    f"RUN {run} cannot be written as {kind}: its {name} are not those "
                    "of the encoder."
                )


def _run_onnx(run: Path, content: bytes, features: np.ndarray) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    with _refused(run, "written as ONNX"):
        session = onnxruntime.InferenceSession(content, options)
        return session.run([*OUTPUTS], {"features": features})


PLATFORMS = ("cpu", "cuda", "tpu")
"""Devices on which the file can be called."""


def export_stablehlo(run: Path, path: Path) -> None:
    """Writes the embeddings of a run's network, or an encoder file's, atomically.

    The file is a function of features [n, ...] for any n, u8 if the examples are, else
    in the dtype of the encoder; it returns the embeddings [n, E], of replicas the
    means. It is called, and compared.

    Raises:
      InputError: JAX cannot export the network, or the file computes something else; or
        see `read_model`.
    """
    model = read_model(run)
    outputs = forward(model)
    with jax.enable_x64(model.settings["dtype"] == "float64"):
        (n,) = jax.export.symbolic_shape("n")
        shape = n, *model.example_shape
        features = jax.ShapeDtypeStruct(shape, input_dtype(model))
        embed = jax.export.export(jax.jit(lambda x: outputs(x)[0]), platforms=PLATFORMS)
        with _refused(run, "exported as StableHLO"):
            content = bytes(embed(features).serialize())
        exported = jax.export.deserialize(bytearray(content))
        check_outputs(run, model, lambda x: [np.asarray(exported.call(x))], "StableHLO")
    with atomic_file(path) as part:
        part.write_bytes(content)
