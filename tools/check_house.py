"""Checks rules that a compiler does not check: which folder may include and link which other, without a cycle of folders; that an
include is a path in the repository, and a namespace follows it; that no file sees both LibTorch's headers and those of gRPC,
protobuf or spdlog (LibTorch's wheel contains its own copies of fmt and protobuf); that no two files have one name; and that each
folder has a short README.

Usage: check_house.py [ROOT]
Exit status: 0 if the rules hold, 1 otherwise, with one line per violation.
"""

import pathlib
import re
import sys

import verdict

# A folder may include itself and the folders and libraries listed here. The longest matching folder counts.
ALLOWED = {
    "base": set(),
    "proto": {"grpc", "json"},
    "slurm": {"base"},
    "spec": {"base", "re2"},
    "spec/jobfile": {"base", "proto", "slurm", "spec", "grpc", "json", "toml"},
    "data/chess": set(),
    "data/order": set(),
    "data/format": {"base", "fsdp/text"},
    "data/prepare": {"base", "data/chess", "data/format", "data/order", "data/prepare/images", "data/tokenizers", "spec", "json"},
    "data/tokenizers": {"base", "data/format", "json"},
    "data/prepare/images": {"base", "data/order", "images"},
    "fsdp": {"base", "libtorch"},
    "fsdp/text": {"json"},
    "fsdp/tracing": {"base", "fsdp/text", "libtorch"},
    "fsdp/memory": {"libtorch"},
    "fsdp/formats": set(),
    "fsdp/comm": {"base", "fsdp/text", "fsdp/tracing", "libtorch"},
    "fsdp/engine": {"fsdp/comm", "fsdp/formats", "fsdp/memory", "fsdp/text", "libtorch"},
    "fsdp/optim": {"fsdp/engine", "fsdp/formats", "fsdp/text", "fsdp/tracing", "libtorch"},
    "fsdp/files": {"base", "fsdp/comm", "fsdp/engine", "fsdp/optim", "fsdp/text", "fsdp/tracing", "libtorch"},
    "agent/protocol": {"base", "spec", "json"},
    "agent/environment": {"spec"},
    "agent/watch": {"agent/protocol", "base", "spec", "json"},
    "agent/process": {"agent/protocol", "base", "spec"},
    "agent/report": {"agent/environment", "agent/rank/grpc", "agent/protocol", "agent/rank", "agent/watch", "base", "proto", "spec"},
    "agent/use": {"agent/protocol", "base"},
    "agent/beside": {"agent/report", "agent/use", "agent/watch", "base", "spec"},
    "agent/stacks": {"agent/protocol", "base", "spec"},
    "agent/program": {"agent/beside", "agent/environment", "agent/rank/grpc", "agent/process", "agent/protocol", "agent/rank", "agent/report",
                      "agent/stacks", "agent/use", "agent/watch", "base", "proto", "slurm", "spec"},
    "agent/rank": {"agent/protocol", "spec"},
    "agent/rank/grpc": {"agent/protocol", "agent/rank", "base", "proto", "spec", "grpc"},
    "worker/models": {"data/order", "fsdp/text", "spec", "libtorch"},
    "worker/files": {"fsdp", "fsdp/files", "spec", "worker/models", "libtorch"},
    "worker/batch": {"base", "data/format", "data/order", "spec", "libtorch"},
    "worker/adapters": {"agent/rank", "base", "fsdp", "fsdp/files", "fsdp/text", "worker/models", "libtorch"},
    "worker/metrics": {"data/chess", "libtorch"},
    "worker/generate": {"data/order", "worker/batch", "worker/models", "libtorch"},
    "worker/train": {"agent/protocol", "agent/rank", "base", "data/format", "data/order", "fsdp", "fsdp/comm", "fsdp/engine", "fsdp/files",
                     "fsdp/memory", "fsdp/optim", "fsdp/text", "fsdp/tracing", "spec", "worker/batch", "worker/files", "worker/models",
                     "libtorch"},
    "worker/recipes": {"base", "data/chess", "data/format", "data/tokenizers", "fsdp/engine", "fsdp/files", "fsdp/optim", "fsdp/text",
                       "spec", "worker/adapters", "worker/batch", "worker/generate", "worker/metrics", "worker/models", "worker/train",
                       "libtorch"},
    "worker/plan": {"agent/rank", "base", "fsdp/comm", "fsdp/engine", "fsdp/memory", "fsdp/text", "spec", "worker/batch", "worker/recipes",
                    "worker/train", "libtorch"},
    "worker": {"agent/rank/grpc", "agent/rank", "base", "fsdp/files", "spec", "worker/plan", "worker/recipes", "worker/starter",
               "worker/train", "libtorch"},
    "worker/starter": {"base", "spec"},
    "worker/infer": {"agent/rank", "base", "data/prepare/images", "data/tokenizers", "fsdp", "fsdp/comm", "fsdp/engine", "fsdp/files",
                     "fsdp/text", "spec", "worker/adapters", "worker/batch", "worker/files", "worker/generate", "worker/models",
                     "worker/starter", "libtorch"},
    "controller/core": {"agent/protocol", "base", "spec"},
    "controller/store": {"base", "controller/core", "spec", "boost", "json", "sqlite"},
    "controller/logs": set(),
    "controller/net": {"base", "controller/common", "boost", "grpc"},
    "controller/common": {"agent/protocol", "base", "controller/core", "grpc", "json"},
    "controller/in_slurm": {"base", "controller/common", "slurm", "grpc"},
    "controller/executors": {"agent/environment", "agent/protocol", "base", "controller/common", "controller/core", "spec"},
    "controller/executors/local": {"agent/environment", "agent/process", "agent/protocol", "base", "controller/common",
                                   "controller/core", "controller/executors", "spec", "boost", "grpc"},
    "controller/executors/slurm": {"agent/protocol", "agent/watch", "base", "controller/common", "controller/core", "controller/executors",
                                   "slurm", "spec", "grpc", "json"},
    "controller/jobs": {"agent/protocol", "agent/watch", "base", "controller/common", "controller/core", "controller/store", "proto",
                        "spec", "spec/jobfile", "grpc", "json"},
    "controller/stacks": {"agent/protocol", "base", "controller/common", "controller/core", "grpc", "json"},
    "controller/ranks": {"agent/protocol", "agent/report", "agent/watch", "base", "controller/common", "controller/core",
                         "controller/executors", "controller/jobs", "controller/store", "proto", "grpc"},
    "controller/partitions": {"base", "controller/common", "controller/core", "controller/executors", "controller/jobs", "controller/store",
                              "proto", "spec", "spec/jobfile", "grpc", "json"},
    "controller/admission": {"controller/common", "controller/core", "controller/executors", "controller/jobs", "controller/partitions",
                             "proto", "spec/jobfile", "grpc"},
    "controller/actions": {"agent/environment", "agent/watch", "controller/admission", "controller/common", "controller/core",
                           "controller/executors", "controller/jobs", "controller/partitions", "controller/store", "proto", "spec",
                           "spec/jobfile", "grpc", "json"},
    "controller/service": {"agent/environment", "agent/protocol", "base", "controller/actions", "controller/admission", "controller/common",
                           "controller/core", "controller/executors", "controller/jobs", "controller/partitions", "controller/ranks",
                           "controller/stacks", "controller/store", "proto", "spec", "spec/jobfile", "grpc", "json"},
    "controller/rpc": {"base", "controller/common", "controller/core", "controller/logs", "controller/net", "controller/service", "proto", "spec",
                       "boost", "grpc"},
    "controller/http": {"base", "controller/common", "controller/core", "controller/logs", "controller/net", "controller/service", "proto",
                        "spec/jobfile", "boost", "json"},
    "controller/musterd": {"base", "controller/common", "controller/core", "controller/executors", "controller/executors/local",
                          "controller/executors/slurm", "controller/net", "controller/store", "slurm", "grpc", "json"},
    "controller": {"base", "controller/common", "controller/in_slurm", "controller/musterd", "controller/executors/slurm", "controller/http", "controller/net",
                   "controller/rpc", "controller/service", "controller/store", "slurm", "grpc", "json"},
    "cli": {"agent/environment", "agent/protocol", "agent/watch", "base", "controller/common", "controller/core", "controller/in_slurm",
            "controller/net", "proto", "slurm", "spec", "spec/jobfile", "grpc", "json", "toml"},
}
# The names of each library's headers and CMake targets.
LIBRARIES = [(name, re.compile(headers), re.compile(targets)) for name, headers, targets in [
    ("libtorch", r"^(torch|ATen|c10|gloo)/", r"^libtorch::"),
    ("grpc", r"^(grpc|grpcpp|google|spdlog)/", r"^(PkgConfig::GRPCPP|gRPC::|protobuf::|spdlog::)"),
    ("json", r"^nlohmann/", r"^nlohmann_json::"),
    ("toml", r"^toml\+\+/", r"^PkgConfig::TOMLPLUSPLUS$"),
    ("sqlite", r"^(SQLiteCpp/|sqlite3\.h)", r"^SQLiteCpp$"),
    ("boost", r"^boost/", r"^Boost::"),
    ("images", r"^(turbojpeg|png)\.h$", r"^(PNG::|PkgConfig::TURBOJPEG$)"),
    ("re2", r"^re2/", r"^PkgConfig::RE2$"),
]]
LONGEST_README = 15  # lines
TOPS = ["agent", "base", "cli", "controller", "data", "fsdp", "proto", "slurm", "spec", "worker"]
NAMESPACE_END = re.compile(r"^}  // namespace ([\w:]+)$", re.MULTILINE)  # clang-format writes it
CMAKE_CALL = re.compile(r"^\s*(muster_library|muster_torch_program|add_library|add_executable|target_link_libraries)\(([^)]*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path):
    """The longest folder of ALLOWED that contains this file."""
    return max((f for f in ALLOWED if path.startswith(f + "/")), key=len, default=None)


def resolve(root, name):
    """The project's file that an #include names, or None for a header of a library or of the standard."""
    return name if (root / name).is_file() else None


def library_of(name):
    """The library of a header, if any. Generated wire headers count as proto, because they include protobuf's headers."""
    if name.startswith("muster/v1/"):
        return "proto"
    return next((library for library, headers, _ in LIBRARIES if headers.match(name)), None)


def read_includes(root):
    """For each file, the project files and the libraries that it includes directly."""
    graph = {}
    for top in TOPS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".hpp", ".cpp"):
                continue
            here = path.relative_to(root).as_posix()
            files, libraries = set(), set()
            for _, name in INCLUDE.findall(path.read_text(errors="replace")):
                target = resolve(root, name)
                if target:
                    files.add(target)
                elif library_of(name):
                    libraries.add(library_of(name))
            graph[here] = (files, libraries)
    return graph


