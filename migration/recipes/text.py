"""Vectors of words by gensim with its defaults (CBOW), from a file of sentences."""

import argparse
import json
import time

from gensim.models import Word2Vec
from gensim.models.word2vec import LineSentence

parser = argparse.ArgumentParser()
parser.add_argument("sentences")
parser.add_argument("pairs", help="word, word and similarity a line, by tabs")
parser.add_argument("analogies", help="in the format of questions-words.txt")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--limit", type=int, help="sentences that are read")
arguments = parser.parse_args()

sentences = LineSentence(arguments.sentences, limit=arguments.limit)
start = time.perf_counter()
model = Word2Vec(sentences, workers=2, seed=arguments.seed)
seconds = time.perf_counter() - start
_, spearman, _ = model.wv.evaluate_word_pairs(arguments.pairs)
analogies, _ = model.wv.evaluate_word_analogies(
    arguments.analogies, restrict_vocab=30_000
)
scores = {"WS-353": float(spearman[0]), "analogies": analogies}
print(json.dumps({"seconds": seconds, "scores": scores}))
