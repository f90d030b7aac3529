"""Child processes in which benches measure."""

import json
import os
import subprocess
import sys
from typing import Any


def run_python(
    *arguments: str,
    environment: dict[str, str] | None = None,
    stderr: int | None = None,
) -> Any:
    """Runs `python ARGUMENTS` and parses the last line of its output as JSON.

    Args:
      environment: variables added to those of this process.
      stderr: as for `subprocess.run`.

    Raises:
      subprocess.CalledProcessError: if the exit code is not 0.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def cpu_devices(num_devices: int) -> dict[str, str]:
    """Environment variables with which JAX splits the CPU into `num_devices`."""
    flags = os.environ.get("XLA_FLAGS", "")
    flags += f" --xla_force_host_platform_device_count={num_devices}"
    return {"XLA_FLAGS": flags.strip()}


def run_on_devices(
    module: str, num_devices: int, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """Runs `module` on `num_devices` CPU devices; prints and returns its results."""
    arguments = "-m", module, str(num_devices), json.dumps(settings)
    results = run_python(*arguments, environment=cpu_devices(num_devices))
    for result in results:
        print(json.dumps(result), flush=True)
    return results
