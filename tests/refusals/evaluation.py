"""Held-out sessions, edges, labels and text to score, and spaces to compare."""

from tests.refusals.rows import Content, rows_of

FILES: dict[str, Content] = {
    "unknown.csv": "session,item\n1,x\n1,y\n",
    "short.csv": "session,item\n1,w1\n2,w2\n",
    "lists.jsonl": '{"session": 1, "items": ["w1", "w2"]}\n',
    "strangers.tsv": "x\ty\n",
    "held.tsv": "1\tx\n2\t1\n2\t2\n",
    "one.tsv": "1\tred\n2\tred\n",
    "alone.tsv": "1\tred\n2\n",
    "labels.tsv": "1\tred\n2\tred\n3\tblue\n",
    "x.txt": "w1\n\nnew w2\n",
}
WORDS = {"SCORE": "evaluate run --sessions", "NODES": "evaluate graph --labels"}
TEXT = r"""
[B38]
SCORE none.csv
    Corpus none.csv does not exist.
SCORE unknown.csv
    `sessions` unknown.csv: none of its 2 items is in the vocabulary of run.
SCORE short.csv
    `sessions` short.csv has no case: it needs sessions with an item to find and
    others before it, of the vocabulary, and not seen before.
SCORE baskets.parquet --item no
    `item` must be a column of the corpus, got 'no'. Corpus baskets.parquet has the
    columns session Int64 (48, 144, 268), item String (w0, w47, w21), order Int64
    (9, 13, 2), weight Float64 (1.5, 2.0, 1.5).
SCORE baskets.parquet --order order --user no
    `user` must be a column besides those of session, item and order, got 'no'; the
    others are: weight.
SCORE lists.jsonl --items items --user session
    `user` needs a table with a row for each item, got lists.jsonl: name its columns
    by --session, --item and --order.
SCORE baskets.parquet --topn 0
    `topn` must be an integer >= 1, got 0.
SCORE baskets.parquet --decay 0
    `decay` must be a number in (0, 1], got 0.0.
SCORE baskets.parquet --targets new
    `targets` 'new' needs a run of --next-items with items that --grow added, got run.
SCORE baskets.parquet --targets count --order order --user weight
    `targets` does not go with `user`, got 'count'.
SCORE baskets.parquet --new-items 2 --order order --user weight
    `new_items` does not go with `user`, got 2.0.
SCORE baskets.parquet --new-items 2
    `new_items` needs a run of --next-items, got 2.0 for run.
evaluate run --targets new
    `targets` applies only with --sessions FILE.
SCORE baskets.parquet --seed -1
    `seed` must be an integer >= 0, got -1.
evaluate replicas --sessions text.txt --score-by output
    `score_by` 'output' needs the output rows of tokens, and a run of a single model
    has one, got replicas: give --score-by cosine.
evaluate graph --edges strangers.tsv
    `edges` strangers.tsv has no edge to predict: 0 are edges of the training, and 1
    have a node that RUN does not know.
evaluate graph --edges held.tsv --non-edges 0
    `non_edges` must be an integer >= 1, got 0.
evaluate graph --edges held.tsv --non-edges 9999
    `non_edges` must be at most 617, the pairs of nodes without an edge, got 9999.
NODES none.tsv
    none.tsv: No such file or directory.
NODES one.tsv
    `labels` one.tsv must have 2 labels or more of known nodes, got 1; unknown
    nodes: 0.
NODES alone.tsv
    alone.tsv line 2: must be a node and its labels, got '2'.
NODES labels.tsv --train-share 0
    `train_share` must be above 0 and below 1, and leave nodes to learn from and to
    predict, of 3, got 0.
evaluate run --text x.txt
    `text` x.txt has no line of two tokens or more of the vocabulary of run; unknown
    tokens: 1 of 3.
evaluate replicas --text text.txt
    `text` needs the output table, which a run of a single model has, got replicas.
evaluate run --topn 3 --pairs pairs.tsv
    `topn` applies only with --sessions FILE.
evaluate run --similarity dot --text text.txt
    `similarity` applies only with --edges FILE.
evaluate run --splits 2 --text text.txt
    `splits` applies only with --labels FILE.
evaluate run --restrict-vocab 9 --text text.txt
    `restrict_vocab` applies only with --analogies FILE.
evaluate run --text text.txt --picture p.png
    `picture` is for the evaluation of an encoder: leave out --text.
[B62]
compare run/vectors.txt graph/vectors.txt
    A and B must share 2 tokens or more, got 0 of 60 and 40.
compare run run --topn 0
    `topn` must be an integer >= 1, got 0.
compare run run --moved -1
    `moved` must be >= 0, got -1.
compare run run --min-count -1
    `min_count` must be >= 0, got -1.
compare run
    Missing from embedder compare: B
"""
ROWS = rows_of(TEXT, WORDS, FILES)
