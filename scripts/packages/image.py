#!/usr/bin/env python3
"""Writes a container image without a container program: `image.py PROGRAM amd64|arm64 VERSION OUT`.

OUT is an OCI image layout as a tar, with Docker's manifest.json beside it, so that skopeo, podman and every `docker load`
take it. The image holds the program, its user, its folders and the certificates of authorities. SOURCE_DATE_EPOCH dates
all; the same input gives the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
USER = 65532  # as in distroless images: nobody's on a host
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def entry(name, mode, kind=tarfile.REGTYPE, size=0, owner=0):
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.size, info.mtime = mode, kind, size, EPOCH
    info.uid = info.gid = owner
    return info


def archive(entries):
    """A tar of (entry, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def layer(program):
    """The file system's only layer."""
    files = {
        "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nekiden:x:{USER}:{USER}:Ekiden:/var/lib/ekiden:/sbin/nologin\n".encode(),
        "etc/group": f"root:x:0:\nekiden:x:{USER}:\n".encode(),
        "etc/ssl/certs/ca-certificates.crt": AUTHORITIES.read_bytes(),
        "usr/share/doc/ekiden/LICENSE-APACHE": (ROOT / "LICENSE-APACHE").read_bytes(),
        "usr/share/doc/ekiden/LICENSE-MIT": (ROOT / "LICENSE-MIT").read_bytes(),
    }
    # the daemon's own: state, control socket, log, cache
    own = ["run/ekiden", "var/cache/ekiden", "var/lib/ekiden", "var/log/ekiden"]
    parents = {str(parent) for path in [*files, *own, "usr/bin/x", "etc/ekiden/x"] for parent in Path(path).parents}
    folders = sorted(parents - {"."} - set(own))
    entries = [(entry(name, 0o755, tarfile.DIRTYPE), b"") for name in folders]
    entries += [(entry(name, 0o700, tarfile.DIRTYPE, owner=USER), b"") for name in own]
    entries.append((entry("tmp", 0o1777, tarfile.DIRTYPE), b""))
    entries += [(entry(name, 0o644, size=len(content)), content) for name, content in files.items()]
    entries.append((entry("usr/bin/ekiden", 0o755, size=len(program)), program))
    return archive(entries)


def main(program, architecture, version, out):
    if not AUTHORITIES.exists():
        sys.exit(f"image: {AUTHORITIES} is missing; in Debian: apt-get install ca-certificates")
    plain = layer(Path(program).read_bytes())
    packed = gzip.compress(plain, 9, mtime=0)
    created = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "ekiden",
        "org.opencontainers.image.description": "A TCP accelerator for long, lossy, asymmetric and shared links",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": created,
    }
    blobs = {}

    def blob(media_type, content, **more):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    def document(value):
        return json.dumps(value, indent=1, sort_keys=True).encode()

    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"3128/tcp": {}, "4433/tcp": {}, "4433/udp": {}},
            "Env": [
                "PATH=/usr/bin",
                "STATE_DIRECTORY=/var/lib/ekiden",
                "RUNTIME_DIRECTORY=/run/ekiden",
                f"SSL_CERT_FILE={AUTHORITIES}",
            ],
            "Entrypoint": ["/usr/bin/ekiden"],
            "Cmd": ["serve"],
            "Volumes": {"/var/lib/ekiden": {}},
            "WorkingDir": "/var/lib/ekiden",
            "Labels": labels,
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/packages/image.py"}],
    }
    image = "application/vnd.oci.image."
    described = blob(f"{image}config.v1+json", document(config))
    layered = blob(f"{image}layer.v1.tar+gzip", packed)
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{image}manifest.v1+json",
        "config": described,
        "layers": [layered],
        "annotations": labels,
    }
    name = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"localhost/ekiden:{version}"}
    platform = {"architecture": architecture, "os": "linux"}
    listed = blob(f"{image}manifest.v1+json", document(manifest), annotations=name, platform=platform)
    index = {"schemaVersion": 2, "mediaType": f"{image}index.v1+json", "manifests": [listed]}
    path = lambda described: "blobs/sha256/" + described["digest"].removeprefix("sha256:")
    docker = [{"Config": path(described), "RepoTags": [f"localhost/ekiden:{version}"], "Layers": [path(layered)]}]
    files = {
        "oci-layout": document({"imageLayoutVersion": "1.0.0"}),
        "index.json": document(index),
        "manifest.json": document(docker),
        **blobs,
    }
    folders = [(entry(name, 0o755, tarfile.DIRTYPE), b"") for name in ("blobs", "blobs/sha256")]
    files = [(entry(name, 0o644, size=len(content)), content) for name, content in sorted(files.items())]
    new = Path(f"{out}.new")
    new.write_bytes(archive(folders + files))
    new.rename(out)


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[2] not in ("amd64", "arm64"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
