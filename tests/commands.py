"""What tests of the command line share."""

OF_A_RUN = ("devices: ", "memory: ", "on each device: ")


def error_line(capsys) -> str:
    """The one line of an error; what a run says of itself may stand before it."""
    *before, line = capsys.readouterr().err.splitlines()
    assert line.startswith("embedder: ")
    assert [each for each in before if not each.startswith(OF_A_RUN)] == []
    return line
