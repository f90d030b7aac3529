"""What is installed, and what is missing for what: `embedder doctor`."""

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from embedder import __version__
from embedder.base.limits import gib, memory_limit
from embedder.base.terminal import shown
from embedder.base.threads import available_cores
from embedder.disk.cache_files import user_cache_folder
from embedder.errors import DISTRIBUTION, InputError, install_command

_USED = "jax", "jaxlib", "dm-haiku", "optax", "numpy", "numba", "polars", "tensorflow"
PURPOSES = {
    "faiss": "export to Faiss",
    "gs": "data and runs in buckets of Google (gs://)",
    "http": "data of web servers (https://)",
    "images": "images in files, and pictures in reports",
    "index": "nearest neighbours among millions: `embedder index`",
    "onnx": "export of networks to ONNX",
    "plot": "plots as files",
    "prompt": "completion at the prompt of `embedder neighbors RUN`",
    "report": "the map in a report",
    "s3": "data and runs in buckets of Amazon (s3://)",
    "sklearn": "`FeatureEncoder` in Python, and scores of labels of nodes",
    "sweep": "`embedder sweep` by a search, and its picture",
}
"""What each extra of the package is for, but `cuda`."""

_NVIDIA = Path("/dev/nvidiactl")  # of its driver


def doctor_report() -> str:
    """Versions, cores, memory, devices, caches, and what is missing for what."""
    python = f"Python {platform.python_version()}"
    system = f"{sys.platform} {platform.machine()}"
    limit = memory_limit()
    return "\n".join(
        [
            f"embedder {__version__}, {python}, {system}",
            f"packages: {', '.join(map(_with_version, _USED))}",
            f"cores: {available_cores()}; memory: {gib(limit.size)} of {limit.source}",
            f"devices: {_devices()}",
            *_caches(),
            *_missing(),
        ]
    )


def _version(name: str) -> str | None:
    """The version of a package; None: it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _with_version(name: str) -> str:
    found = _version(name) or _version(f"{name}-cpu")  # as TensorFlow has two
    return f"{name} {found or 'missing'}"


def _devices() -> str:
    import jax

    from embedder.engine.compilation import prepare_devices

    try:
        prepare_devices()
    except (RuntimeError, InputError) as error:
        return f"none: {' '.join(str(error).split())}"
    devices = jax.devices()
    kinds = sorted({f"{each.platform} ({each.device_kind})" for each in devices})
    found = f"{len(devices)}: {', '.join(kinds)}"
    if _NVIDIA.exists() and all(each.platform == "cpu" for each in devices):
        found += f"; to use the NVIDIA GPU that is here: {install_command('cuda')}"
    return found


def _caches() -> Iterator[str]:
    """Where caches are, and how large each is."""
    folder = user_cache_folder().expanduser()
    if not folder.is_dir():
        yield f"caches: none yet; they will be in {shown(str(folder))}"
        return
    sizes = (
        f"{shown(each.name)} {_bytes(each) / 2**20:.1f} MiB"
        for each in sorted(folder.iterdir())
    )
    yield f"caches in {shown(str(folder))}, which may be deleted: {', '.join(sizes)}"


def _bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.lstat().st_size for each in files if each.is_file())


def _missing() -> Iterator[str]:
    """A line for each extra that lacks a package, with the command that installs it."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield f"{DISTRIBUTION} is not installed as a package: its extras are not known"
        return
    lines = []
    for extra, purpose in PURPOSES.items():
        names = _packages(requirements, extra)
        lacking = [name for name in names if _version(name) is None]
        if lacking:
            what = f"{purpose}: {install_command(extra)} ({', '.join(lacking)})"
            lines.append(f"  {what}")
    yield "missing:" if lines else "missing: nothing"
    yield from lines


def _packages(requirements: list[str], extra: str) -> list[str]:
    """The packages of an extra."""
    own = re.compile(rf"extra == ['\"]{extra}['\"]")
    lines = [each for each in requirements if own.search(each)]
    return [re.split(r"[\s<>=!~;\[(]", each)[0] for each in lines]
