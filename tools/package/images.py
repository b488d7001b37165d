"""Images: Debian's essential packages and muster's, with or without the worker, as an OCI layout in one tar.

mmdebstrap makes the root file system and umoci the layout, so no daemon is needed. The same packages, commit and
SOURCE_DATE_EPOCH give the same bytes.
"""

import datetime
import json
import os
import pathlib
import subprocess
import tarfile

from . import archive
from .bootstrap import bootstrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = "/var/lib/muster"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A port can be published only where musterd listens beyond the container's own loopback. Whoever publishes it names the
# address, so the choice stays with that person. These are the arguments that a person's own replace: a container in the
# network of its host is started without them, and listens on loopback.
LISTEN = ["--listen", "0.0.0.0:7600", "--http", "0.0.0.0:7601", "--insecure-listen"]
# Agents outlive musterd by design, so they are children of process 1, and a process 1 must reap its children: tini does.
ENTRY = ["/usr/bin/tini", "--", "/usr/bin/musterd"]
NOT_NEEDED = ("man", "locale", "doc", "info")


def commit(*words):
    return subprocess.run(["git", "-C", ROOT, "log", "-1", *words], check=True, capture_output=True, text=True).stdout.strip()


def root_file_system(debs, file, epoch, packages):
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in NOT_NEEDED]
    # Licences stay, those of LibTorch and of CUDA's libraries among them.
    options += [f"--dpkgopt=path-include=/usr/share/doc/{kept}" for kept in ("*/copyright", "muster-worker/*")]
    hooks = [hook for deb in debs for hook in (
        f"--customize-hook=copy-in '{deb}' /tmp", f'--customize-hook=chroot "$1" dpkg --install /tmp/{deb.name} > /dev/null',
        f'--customize-hook=rm "$1/tmp/{deb.name}"')]
    return bootstrap("bookworm", file, "--variant=essential", f"--include={','.join(['passwd', 'tini', *packages])}", *options, *hooks,
                     SOURCE_DATE_EPOCH=str(epoch))


def user_of(root):
    """The numbers of the user that the package made: Kubernetes wants numbers to see that it is not root."""
    with tarfile.open(root) as tar:
        for line in tar.extractfile("./etc/passwd").read().decode().splitlines():
            if line.startswith("muster:"):
                return ":".join(line.split(":")[2:4])
    raise SystemExit(f"package: {root.name} has no user muster; the Debian package makes it when it is installed")


def name_it(layout, name):
    """Gives the image its name where podman, containerd and docker look for it; docker before 25 reads manifest.json alone."""
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0]["annotations"]["io.containerd.image.name"] = f"localhost/{name}"
    (layout / "index.json").write_text(json.dumps(index))
    blob = lambda entry: "blobs/" + entry["digest"].replace(":", "/")
    manifest = json.loads((layout / blob(index["manifests"][0])).read_text())
    (layout / "manifest.json").write_text(json.dumps([{
        "Config": blob(manifest["config"]), "RepoTags": [f"localhost/{name}"], "Layers": [blob(layer) for layer in manifest["layers"]]}]))


def build(debs, output, work, version, name="muster", packages=()):
    """An image of that name that holds these packages of ours, and those of Debian that they need. Returns its file."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or commit("--format=%ct"))
    made = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    root = root_file_system(debs, work / f"{name}-image.tar", epoch, packages)
    layout = work / f"{name}-image"
    image = f"{layout}:{version}"
    labels = {"title": name, "description": "submits, watches and requeues training jobs", "version": version,
              "licenses": "Apache-2.0", "revision": commit("--format=%H"), "created": made}
    config = {"user": [user_of(root)], "env": [f"PATH={PATH}", f"MUSTER_DATA_FOLDER={DATA}"], "workingdir": [DATA], "volume": [DATA],
              "exposedports": ["7600/tcp", "7601/tcp"], "entrypoint": ENTRY, "cmd": LISTEN,
              "label": [f"org.opencontainers.image.{label}={value}" for label, value in labels.items()]}
    umoci = lambda *words: subprocess.run(["umoci", *words], check=True)
    umoci("init", "--layout", layout)
    umoci("new", "--image", image)
    umoci("raw", "add-layer", "--image", image, "--history.created", made, "--history.created_by", f"Debian 12 and {' and '.join(deb.name for deb in debs)}", root)
    umoci("config", "--image", image, "--created", made, "--no-history",
          *(f"--config.{key}={value}" for key, values in config.items() for value in values))
    umoci("gc", "--layout", layout)
    name_it(layout, f"{name}:{version}")
    root.unlink()
    file = output / f"{name}-{version}-linux-x86_64.oci.tar"
    part = file.with_name(file.name + ".part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        archive.add(tar, layout, pathlib.PurePath())
    part.rename(file)
    return file
