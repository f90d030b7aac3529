"""`python -m bench NAME`: runs one bench and prints its table."""

import sys


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`."""
    # The first four run without tyro and the packages of other benches.
    if arguments[:1] == ["gpu"]:
        from bench import gpu

        gpu.main(arguments[1:])
    elif arguments[:1] == ["gpu-offline"]:
        from bench import gpu_offline

        gpu_offline.main(arguments[1:])
    elif arguments[:1] == ["gpu-replicas"]:
        from bench import gpu_replicas

        gpu_replicas.main(arguments[1:])
    elif arguments[:1] == ["gpu-networks"]:
        from bench import gpu_networks

        gpu_networks.main(arguments[1:])
    else:
        from bench import commands

        commands.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
