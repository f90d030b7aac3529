"""`import embedder.gensim.install` makes the classes of `gensim.models` embedder's.

Import it before the program's own imports of gensim.
"""

from embedder.gensim.drop_in import swap_in

swap_in()
