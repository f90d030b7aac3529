import gzip
import itertools
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def wiki(data_folder, tmp_path_factory) -> Path:
    """The first 16,000 paragraphs of Wikipedia, 1.2 M words, as a text file."""
    path = tmp_path_factory.mktemp("wiki") / "wiki.txt"
    with gzip.open(data_folder / "wiki" / "wiki17m-0.txt.gz") as file:
        path.write_bytes(b"".join(itertools.islice(file, 16_000)))
    return path
