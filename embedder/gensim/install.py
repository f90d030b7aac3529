"""`import embedder.gensim.install` makes the classes of `gensim.models` embedder's.

Import it before the program's own imports of gensim. With EMBEDDER_GENSIM_TRUST=1 in
the environment, the program loads gensim's own pickles, too.
"""

from embedder.gensim.drop_in import swap_in
from embedder.gensim.swapping import swap_in_children

swap_in()
swap_in_children()