def short_includes(root, graph):
    """Includes of files of the project by less than their path."""
    for file in graph:
        for quote, name in INCLUDE.findall((root / file).read_text(errors="replace")):
            near = (root / file).parent / name
            if quote == '"' and resolve(root, name) is None and near.is_file():
                yield f"{file}: includes {name}; say {near.resolve().relative_to(root).as_posix()}"


def namespace_violations(root, graph):
    """Files whose namespace does not follow their folder: its first part names one of the folders above the file, and below agent/
    and data/ the second part does so, too."""
    for file in graph:
        ends = NAMESPACE_END.findall((root / file).read_text(errors="replace"))
        folders = file.split("/")[:-1]
        parts = ends[-1].split("::") if ends else []
        wrong = parts[:1] if parts and parts[0] not in folders else []
        if folders[0] in ("agent", "data") and parts and (len(parts) < 2 or parts[1] not in folders):
            wrong = parts
        if wrong:
            yield f"{file}: namespace {'::'.join(parts)}, which names no folder above the file"


def name_violations(graph):
    """Files of two folders that have one name. main.cpp is each program's."""
    places = {}
    for file in graph:
        path = pathlib.PurePosixPath(file)
        places.setdefault(path.stem, set()).add(path.parent.as_posix())
    for name, folders in sorted(places.items()):
        first, *others = sorted(folders)
        for other in others if name != "main" else []:
            yield f"{other}/{name}: has the name of {first}/{name}; a reader who looks for one finds two"


