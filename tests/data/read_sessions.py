"""Program of a child process: the most memory (MiB) that reading a table takes.

Arguments: the table, a folder for temporary files, and the rows that are sorted at a
time.
"""

import re
import sys
from pathlib import Path

from embedder.data import row_sort
from embedder.data.sources import file_corpus

if __name__ == "__main__":
    folder = Path(sys.argv[2])
    row_sort.RUN_ROWS = int(sys.argv[3])
    num_items = sum(len(c.tokens) for c in file_corpus(sys.argv[1]).chunks_in(folder))
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1])
    print(num_items, peak // 1024)
