#!/usr/bin/env python3
"""What is inside a program: `bill.py sbom|notices TARGET full|lean`, to standard output.

sbom: CycloneDX 1.5 in JSON, of cargo's resolved dependencies for the target, of the C libraries that some of them
bring, and of what the dashboard's page is built from. notices: name, version and licence of each, and the texts of their licences.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# crate → C libraries whose sources it brings: name, licence, file and pattern that tell the version, folder of the texts
LIBRARIES = {
    "libbpf-sys": [
        ("libbpf", "LGPL-2.1-only OR BSD-2-Clause", "libbpf/src/Makefile", r"LIBBPF_(?:MAJOR|MINOR|PATCH)_VERSION := (\d+)", "libbpf"),
        ("libelf (elfutils)", "LGPL-3.0-or-later OR GPL-2.0-or-later", "elfutils/configure.ac", r"AC_INIT\(\[elfutils\],\[([\d.]+)\]", "elfutils"),
        ("zlib", "Zlib", "zlib/zlib.h", r'ZLIB_VERSION "([\d.]+)', "zlib"),
    ],
    "libsqlite3-sys": [("SQLite", "blessing", "sqlite3/sqlite3.h", r'SQLITE_VERSION +"([\d.]+)"', "sqlite3")],
    "zstd-sys": [("zstd", "BSD-3-Clause", "zstd/lib/zstd.h", r"ZSTD_VERSION_(?:MAJOR|MINOR|RELEASE) +(\d+)", "zstd")],
    "lz4-sys": [("lz4", "BSD-2-Clause", "liblz4/lib/lz4.h", r"LZ4_VERSION_(?:MAJOR|MINOR|RELEASE) +(\d+)", "liblz4")],
}

# what the page of crates/admin/web is built from, which the lean program lacks: name and licence; the texts are there
PAGE = [("preact", "MIT"), ("uplot", "MIT")]


def cargo(command, *arguments):
    where = ["--locked", "--manifest-path", str(ROOT / "crates/ekiden/Cargo.toml")]
    command = [os.environ.get("CARGO", "cargo"), command, *where, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def resolved(target, kind):
    """The packages that the program is linked from, without those of builds and tests, by name and version."""
    features = ["--no-default-features"] if kind == "lean" else []
    metadata = json.loads(cargo("metadata", "--format-version=1", "--filter-platform", target, *features))
    # metadata takes the features of all crates of the workspace together, tree those of the program
    tree = cargo("tree", "--edges=normal,no-proc-macro", "--prefix=none", "--format={p}", "--target", target, *features)
    linked_in = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == "ekiden")
    edges, open_ids = {}, [root]
    while open_ids:
        id = open_ids.pop()
        if id in edges:
            continue
        here = lambda id: (packages[id]["name"], "v" + packages[id]["version"]) in linked_in
        linked = [d["pkg"] for d in nodes[id]["deps"] if any(k["kind"] is None for k in d["dep_kinds"]) and here(d["pkg"])]
        # a macro runs in the compiler
        macros = {i for i in linked if any("proc-macro" in t["kind"] for t in packages[i]["targets"])}
        edges[id] = sorted(set(linked) - macros)
        open_ids += edges[id]
    ours = set(metadata["workspace_members"])
    return packages, edges, root, ours


def version_of(folder, file, pattern):
    found = re.findall(pattern, (folder / file).read_text(errors="replace"))
    if not found:
        sys.exit(f"bill: {folder / file} does not tell its version any more; mend LIBRARIES in {__file__}")
    return ".".join(found[:3])


def libraries(package):
    """The C libraries of a crate: name, version, licence, folder of its texts."""
    folder = Path(package["manifest_path"]).parent
    for name, licence, file, pattern, texts in LIBRARIES.get(package["name"], []):
        yield name, version_of(folder, file, pattern), licence, folder / texts


def page_libraries(kind):
    """The libraries within the page: name, version, licence, folder of its texts."""
    folder = ROOT / "crates/admin/web"
    versions = json.loads((folder / "package.json").read_text())["dependencies"]
    for name, licence in PAGE if kind == "full" else []:
        yield name, versions[name], licence, folder / "licences" / name


def licence_of(package):
    # the older way to write OR
    return re.sub(r" */ *", " OR ", package["license"] or "")


def sbom(target, kind):
    packages, edges, root, ours = resolved(target, kind)
    checksums = lock_checksums()
    reference = lambda id: f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}"
    components, extra = [], {}
    for id in sorted(edges, key=reference):
        package = packages[id]
        component = {"type": "library", "bom-ref": reference(id), "name": package["name"], "version": package["version"]}
        if id not in ours:
            component["purl"] = reference(id)
        if licence_of(package):
            component["licenses"] = [{"expression": licence_of(package)}]
        if checksum := checksums.get((package["name"], package["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if id != root:
            components.append(component)
        else:
            own = component | {"type": "application"}
        for name, version, licence, _ in libraries(package):
            ref = f"pkg:generic/{name.split()[0].lower()}@{version}"
            extra.setdefault(id, []).append(ref)
            component = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
            components.append(component | {"licenses": [{"expression": licence}]})
    for name, version, licence, _ in page_libraries(kind):
        ref = f"pkg:npm/{name}@{version}"
        extra.setdefault(root, []).append(ref)
        component = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
        components.append(component | {"licenses": [{"expression": licence}]})
    depends = [{"ref": reference(id), "dependsOn": sorted([*map(reference, to), *extra.get(id, [])])} for id, to in edges.items()]
    if kind == "lean":
        own["properties"] = [{"name": "cargo:features", "value": "none"}]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own, "properties": [{"name": "cargo:target", "value": target}]},
        "components": components,
        "dependencies": sorted(depends, key=lambda d: d["ref"]),
    }
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        from datetime import datetime, timezone

        document["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    print(json.dumps(document, indent=1))


def lock_checksums():
    """The SHA-256 of each crate's archive, from Cargo.lock."""
    entry = re.compile(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"')
    return {(name, version): sum for name, version, sum in entry.findall((ROOT / "Cargo.lock").read_text())}


def notices(target, kind):
    packages, edges, _, ours = resolved(target, kind)
    texts, lines = {}, []

    def add(name, version, licence, folder):
        lines.append(f"{name} {version}: {licence or 'see its text'}")
        files = [f for f in sorted(folder.iterdir()) if f.is_file() and re.match(r"(?i)(licen[cs]e|copying|notice|unlicense)", f.name)]
        for file in files:
            text = file.read_text(errors="replace").strip()
            key = hashlib.sha256(" ".join(text.split()).encode()).digest()
            texts.setdefault(key, (text, []))[1].append(f"{name} {version}")

    for id in sorted(set(edges) - ours, key=lambda id: (packages[id]["name"], packages[id]["version"])):
        package = packages[id]
        add(package["name"], package["version"], licence_of(package), Path(package["manifest_path"]).parent)
        for library in libraries(package):
            add(*library)
    for library in page_libraries(kind):
        add(*library)
    lines.append("musl and the Rust standard library: MIT; MIT OR Apache-2.0")
    print("The program contains these libraries.\n\n" + "\n".join(lines))
    for text, users in texts.values():
        print(f"\n{'-' * 80}\n{', '.join(dict.fromkeys(users))}\n{'-' * 80}\n\n{text}")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("sbom", "notices") or sys.argv[3] not in ("full", "lean"):
        sys.exit(__doc__)
    {"sbom": sbom, "notices": notices}[sys.argv[1]](sys.argv[2], sys.argv[3])
