"""Runs the README's two commands on another Python, in a chroot of Debian.

    python -m tests.versions testing --to FOLDER

Debian's testing has the newest Python, its stable release an older one; `--python`
takes another that the suite has. The chroot is made by debootstrap, which needs root,
and kept: a later call with the same folder goes on with it. The checkout is copied
without what git ignores. Data sets are those of the variable EMBEDDER_DATA. Mounts are
in a namespace of their own, so that nothing is mounted when it ends.

The last line is the result, for the table of `docs/reference/python-versions.md`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.commands import copy_checkout

ROOT = Path(__file__).parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "jax", "numpy", "numba", "polars", "tensorflow-cpu"
IN_CHROOT = """
set -eu
for folder in proc sys dev dev/pts dev/shm; do
    mount --bind /$folder "$CHROOT/$folder"
done
if [ -n "$DATA" ]; then mount --bind "$DATA" "$CHROOT/data"; fi
exec chroot "$CHROOT" /bin/bash -euo pipefail -c "$COMMANDS"
"""


def main() -> int:
    """Makes the chroot, runs the commands; returns the exit code of the last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", help="a suite of Debian: testing, unstable, stable")
    parser.add_argument("--to", type=Path, required=True, help="folder of the chroot")
    parser.add_argument("--python", default="python3", help="as python3.13")
    parser.add_argument("--mirror", help="of Debian; by default that of debootstrap")
    parser.add_argument("--no-tests", action="store_true", help="train the demo alone")
    args = parser.parse_args()
    lacks = [name for name in ("debootstrap", "unshare") if not shutil.which(name)]
    if lacks or os.geteuid() != 0:
        print(f"This needs root{''.join(f' and {name}' for name in lacks)}.")
        return 2
    chroot = args.to.resolve()
    if not (chroot / "bin").exists():
        packages = f"{args.python},{args.python}-venv,ca-certificates,git"
        command = ["debootstrap", "--variant=minbase", f"--include={packages}"]
        mirror = [args.mirror] if args.mirror else []
        subprocess.run([*command, args.suite, str(chroot), *mirror], check=True)
    copy_checkout(chroot / "opt" / "embedder")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, chroot / CERTIFICATES.relative_to("/"))
    shutil.copy("/etc/hosts", chroot / "etc")  # the name of this machine
    (chroot / "data").mkdir(exist_ok=True)
    started = time.monotonic()
    main_command, *tests = readme_commands(not args.no_tests)
    about = "python --version", "python -m pip list"
    asked = "embedder neighbors embedder-demo list"
    log = run_in(chroot, [main_command, asked, *about, *tests], args.python)
    print(result(args.suite, log, time.monotonic() - started))
    return 0 if "\nDONE\n" in log else 1


def readme_commands(with_tests: bool) -> list[str]:
    """The README's commands as written: the main job, and the tests."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    starts = [r"-e \. && ", r"-e '\.\[dev\]' && "][: 1 + with_tests]
    found = [re.findall(f"^python -m pip install {x}.*$", text, re.M) for x in starts]
    return [line for (line,) in found]  # each is there once


def run_in(chroot: Path, commands: list[str], python: str) -> str:
    """Runs commands in a new virtual environment of the chroot; returns their output,
    which is printed meanwhile."""
    lines = [
        "cd /opt/embedder",
        f"{python} -m venv --clear /opt/venv",
        ". /opt/venv/bin/activate",
        *commands,
        "echo DONE",
    ]
    own = {name: x for name, x in os.environ.items() if name.startswith("PIP_")}
    data = os.environ.get("EMBEDDER_DATA", "")
    own |= {"EMBEDDER_DATA": "/data"} if data else {}
    environment = own | {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "CHROOT": str(chroot),
        "DATA": data,
        "COMMANDS": "\n".join(lines),
    }
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_CHROOT]
    found = []
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            found.append(line)
    return "".join(found)


def result(suite: str, log: str, seconds: float) -> str:
    """A row of a table: where, which versions, and what came out."""
    python = re.findall(r"^Python (\S+)$", log, re.M)
    versions = [
        f"{name} {match[1]}"
        for name in PACKAGES
        if (match := re.search(rf"^{name} +(\S+)$", log, re.M))
    ]
    tests = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", log)
    outcome = ", ".join(tests) or ("done" if "\nDONE\n" in log else "failed")
    date = time.strftime("%Y-%m-%d")
    name = python[-1] if python else "?"
    return (
        f"| {name} (Debian {suite}) | {', '.join(versions)} | {outcome} | "
        f"{seconds / 60:.0f} | {date} |"
    )


if __name__ == "__main__":
    sys.exit(main())
