"""Exports of an encoder for other programs: its parameters, or the network as ONNX."""

import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from embedder.disk.files import atomic_file, short_reason
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.embedding import read_model
from embedder.encoders.networks.convolution import plain_convolutions
from embedder.encoders.networks.network import Model
from embedder.encoders.outputs import load_encoder
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
    `settings`, `classes`, `example_shape` and `example_dtype`.

    Returns:
      Number of values of the parameters.

    Raises:
      InputError: `path` ends otherwise, or see `read_model`.
    """
    if path.suffix.lower() != ".safetensors":
        raise InputError(f"`to` must end in .safetensors, got {path}.")
    model = read_model(run)
    networks = [_named(model.network.to_model(each)) for each in model.replicas]
    found = networks[0] if model.rotations is None else stack_states(networks)
    arrays = {name: np.ascontiguousarray(array) for name, array in found.items()}
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


def _named(model: Model) -> dict[str, np.ndarray]:
    """The arrays of a model by module/name."""
    return {
        f"{module}/{name}": np.asarray(array)
        for tree in model
        for module, named in tree.items()
        for name, array in named.items()
    }


def _metadata(model: EncoderFile) -> dict[str, str]:
    values = {
        "settings": model.settings,
        "classes": [str(name) for name in model.classes],
        "example_shape": model.example_shape,
        "example_dtype": model.example_dtype,
    }
    return {
        name: json.dumps(value, default=np.generic.item)
        for name, value in values.items()
    }


def forward(model: EncoderFile) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """Features to `OUTPUTS`, by the one network or by all replicas."""
    networks = [load_encoder(model.network, each) for each in model.replicas]

    def forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        # The form for CPUs is that of training: converters do not know its parts.
        with plain_convolutions():
            vectors = [encoder.embed(own, x) for encoder, own in networks]
            scores = [encoder.scores(own, x) for encoder, own in networks]
        if model.rotations is not None:
            pairs = zip(vectors, model.rotations, strict=True)
            vectors = [jnp.matmul(v, r, precision="highest") for v, r in pairs]
        shares = [jax.nn.softmax(each) for each in scores]
        return sum(vectors[1:], vectors[0]) / len(networks), (
            sum(shares[1:], shares[0]) / len(networks)
        )

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
        with warnings.catch_warnings(), jax.enable_x64(is_float64):
            warnings.simplefilter("ignore")
            from jax2onnx import to_onnx
            from onnx.helper import set_model_props

            found = to_onnx(
                forward(model),
                [jax.ShapeDtypeStruct(shape, input_dtype(model))],
                model_name="encoder",
                enable_double_precision=is_float64,
                input_names=["features"],
                output_names=OUTPUTS,
            )
            set_model_props(found, _metadata(model))
            return found.SerializeToString()
    except Exception as error:  # a network that it does not know raises anything
        raise InputError(
            f"RUN {run} cannot be converted to ONNX: {short_reason(error)}."
        ) from error
    finally:
        log.setLevel(level)


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
        found = outputs(features)
        for name, own, other in zip(OUTPUTS, expected, found, strict=False):
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
    try:
        session = onnxruntime.InferenceSession(content, options)
        return session.run([*OUTPUTS], {"features": features})
    except Exception as error:
        raise InputError(
            f"RUN {run} cannot be written as ONNX: {short_reason(error)}."
        ) from error
