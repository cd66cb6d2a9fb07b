"""Which of a target's edges a corpus reaches, by source file.

libFuzzer writes the number of each edge that an input reaches into the control file of a merge. The edges' addresses
are in the program's section `__sancov_pcs`, as relocations; llvm-symbolizer names their files.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import tempfile


def tool(name):
    """Debian's have their version in their name, where `llvm` itself is not installed."""
    for candidate in (name, *(f"{name}-{version}" for version in range(30, 12, -1))):
        if shutil.which(candidate):
            return candidate
    return None


def edges(program):
    """Addresses within the file, in the table's order."""
    sections = subprocess.check_output(["readelf", "-W", "-S", program], text=True)
    found = re.search(r"__sancov_pcs\s+\S+\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)", sections)
    if not found:
        return []
    begin, length = (int(number, 16) for number in found.groups())
    relocations = subprocess.check_output(["readelf", "-W", "-r", program], text=True)
    # each entry is an address and its flags; only the address is relocated
    pairs = re.findall(r"^([0-9a-f]+)\s+[0-9a-f]+\s+R_\w+_RELATIVE\s+([0-9a-f]+)", relocations, re.M)
    table = sorted((int(at, 16), int(to, 16)) for at, to in pairs)
    return [to for at, to in table if begin <= at < begin + length]


def reached(program, corpora):
    """Numbers of edges."""
    with tempfile.TemporaryDirectory(prefix="ekiden-coverage-") as folder:
        control, empty = pathlib.Path(folder) / "control", pathlib.Path(folder) / "empty"
        empty.mkdir()
        command = [program, "-merge=1", "-timeout=30", f"-merge_control_file={control}", empty, *corpora]
        subprocess.run([str(part) for part in command], capture_output=True)
        lines = re.findall(r"^COV \d+((?: \d+)*)$", control.read_text(), re.M) if control.exists() else []
    return {int(number) for line in lines for number in line.split()}


def files_of(program, addresses):
    """The files of each address: that of its line, and of the functions that it is inlined into."""
    command = [tool("llvm-symbolizer"), f"--obj={program}", "--output-style=LLVM", "--functions=none"]
    lines = "\n".join(hex(address) for address in addresses)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    blocks = done.stdout.strip().split("\n\n")
    return [[line.rsplit(":", 2)[0] for line in block.splitlines()] for block in blocks]


def of(program, corpora, wanted):
    """Edges reached of those there are, in files whose path has one of `wanted` and in what is inlined there; `None` where
    a tool is missing."""
    if not tool("llvm-symbolizer") or not shutil.which("readelf"):
        return None
    addresses = edges(program)
    if not addresses:
        return None
    seen, files = reached(program, corpora), collections.defaultdict(lambda: [0, 0])
    for number, stack in enumerate(files_of(program, addresses)):
        found = next(((file, part) for file in stack for part in wanted if f"/{part}" in f"/{file}"), None)
        if found:
            file, part = found
            name = file[file.index(part):]
            files[name][0] += number in seen
            files[name][1] += 1
    covered, there = (sum(counts[nth] for counts in files.values()) for nth in (0, 1))
    return {"covered": covered, "all": there, "files": {name: f"{a} of {b}" for name, (a, b) in sorted(files.items())}}
