"""The demo corpus: real English, the same every time."""

from embedder.tables.demo import demo_corpus
from embedder.tables.encode import encode


def test_demo_has_its_name():
    assert demo_corpus().name == demo_corpus().source == "demo"


def test_demo_is_the_same_each_time():
    assert demo_corpus().manifest == demo_corpus().manifest


def test_demo_is_large_enough_to_train_on():
    encoded = encode(demo_corpus(), min_count=5)
    assert encoded.num_tokens > 50_000 and len(encoded.vocabulary) > 1000


def test_demo_is_lower_case_words():
    tokens = encode(demo_corpus(), min_count=1).vocabulary.tokens
    assert {"the", "list", "object's"} <= set(tokens)
    assert all(token == token.lower() and " " not in token for token in tokens)