def readme_violations(root, graph):
    for folder in sorted({folder_of(file) for file in graph} - {None}):
        readme = root / folder / "README.md"
        lines = len(readme.read_text().splitlines()) if readme.is_file() else 0
        if lines == 0:
            yield f"{folder}: no README.md, which says what the folder is for, where a story enters and which test to read first"
        elif lines > LONGEST_README:
            yield f"{folder}/README.md: {lines} lines, of {LONGEST_README} at most"


def seen_libraries(graph, start):
    """The libraries that a file sees through all its includes, direct and indirect."""
    todo, seen, libraries = [start], set(), set()
    while todo:
        file = todo.pop()
        if file in seen or file not in graph:
            continue
        seen.add(file)
        libraries |= graph[file][1]
        todo.extend(graph[file][0])
    return libraries


def read_links(root):
    """For each target in the folders' CMakeLists.txt, the folders of its sources and the targets that it links."""
    targets = {}
    for top in TOPS:
        for path in sorted((root / top).rglob("CMakeLists.txt")):
            here = path.parent.relative_to(root)
            for call, text in CMAKE_CALL.findall(re.sub(r"#.*", "", path.read_text())):
                name, *words = text.split()
                folders, linked = targets.setdefault(name, (set(), []))
                if call == "target_link_libraries":
                    linked += words
                    continue
                linked += words[words.index("DEPENDS") + 1:] if "DEPENDS" in words else []
                sources = [word for word in words if word.endswith(".cpp") and "$" not in word]
                folders |= {folder_of((here / source).as_posix()) for source in sources} or {folder_of(f"{here.as_posix()}/x")}
    return targets


