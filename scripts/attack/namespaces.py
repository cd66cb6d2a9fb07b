"""Network namespaces of threads. What a thread starts is in its namespace, too. Python has these calls since 3.12 only."""

import contextlib
import ctypes
import os
import shutil
import subprocess

from verdicts import NotRun

CLONE_NEWNET = 0x4000_0000
LIBC = ctypes.CDLL(None, use_errno=True)


def needed(part):
    if os.geteuid() != 0:
        raise NotRun(f"`{part}` makes network namespaces, which needs root: sudo, or leave it out")
    if not shutil.which("ip"):
        raise NotRun(f"`{part}` needs `ip` (apt-get install iproute2)")


def done(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def leave():
    """Into an empty namespace, with loopback alone."""
    done(LIBC.unshare(CLONE_NEWNET))
    ip("link set lo up")


def enter(descriptor):
    done(LIBC.setns(descriptor, CLONE_NEWNET))


@contextlib.contextmanager
def and_back():
    """This thread is in its namespace of now afterwards."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        yield
    finally:
        enter(before)
        os.close(before)


@contextlib.contextmanager
def of(process):
    """This thread is in the namespace of this process."""
    with and_back():
        there = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY)
        try:
            enter(there)
        finally:
            os.close(there)
        yield


def ip(arguments):
    subprocess.run(["ip", *arguments.split()], check=True)
