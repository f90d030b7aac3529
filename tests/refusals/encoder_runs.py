"""Runs of encoders: their options and data, and the verbs that use what they leave."""

import io

import numpy as np
from PIL import Image

from tests.refusals.rows import Content
from tests.refusals.runs import rows_of


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def examples(features: np.ndarray) -> dict[str, np.ndarray]:
    return {"X": features, "y": np.arange(len(features)) % 3}


X = np.ones((6, 6), np.float32)
FILES: dict[str, Content] = {
    "folder/readme": b"",
    "text.npz": "text",
    "text.npy": "text",
    "objects.npy": npy(np.array([{}])),
    "fine.npy": npy(X),
    "shape.npy": npy(X[:, :3]),
    "number.npy": npy(np.float32(3)),
    "words.npy": npy(X.astype("U5")),
    "pixels.npy": npy(X.astype(np.uint8)),
    "none.npy": npy(X[:0]),
    "nan.npy": npy(X * np.nan),
    "i.png": png(3, 4),
    "two/a/0.png": png(3, 4),
    "two/a/1.png": png(7, 9),
    "shape.npz": examples(X[:, :3]),
    "bytes.npz": examples(X.astype(np.uint8)),
    "nan.npz": examples(X * np.nan),
}
WORDS = {
    "NEW": "train examples.npz --workdir next --model encoder",
    "DATA": "train --workdir next --model encoder --loader memory",
}
TEXT = r"""
[]
NEW --window 3
    `window` applies only to `model` = 'tokens', got 3 with 'encoder'.
NEW --vector-size 7 --layers 6 4 3
    `vector_size` of an mlp is its last hidden layer, 4 of `layers`, got 7.
NEW --network vit
    `network` vit needs images [height, width] or [height, width, channels], got
    examples [6].
NEW --layers 5 4 2
    `layers` must go from 6 features to 3 classes, got 5 4 2.
NEW --layers 6 3
    `layers` must be three widths or more, from features to classes, got (6, 3).
NEW --validation-fraction 0.999
    `validation_fraction` 0.999 of 150 examples leaves none to train on.
NEW --validation-fraction 0.001
    `validation_fraction` 0.001 holds out none of 150 examples: give a larger one, or 0.
NEW --optimizer adm
    `optimizer` must be one of optax, got 'adm', did you mean 'adam'?
NEW --optimizer-args momentm=1
    `optimizer_args` of 'adam' must be of b1, b2, eps, eps_root, mu_dtype, nesterov, got
    'momentm'.
NEW --optimizer-args momentum
    `optimizer_args` must be NAME=VALUE, a number, true or false, got 'momentum'.
NEW --label z
    examples.npz has no features and labels: it has X, y, and must have
    x_train and z, or X and z, or x and z, or features and z.
NEW --label ''
    `label` must be a name with `objective` softmax, got ''.
NEW --image-size 3
    `image_size` must be height and width, got (3,).
NEW --result best
    `result` best needs `validation_fraction`, got 'best'.
NEW --patience 3
    `patience` needs `validation_fraction`, got 3.
train examples.npz --workdir next --layers 4 5 3
    `layers` applies only to `model` = 'encoder', got (4, 5, 3) with 'tokens'.
DATA
    DATA must be given for an encoder: an idx file of images (...images-idx3-ubyte,
    .gz) or its folder, or an .npz file, or a folder with a folder of images for
    each class, or tables (.parquet, .arrow, .csv, .tsv, .jsonl), or .tar files of
    images with labels, as webdataset's.
DATA missing.npz
    DATA missing.npz does not exist.
DATA text.txt
    DATA text.txt must be an idx file of images (...images-idx3-ubyte, .gz) or its
    folder, or an .npz file, or a folder with a folder of images for each class, or
    tables (.parquet, .arrow, .csv, .tsv, .jsonl), or .tar files of images with labels,
    as webdataset's.
DATA text.npz
    text.npz has no features and labels: …
convert encoder out.npz
    encoder/model.npz is not a whole model file: its format is b'embedder-encoder-model
    1', not b'embedder-table-model 1'.
embed encoder
    FILE: give at least one image, .npy file or folder.
embed encoder missing.npy
    FILE missing.npy does not exist.
embed encoder text.txt
    FILE text.txt must be an image (.png, .jpg, .jpeg, .jpe, .jfif, .bmp, .gif,
    .webp, .tif, .tiff), .npy of features, or an idx file of images
    (...images-idx3-ubyte, .gz) or its folder, or an .npz file, or a folder with a
    folder of images for each class, or tables (.parquet, .arrow, .csv, .tsv, .jsonl),
    or .tar files of images with labels, as webdataset's.
embed encoder text.npy
    FILE text.npy is not a whole .npy file: …
embed encoder objects.npy
    FILE objects.npy is not a whole .npy file: it holds pickled objects, which are not
    read.
embed encoder i.png
    FILE i.png is an image, and the encoder was trained on float32 [6]: give .npy.
embed encoder shape.npy
    FILE shape.npy must be float32 of [n, 6], got float32[6, 3].
embed encoder number.npy
    FILE number.npy must be float32 of [n, 6], got float32[].
embed encoder words.npy
    FILE words.npy must be float32 of [n, 6], got <U5[6, 6].
embed encoder pixels.npy
    FILE pixels.npy must be of float32, as the encoder was trained on, got uint8 of 1 to
    1.
embed encoder none.npy
    FILE none.npy has no examples: it is [0, 6].
embed encoder nan.npy
    FILE nan.npy has features that are not finite.
embed encoder fine.npy fine.npy
    `keys` must be unique, got 'fine.npy:0' at rows 0 and 6.
embed encoder fine.npy --topn 0
    `topn` must be an integer >= 1, got 0.
embed encoder missing.npy --to two
    `to` must end in .txt, .vec, .txt.gz, .vec.gz, .bin, .safetensors, .npz, .parquet,
    .faiss or .sql, got 'two'.
embed encoder fine.npy --to nowhere/x.txt
    Folder …/nowhere does not exist.
embed nowhere fine.npy
    RUN nowhere does not exist.
embed folder fine.npy
    Model file folder/model.npz does not exist.
embed examples.npz fine.npy
    examples.npz is not a whole encoder file: …
embed run fine.npy
    run/model.npz is not a whole encoder file: its format is b'embedder-table-model 1',
    not b'embedder-encoder-model 1'.
[B1 B6]
evaluate encoder --examples missing.npz
    DATA missing.npz does not exist.
evaluate encoder --examples shape.npz
    --examples shape.npz must have features float32[6], as the encoder was trained on,
    got float32[3].
evaluate encoder --examples bytes.npz
    --examples bytes.npz must have features float32[6], as the encoder was trained on,
    got uint8[6].
evaluate encoder --examples nan.npz
    nan.npz: row 0 has features that are not finite.
[B22]
evaluate encoder --examples examples.npz --picture encoder/model.npz
    `picture` must not be a file of a run, got encoder/model.npz in the run …/encoder:
    give another name.
neighbors encoder 12 --to encoder/model.npz
    `to` must not be a file of a run, got encoder/model.npz in the run …/encoder: give
    another name.
[]
evaluate encoder
    RUN encoder has no validation examples: train with --validation-fraction, or give
    labelled examples by --examples DATA.
evaluate encoder --examples examples.npz --picture p.pdf
    `picture` must end in .png or .svg, got p.pdf.
evaluate encoder --examples examples.npz --picture nowhere/p.png
    Folder …/nowhere does not exist.
evaluate encoder --examples x --analogies x
    `examples` is for the evaluation of an encoder: leave out --analogies.
evaluate encoder --sessions x
    `sessions` applies only to a run of tokens or to a file of vectors, got encoder, a
    run of an encoder.
evaluate run
    Give at least one of --sessions, --edges, --labels, --pairs, --analogies and --text
    with a FILE; for the file of an encoder --examples DATA.
evaluate run --json
    `json` applies only to a run of an encoder, got run.
evaluate run --picture p.png
    `picture` applies only to a run of an encoder, got run.
evaluate run --examples x
    `examples` applies only to a run of an encoder, got run.
evaluate run/vectors.txt --examples x
    run/vectors.txt is not a whole encoder file: …
evaluate nowhere --json
    RUN nowhere does not exist.
export encoder --to p.csv --predictions
    `to` must end in .parquet or .safetensors, got 'p.csv'.
export encoder --to p.parquet --predictions --replicas
    Give one of --replicas, --stability N, --predictions and --parameters.
export encoder --to p.parquet --stability 3
    `stability` applies only to a run of tokens with replicas, got encoder.
export encoder --to p.parquet --replicas
    `replicas` applies only to a run with replicas, got encoder.
export run --to p.parquet --predictions
    `predictions` applies only to a run of an encoder, got run.
export nowhere --to p.parquet --predictions
    RUN nowhere does not exist.
export encoder --to p.parquet --predictions --names n.csv
    `names` goes with neither --predictions, --replicas, --parameters nor .onnx or
    .stablehlo.
export encoder --to p.npz --parameters
    `to` must end in .safetensors, got p.npz.
export run --to p.safetensors --parameters
    `parameters` applies only to an encoder, got run.
export run/vectors.txt --to p.safetensors --parameters
    run/vectors.txt is not a whole encoder file: …
neighbors encoder 7 --stable
    `stable` applies only to a run of tokens with replicas, got encoder.
neighbors encoder i.png
    FILE i.png is an image, and the encoder was trained on float32 [6]: give .npy.
neighbors run i.png
    'i.png' is not in the vocabulary.
[B50]
neighbors encoder 12 --to s.png
    `to` needs images: the examples of RUN encoder are float32[6].
neighbors run w1 --to s.png
    `to` applies only with --from, or to a run of an encoder, got run.
neighbors encoder 12 --to s.png --json
    `to` goes with neither --session, --stable nor --json.
neighbors encoder --session 12 --to s.png
    `to` goes with neither --session, --stable nor --json.
neighbors encoder 12 --to s.jpg
    `to` must end in .png for images, or .parquet or .csv, got s.jpg.
neighbors encoder 412
    '412' is not the key of an example: did you mean '42' or '41' or '12'?
neighbors encoder 412.png
    '412.png' is neither the key of an example nor an image file.
"""
ROWS = rows_of(TEXT, WORDS, FILES)
