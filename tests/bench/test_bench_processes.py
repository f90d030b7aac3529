"""Child processes in which benches measure."""

import subprocess

import pytest

from bench import processes


def test_the_last_line_is_parsed():
    assert processes.run_python("-c", "print('words'); print('[1, 2]')") == [1, 2]


def test_variables_are_added_to_those_of_this_process(monkeypatch):
    monkeypatch.setenv("ONE", "1")
    script = "import os; print(os.environ['ONE'] + os.environ['TWO'])"
    assert processes.run_python("-c", script, environment={"TWO": "2"}) == 12


def test_a_failed_process_raises_with_its_output():
    script = "import sys; sys.exit('no room')"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        processes.run_python("-c", script, stderr=subprocess.PIPE)
    assert failed.value.stderr == "no room\n"


def test_devices_of_a_cpu_come_after_other_flags(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--one")
    flags = "--one --xla_force_host_platform_device_count=3"
    assert processes.cpu_devices(3) == {"XLA_FLAGS": flags}
    monkeypatch.delenv("XLA_FLAGS")
    flags = "--xla_force_host_platform_device_count=3"
    assert processes.cpu_devices(3) == {"XLA_FLAGS": flags}
