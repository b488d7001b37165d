"""Goal: the engine and the worker build on a machine with only LibTorch, CMake, a compiler and the headers of nlohmann's
JSON.
Method: both are configured in their own folder, with every other package hidden that CMake could find. The compiled files
may have read only headers of LibTorch, of that JSON, of the compiler and of the C library. The engine's tests pass where
GoogleTest is installed too, and package_test.py passes on what this build installs. The worker trains two ranks by itself.

Usage: alone_test.py SOURCES BUILD_FOLDER LIBTORCH MUSTER_DATA
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "cluster"))
import processes  # noqa: E402

SOURCES, BUILD, LIBTORCH, MUSTER_DATA = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
HIDDEN = ("GTest", "gRPC", "Protobuf", "Boost", "SQLite3", "SQLiteCpp", "spdlog", "fmt", "OpenSSL", "ZLIB",
          "tomlplusplus", "CLI11", "prometheus-cpp", "PkgConfig", "absl")
# Folders of /usr/include that belong to the compiler, the C library, the kernel and the JSON library.
PLAIN = {"c++", "x86_64-linux-gnu", "aarch64-linux-gnu", "linux", "asm", "asm-generic", "sys", "bits", "gnu", "net", "netinet",
         "arpa", "rpc", "nlohmann"}
FOREIGN_FILES = {"zlib.h", "sqlite3.h", "zconf.h"}
RUN = SOURCES / "examples" / "alone.json"


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=1400, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def configure(source, folder, *settings, shown=()):
    # The same flags as in the preset dev, so that ccache has most of the worker.
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder, "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O2", f"-DMUSTER_LIBTORCH={LIBTORCH}",
        *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=TRUE" for name in HIDDEN if name not in shown), *settings)


def headers_of(folder, part):
    """The absolute paths of all headers that were read for objects below this part of the build folder."""
    paths, wanted = set(), False
    for line in run("ninja", "-C", folder, "-t", "deps").splitlines():
        if line.startswith("    "):
            paths |= {line.strip()} if wanted else set()
        else:
            wanted = line.startswith(part)
    return {pathlib.Path(os.path.normpath(folder / path)) for path in paths}


class Alone(unittest.TestCase):
    def expect_nothing_foreign(self, folder, part=""):
        headers = headers_of(folder, part)
        self.assertTrue(any(LIBTORCH in path.parents for path in headers), "no header of LibTorch was read?")
        foreign = []
        for path in headers:
            try:
                inside = path.relative_to("/usr/include")
            except ValueError:
                continue
            if inside.parts[0] not in PLAIN and (len(inside.parts) > 1 or inside.name in FOREIGN_FILES):
                foreign.append(str(path))
        self.assertEqual(sorted(foreign), [])

    def test_without_googletest_the_engine_has_no_tests(self):
        folder = BUILD / "engine"
        configure(SOURCES / "fsdp", folder)
        targets = run("ninja", "-C", folder, "-t", "targets", "all")
        self.assertIn("libfsdp.a", targets)
        self.assertNotIn("fsdp_test", targets)

    def test_the_engine_builds_and_trains_alone(self):
        folder = BUILD / "tested-engine"
        configure(SOURCES / "fsdp", folder, "-DMUSTER_UNITY=ON", shown={"GTest"})
        # One program of the engine's tests. ccache knows nothing of this folder, and all of them take a quarter of an hour.
        run("ninja", "-C", folder, "-j2", "fsdp_streams_test")
        self.expect_nothing_foreign(folder, "CMakeFiles/fsdp.dir/")
        said = run("ctest", "--test-dir", folder, "-j2", "-R", "Streams[.]|StepGraph", "--no-tests=error")
        self.assertRegex(said, "100% tests passed, 0 tests failed out of [1-9]")
        run(sys.executable, "-B", SOURCES / "tests" / "fsdp" / "package_test.py", SOURCES, folder, LIBTORCH)

    def test_the_worker_without_a_controller_trains(self):
        folder = BUILD.with_name(BUILD.name + "-worker")  # as deep as the preset's, for ccache
        configure(SOURCES, folder, "-DMUSTER_WITH_CONTROLLER=OFF", "-DMUSTER_WITH_TESTS=OFF", "-DMUSTER_UNITY=ON")
        run("ninja", "-C", folder, "-j2", "muster-worker")
        self.expect_nothing_foreign(folder)
        worker = folder / "bin" / "muster-worker"
        self.assertNotIn("grpc", run("ldd", worker))
        with tempfile.TemporaryDirectory() as place:
            run(MUSTER_DATA, "prepare", "--from", "fixture", "--to", "alone-data", cwd=place)
            ports = processes.Ports()  # claimed for as long as it lives
            port = ports.take()
            ranks = []
            for rank in range(2):
                environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                               "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                ranks.append(subprocess.Popen([worker, "--run-file", RUN], cwd=place, env=environment,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            try:
                for rank in ranks:
                    said = rank.communicate(timeout=120)[0]
                    self.assertEqual(rank.returncode, 0, said)
            finally:
                for rank in ranks:
                    rank.kill()
            rows = [json.loads(line) for line in pathlib.Path(place, "metrics.rank0.jsonl").read_text().splitlines()]
            self.assertEqual([row["step"] for row in rows if "step" in row and "checkpoint" not in row], [1, 2, 3])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