def link_violations(root):
    targets = read_links(root)
    for name, (folders, linked) in targets.items():
        allowed = folders.union(*(ALLOWED.get(folder, set()) for folder in folders))
        for other in linked:
            library = next((library for library, _, linked_as in LIBRARIES if linked_as.match(other)), None)
            needed = {library} if library else targets.get(other, (set(), []))[0] - {None}
            if needed and not needed & allowed:
                yield f"{name} links {other}, but {', '.join(sorted(filter(None, folders)))} may not link {', '.join(sorted(needed))}"


def cycles(allowed):
    """The cycles of folders that these rules let in, each once. One is wrong even while no file uses it."""
    found = {}
    for start in allowed:
        before, todo = {}, [start]
        while todo:
            folder = todo.pop()
            for target in sorted(allowed[folder] & allowed.keys()):
                if target == start:
                    path = [folder]
                    while path[0] != start:
                        path.insert(0, before[path[0]])
                    found.setdefault(frozenset(path), path)
                elif target not in before:
                    before[target] = folder
                    todo.append(target)
    return list(found.values())


def violations(root):
    for path in cycles(ALLOWED):
        yield f"ALLOWED: a cycle of folders: {' -> '.join(path + path[:1])}"
    graph = read_includes(root)
    if not graph:
        yield f"{root}: no source files found"
    for file, (files, libraries) in graph.items():
        folder = folder_of(file)
        if folder is None:
            yield f"{file}: no rule for this folder in ALLOWED"
            continue
        allowed = ALLOWED[folder] | {folder}
        for target in sorted(files):
            target_folder = folder_of(target)
            if target_folder not in allowed and target != file:
                yield f"{file}: includes {target}, but {folder} may not include {target_folder}"
        for library in sorted(libraries - allowed):
            yield f"{file}: includes a header of {library}, which {folder} may not"
        everything = seen_libraries(graph, file)
        if "libtorch" in everything and everything & {"grpc", "proto"}:
            yield f"{file}: sees headers of both LibTorch and gRPC/protobuf/spdlog"
    yield from short_includes(root, graph)
    yield from namespace_violations(root, graph)
    yield from name_violations(graph)
    yield from readme_violations(root, graph)
    yield from link_violations(root)


if __name__ == "__main__":
    sys.exit(verdict.of(violations))
