"""Checks rules that a compiler does not check: which folder may include and link which other, without a cycle of folders, and that
no file sees both LibTorch's headers and those of gRPC, protobuf or spdlog (LibTorch's wheel contains its own copies of fmt and
protobuf).

Usage: check_house.py [ROOT]
Exit status: 0 if the rules hold, 1 otherwise, with one line per violation.
"""

import pathlib
import re
import sys

import verdict

# A folder may include itself and the folders and libraries listed here. The longest matching folder counts.
ALLOWED = {
    "schema": set(),
    "chess": set(),
    "fsdp": {"libtorch", "fsdp/include/fsdp/json.h"},
    # JSON with the standard library alone, for those that may see neither LibTorch nor nlohmann.
    "fsdp/include/fsdp/json.h": set(),
    "proto": {"grpc", "json"},
    "slurm": {"os", "boost"},
    "os": set(),
    "contract": {"json", "re2", "schema/whole_number.h"},
    "launch": {"contract"},
    "tokens": {"json", "os", "tokens/tokenizer_files.h"},
    # The names of a tokenizer's files, with the standard library alone, for workers without tokenizers.
    "tokens/tokenizer_files.h": set(),
    "beside": {"contract", "json", "os", "schema"},
    "prepared": {"os", "fsdp/include/fsdp/json.h"},
    "agent/process": {"contract", "os", "schema"},
    "agent/report": {"beside", "contract", "launch", "os", "schema", "worker/rank", "worker/rank/grpc", "proto"},
    "agent/use": {"contract", "os"},
    "agent/stacks": {"contract", "os", "schema"},
    "agent/supervisor": {"agent/process", "agent/report", "agent/stacks", "agent/use", "beside", "contract", "launch", "os"},
    "agent/task": {"agent/process", "agent/report", "agent/stacks", "agent/use", "beside", "contract", "launch", "os", "slurm", "worker/rank", "worker/rank/grpc", "proto", "grpc"},
    "prepare": {"chess", "json", "os", "prepare/images", "prepared", "schema", "tokens", "tokens/tokenizer_files.h", "worker/data"},
    "prepare/images": {"images", "os", "worker/data"},
    "worker": {"fsdp", "libtorch"},
    "worker/models": {"fsdp/include/fsdp/json.h", "libtorch", "schema", "worker/data"},
    "worker/files": {"fsdp", "libtorch", "schema", "worker/models"},
    "worker/data": set(),
    "worker/batch": {"libtorch", "prepared", "schema", "worker/data", "worker/rank"},
    "worker/adapters": {"fsdp", "fsdp/include/fsdp/json.h", "libtorch", "os", "worker/models", "worker/rank"},
    "worker/metrics": {"chess", "libtorch"},
    "worker/generate": {"libtorch", "worker/batch", "worker/data", "worker/models"},
    "worker/rank": {"contract", "schema"},
    "worker/rank/grpc": {"contract", "os", "schema", "worker/rank", "proto", "grpc"},
    "worker/train": {"contract", "os", "fsdp", "fsdp/include/fsdp/json.h", "libtorch", "prepared", "schema", "worker/files", "worker/models", "worker/batch", "worker/data", "worker/rank", "tokens/tokenizer_files.h"},
    "worker/recipes": {"worker/adapters", "chess", "contract", "fsdp", "os", "prepared", "tokens", "tokens/tokenizer_files.h", "worker/generate", "worker/metrics", "fsdp/include/fsdp/json.h", "libtorch", "schema", "worker/batch", "worker/data", "worker/models", "worker/rank", "worker/train"},
    "worker/plan": {"contract", "os", "fsdp", "fsdp/include/fsdp/json.h", "libtorch", "schema", "worker/batch", "worker/recipes", "worker/train", "worker/data", "worker/rank"},
    "worker/main.cpp": {"contract", "fsdp", "libtorch", "os", "schema", "worker/plan", "worker/recipes", "worker/train", "worker/rank", "worker/data", "worker/models"},
    "infer": {"worker/adapters", "fsdp", "fsdp/include/fsdp/json.h", "infer/flags.h", "libtorch", "os", "prepare/images", "schema", "tokens", "worker/batch", "worker/files", "worker/generate", "worker/models", "worker/rank"},
    # The options of muster-infer, which muster has, too.
    "infer/flags.h": set(),
    "controller/core": {"contract", "schema"},
    "controller/store": {"os", "controller/core", "schema", "boost", "json", "sqlite"},
    "controller/jobfile": {"contract", "controller/core", "launch", "schema", "proto", "slurm", "grpc", "json", "toml"},
    "controller/logs": set(),
    "controller/net": {"os", "controller/base", "controller/core", "grpc", "boost"},
    "controller/base": {"contract", "os", "schema", "controller/core", "grpc"},
    "controller/executors": {"contract", "launch", "schema", "controller/base", "controller/core"},
    "controller/executors/local": {"contract", "agent/process", "agent/supervisor", "launch", "os", "controller/base", "controller/core", "controller/executors", "boost", "grpc"},
    "controller/executors/slurm": {"beside", "contract", "launch", "os", "schema", "slurm", "controller/base", "controller/core", "controller/executors", "json", "grpc", "boost"},
    "controller/jobs": {"beside", "contract", "os", "schema", "controller/base", "controller/core", "controller/store", "proto", "grpc", "json"},
    "controller/stacks": {"contract", "os", "controller/base", "controller/core", "json", "grpc"},
    "controller/ranks": {"agent/report", "beside", "contract", "os", "schema", "controller/base", "controller/core", "controller/executors", "controller/jobs", "controller/store", "proto", "grpc"},
    "controller/partitions": {"schema", "controller/base", "controller/core", "controller/executors", "controller/jobfile", "controller/jobs",
                              "controller/store", "proto", "grpc", "json"},
    "controller/admission": {"controller/base", "controller/core", "controller/executors", "controller/jobs", "controller/partitions", "proto",
                             "grpc"},
    "controller/actions": {"contract", "os", "beside", "launch", "controller/admission", "controller/base", "controller/core", "controller/executors",
                           "controller/jobfile", "controller/jobs", "controller/partitions", "controller/store", "proto", "grpc", "json"},
    "controller/service": {"contract", "launch", "schema", "controller/actions", "controller/admission", "controller/base", "controller/core", "controller/executors",
                           "controller/jobfile", "controller/jobs", "controller/partitions", "controller/ranks", "controller/stacks", "controller/store",
                           "proto", "grpc", "json"},
    "controller/rpc": {"schema", "controller/base", "controller/core", "controller/net", "controller/service", "controller/logs", "proto", "grpc",
                       "boost"},
    "controller/http": {"os", "schema", "launch", "controller/base", "controller/core", "controller/jobfile", "controller/net", "controller/service", "controller/logs", "proto", "grpc", "json", "boost"},
    "controller/cli": {"contract", "infer/flags.h", "os", "beside", "schema", "controller/base", "controller/core", "controller/jobfile", "controller/net",
                       "launch", "slurm", "proto", "grpc", "json", "toml"},
    "controller/daemon": {"os", "controller/base", "controller/core", "controller/net", "controller/store", "controller/executors",
                          "controller/executors/local", "controller/executors/slurm", "slurm", "json", "grpc"},
    "controller/main.cpp": {"os", "controller/daemon", "controller/base", "controller/core", "controller/net", "controller/store",
                            "controller/executors", "controller/executors/local", "controller/executors/slurm", "controller/service",
                            "slurm", "controller/rpc", "controller/http", "proto", "grpc", "json"},
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
TOPS = ["agent", "beside", "chess", "fsdp", "infer", "launch", "os", "prepare", "prepared", "proto", "schema", "slurm", "tokens", "worker", "controller"]
CMAKE_CALL = re.compile(r"^\s*(muster_library|add_library|add_executable|target_link_libraries)\(([^)]*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ROOTS = ["fsdp/include", "fsdp/src", "slurm/include", "slurm/src", "proto", "worker", "controller", "."]


def folder_of(path):
    """The longest folder of ALLOWED that contains this file. The grpc_* files of worker/rank count as a folder of their own."""
    if path.startswith("worker/rank/grpc_") or path == "worker/rank/make_reporter.cpp":
        return "worker/rank/grpc"
    return max((f for f in ALLOWED if path == f or path.startswith(f + "/")), key=len, default=None)


def resolve(root, including, name):
    """The project's file that an #include names, or None for a header of a library or of the standard."""
    for candidate in [pathlib.Path(including).parent / name] + [pathlib.Path(r) / name for r in ROOTS]:
        if (root / candidate).is_file():
            return candidate.as_posix()
    return None


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
                target = resolve(root, here, name)
                if target:
                    files.add(target)
                elif library_of(name):
                    libraries.add(library_of(name))
            graph[here] = (files, libraries)
    return graph


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
    yield from link_violations(root)


if __name__ == "__main__":
    sys.exit(verdict.of(violations))
