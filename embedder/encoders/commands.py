"""What the verb `export` does with a run of an encoder."""

from pathlib import Path
from typing import Literal

from embedder.disk.files import name_file_in_errors
from embedder.encoders.export import export_predictions, export_replicas
from embedder.encoders.stablehlo import export_stablehlo
from embedder.encoders.weights import export_onnx, export_parameters
from embedder.terminal import say_done, shown

EncoderExport = Literal["predictions", "replicas", "parameters", "onnx", "stablehlo"]


def export(run: Path, to: Path, what: EncoderExport) -> str:
    """Writes the predictions of a run, the embeddings by each of its replicas, its
    parameters, or its network as ONNX or StableHLO; returns what was written.

    Raises:
      InputError: see `export_predictions`, `export_replicas`, `weights` and
        `export_stablehlo`.
    """
    with name_file_in_errors(to):
        match what:
            case "predictions":
                done = f"predictions of {export_predictions(run, to)} examples"
            case "replicas":
                num_networks, num_examples = export_replicas(run, to)
                done = f"{num_networks} x {num_examples} vectors"
            case "parameters":
                done = f"{export_parameters(run, to)} parameters"
            case "onnx":
                export_onnx(run, to)
                done = "the network"
            case "stablehlo":
                export_stablehlo(run, to)
                done = "the network"
    say_done(f"{done} in {shown(str(to))}")
    return done
