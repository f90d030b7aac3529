"""What a child process of a program that was swapped finds as gensim: it swaps, too.

`swapping.swap_in_children` has the folder above before all others on the path. The
package then makes way for that of `swap_in`.
"""

import sys

if __name__ == "gensim":
    del sys.modules[__name__]
    try:
        from embedder.gensim.drop_in import swap_in
    except ModuleNotFoundError as error:
        raise ImportError(
            "The parent process has embedder's classes as gensim, and here they cannot "
            f"be imported ({error}): install embedder-jax for {sys.executable}, or "
            "start it without the parent's PYTHONPATH."
        ) from None
    swap_in()
