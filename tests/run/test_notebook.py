"""A training in a notebook, which a kernel of Jupyter runs."""

import pytest

pytestmark = pytest.mark.slow
CODE = """
from embedder import EmbeddingTrainer
trainer = EmbeddingTrainer(vector_size=8, min_count=1, sample=0, epochs=2)
trainer.fit([["a", "b", "c"]] * 100, verbose=True)
trainer.report()
"""


def test_a_notebook_has_a_bar_in_a_widget_and_the_report(run_notebook):
    nbformat = pytest.importorskip("nbformat", reason="needs the extra `dev`")
    pytest.importorskip("ipywidgets", reason="needs the extra `dev`")
    cell = nbformat.v4.new_code_cell(CODE)
    book = nbformat.v4.new_notebook(cells=[cell])
    run_notebook(book)
    outputs = book.cells[0].outputs
    assert [o for o in outputs if o["output_type"] in ("error", "stream")] == []
    widget, *others, report = (output["data"] for output in outputs)
    assert not any(each["text/plain"] for each in others)  # rich ends with a blank
    model = widget["application/vnd.jupyter.widget-view+json"]["model_id"]
    states = book.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]
    (bar,) = states["state"][model]["state"]["outputs"]  # the last frame alone
    text = bar["data"]["text/plain"]
    assert "epoch 2/2" in text and "100 %" in text and "words/s, loss " in text
    assert "<iframe" in report["text/html"]
