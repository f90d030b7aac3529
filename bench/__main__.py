"""`python -m bench NAME`: runs one bench and prints its table."""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["gpu"]:  # for machines that have little installed
        from bench import gpu

        gpu.main(sys.argv[2:])
    else:
        from bench import commands

        commands.main()
