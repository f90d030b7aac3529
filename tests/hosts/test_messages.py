"""What processes of a run tell each other."""

import numpy as np
import pytest

from embedder.hosts import processes


@pytest.mark.row("B18")
def test_a_message_may_name_a_file_that_is_not_utf8(monkeypatch):
    """Else the error would be another, and the others would wait for this process."""
    alone = "embedder.hosts.processes.multihost_utils.process_allgather"
    monkeypatch.setattr(alone, lambda array: np.stack([array]))
    assert processes._gather_messages("caf\udce9 is no file") == [
        r"caf\udce9 is no file"
    ]
