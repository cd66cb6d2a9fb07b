"""A control group that bounds a process's memory, of cgroup v2 or v1, whichever holds the memory controller."""

import contextlib
import os
import pathlib
import time

from verdicts import NotRun

ROOT = pathlib.Path("/sys/fs/cgroup")


class MemoryGroup:
    """While it is entered, the group stands. `procs` is the file that takes the numbers of processes."""

    def __init__(self, name, limit):
        if os.geteuid() != 0:
            raise NotRun("`memory` makes a control group, which needs root: sudo, or leave it out")
        self.limit = limit
        controllers = ROOT / "cgroup.controllers"
        self.second = controllers.exists() and "memory" in controllers.read_text().split()
        self.folder = (ROOT if self.second else ROOT / "memory") / name
        if not self.second and not self.folder.parent.exists():
            raise NotRun(f"no memory controller at {ROOT}: mount cgroup2 there, or leave `memory` out")
        self.procs = self.folder / "cgroup.procs"

    def __enter__(self):
        if self.second:
            (ROOT / "cgroup.subtree_control").write_text("+memory")
        self.folder.mkdir(exist_ok=True)
        (self.folder / ("memory.max" if self.second else "memory.limit_in_bytes")).write_text(str(self.limit))
        return self

    def __exit__(self, *_):
        # until its last process is gone
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                break
            time.sleep(0.1)

    def figures(self):
        """MiB in use, now and at most, and how often the limit was reached."""
        read = lambda name: (self.folder / name).read_text()
        if self.second:
            now, most = "memory.current", "memory.peak"
            reached = dict(line.split() for line in read("memory.events").splitlines())["max"]
        else:
            now, most = "memory.usage_in_bytes", "memory.max_usage_in_bytes"
            reached = read("memory.failcnt")
        return {"group_mib": int(read(now)) >> 20, "group_most_mib": int(read(most)) >> 20, "limit_reached": int(reached)}
