"""Exports the network of an encoder as StableHLO, which JAX loads and calls.

The file is that of `jax.export`, which programs of later versions of JAX read, too:
https://docs.jax.dev/en/latest/export/export.html#compatibility-guarantees
"""

from pathlib import Path

import jax
import jax.export
import numpy as np

from embedder.disk.files import atomic_file, short_reason
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.embedding import read_model
from embedder.encoders.weights import check_outputs, forward, input_dtype
from embedder.errors import InputError

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
    is_float64 = model.settings["dtype"] == "float64"
    with jax.enable_x64(is_float64):
        content = _serialized(run, model)
        exported = jax.export.deserialize(bytearray(content))
        check_outputs(run, model, lambda x: [np.asarray(exported.call(x))], "StableHLO")
    with atomic_file(path) as part:
        part.write_bytes(content)


def _serialized(run: Path, model: EncoderFile) -> bytes:
    outputs = forward(model)
    (n,) = jax.export.symbolic_shape("n")
    features = jax.ShapeDtypeStruct((n, *model.example_shape), input_dtype(model))
    embed = jax.jit(lambda x: outputs(x)[0])
    try:
        exported = jax.export.export(embed, platforms=PLATFORMS)(features)
    except Exception as error:  # a network whose shapes need n raises anything
        raise InputError(
            f"RUN {run} cannot be exported as StableHLO: {short_reason(error)}."
        ) from error
    return bytes(exported.serialize())
