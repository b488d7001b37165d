"""What ./dev setup says when something is wrong: one clear line, and nothing half-done.

Method: the real script with its own lists and folders; nothing is installed or downloaded.
"""

import hashlib
import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS_TOOLS = ("awk", "bash", "cat", "df", "dirname", "grep", "id", "mkdir", "mktemp", "mv", "python3", "realpath",
                 "rm", "sha256sum", "sort", "tail", "unzip")
PROMPT = "Go ahead? [Y/n] "
TERMINAL_LIMIT_S = 120
FULL_DISK = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"


class SetupCase(unittest.TestCase):
    """The script with lists, wheels and tools of the test's own; pip sees no index."""

    options = []

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.deps = self.folder / "deps"
        self.packages = self.folder / "packages.txt"
        self.packages.write_text("# none\nbash bash\n")
        self.wheels = self.folder / "wheels"
        self.wheels.mkdir()
        self.tools = self.folder / "bin"
        self.tools.mkdir()
        self.path = f"{self.tools}:{os.environ['PATH']}"

    def environment_of(self, **changes):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MUSTER_", "PIP_"))}
        clean.update(MUSTER_PACKAGE_LIST=str(self.packages), MUSTER_DEPS_FOLDER=str(self.deps), PATH=self.path,
                     PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.wheels), TMPDIR=str(self.folder), MUSTER_TOKENIZERS="0")
        clean.update(changes)
        return clean

    def setup(self, **environment):
        return subprocess.run(["./dev", "setup", *self.options], cwd=ROOT, env=self.environment_of(**environment),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=150)

    def setup_on_a_terminal(self, *options, answer=b"n\n", **environment):
        """Exit status and everything on the screen. The answer is typed when the question is there."""
        ours, its = pty.openpty()
        with subprocess.Popen(["./dev", "setup", *options], cwd=ROOT, env=self.environment_of(**environment),
                              stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
            os.close(its)
            screen, deadline = b"", time.monotonic() + TERMINAL_LIMIT_S
            while True:
                if not select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    process.kill()
                    self.fail(f"still running after {TERMINAL_LIMIT_S} s: {screen}")
                try:
                    screen += os.read(ours, 4096)
                except OSError:  # nobody has the other side open any more
                    break
                if answer is not None and PROMPT.encode() in screen:
                    os.write(ours, answer)
                    answer = None
        os.close(ours)
        return process.returncode, screen.decode().replace("\r\n", "\n")

    def refused(self, *texts, **environment):
        """The set-up fails, and its last line says why."""
        done = self.setup(**environment)
        self.assertNotEqual(done.returncode, 0)
        last = done.stderr.splitlines()[-1]
        self.assertTrue(last.startswith("dev: "), done.stderr)
        for text in texts:
            self.assertIn(text, last)

    def tool(self, name, script):
        """Puts a program of that name before the real one."""
        (self.tools / name).write_text("#!/bin/sh\n" + script + "\n")
        (self.tools / name).chmod(0o755)

    def free_space(self, mib):
        self.tool("df", f"printf 'head\\n/dev/x 10 9 {mib} 90%% /\\n'")

    def take_away(self, *names):
        """From now on these programs are not to be found; of the others, those that the script names are."""
        few = self.folder / "few"
        few.mkdir()
        for name in {*SCRIPTS_TOOLS, *(path.name for path in self.tools.iterdir())}:
            if name not in names:
                (few / name).symlink_to(shutil.which(name, path=self.path))
        self.path = str(few)

    def apt_get(self, script=""):
        """An apt-get that writes down how it is called; `script` is what it does when it is to install."""
        self.tool("apt-get", f'echo "$@" >> {self.folder}/apt-calls\ncase "$*" in *install*) {script or ":"} ;; esac')

    def apt_calls(self):
        file = self.folder / "apt-calls"
        return file.read_text() if file.exists() else ""

    def user(self, number):
        self.tool("id", f"echo {number}")

    def wheel(self, name, files):
        """A wheel for any platform, and its line in a list."""
        info = f"{name}-1.0.dist-info"
        files = dict(files)
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        path = self.wheels / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for inside, text in files.items():
                archive.writestr(inside, text)
        return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"

    def left_behind(self):
        return sorted(path.name for path in self.deps.glob("*"))


class Setup(SetupCase):
    def test_a_package_that_does_not_exist_is_named_in_one_line(self):
        self.packages.write_text("no-such-package-as-this\n")
        self.user(0)
        self.apt_get("echo 'E: Unable to locate package no-such-package-as-this' >&2; exit 100")
        self.refused("E: Unable to locate package no-such-package-as-this", MUSTER_LIBTORCH="/nonexistent")
        self.assertEqual(self.apt_calls(), "update -qq\n"
                         "install -y -qq --no-install-recommends no-such-package-as-this\n")

    def test_a_user_who_can_not_become_root_is_told_which_packages_are_missing(self):
        self.packages.write_text("no-such-package-as-this\nbash bash\nnor-this\n")
        self.user(1000)
        self.apt_get()
        self.take_away("sudo")
        self.refused("needs root", "no-such-package-as-this nor-this", "sudo", MUSTER_LIBTORCH="/nonexistent")
        self.assertEqual(self.apt_calls(), "")

    def test_a_user_with_sudo_installs_through_it(self):
        self.packages.write_text("no-such-package-as-this\n")
        self.user(1000)
        self.apt_get()
        self.tool("sudo", f'echo "sudo $@" >> {self.folder}/apt-calls; exec "$@"')
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()
        self.assertEqual(self.setup(MUSTER_LIBTORCH=str(self.folder)).returncode, 0)
        self.assertIn("sudo env DEBIAN_FRONTEND=noninteractive apt-get install", self.apt_calls())
        self.assertIn("\ninstall -y -qq --no-install-recommends no-such-package-as-this\n", self.apt_calls())

    def test_a_sudo_that_refuses_is_quoted_beside_the_packages(self):
        self.packages.write_text("no-such-package-as-this\n")
        self.user(1000)
        self.apt_get()
        self.tool("sudo", "echo 'sudo: a password is required' >&2; exit 1")
        self.refused("no-such-package-as-this", "sudo: a password is required", MUSTER_LIBTORCH="/nonexistent")
        self.assertEqual(self.apt_calls(), "")

    def test_packages_that_are_missing_where_there_is_no_apt_get_are_named(self):
        self.packages.write_text("bash bash\nno-such-package-as-this no-such-command\n")
        self.take_away()  # dpkg-query and apt-get are not among them
        self.refused("there is no apt-get: no-such-package-as-this", MUSTER_LIBTORCH="/nonexistent")

    def test_a_libtorch_folder_without_libtorch_is_named(self):
        self.refused("no lib/libtorch_cpu.so", MUSTER_LIBTORCH=str(self.folder))

    def test_a_libtorch_that_is_there_is_used_and_nothing_is_done(self):
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()
        done = self.setup(MUSTER_LIBTORCH=str(self.folder))
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))
        self.assertFalse((self.folder / "deps").exists())

    def test_a_wrong_hash_is_refused_and_leaves_nothing_behind(self):
        (self.wheels / "torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"not a wheel")
        wrong = self.folder / "libtorch.txt"
        wrong.write_text("torch==2.11.0 --hash=sha256:" + "0" * 64 + "\n")
        self.free_space(100_000)
        self.refused("wrong hash", MUSTER_LIBTORCH_LIST=str(wrong))
        self.assertEqual(self.left_behind(), [])

    def test_too_little_room_is_said_before_anything_is_downloaded(self):
        self.free_space(1)
        self.refused("has 1 MiB free")


class SetupAsks(SetupCase):
    """On a terminal it asks before it installs; elsewhere, and with --yes, it goes ahead."""

    def setUp(self):
        super().setUp()
        self.packages.write_text("no-such-package-as-this\n")
        self.user(0)
        self.apt_get()
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()

    def on_a_terminal(self, *options, answer=b"n\n"):
        return self.setup_on_a_terminal(*options, answer=answer, MUSTER_LIBTORCH=str(self.folder))

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_no_means_that_nothing_is_installed_and_nothing_is_left(self):
        before = self.files()
        for answer in (b"n\n", b"No\n", b"what?\n", b"\x04"):  # the last: Ctrl-D
            with self.subTest(answer=answer):
                code, screen = self.on_a_terminal(answer=answer)
                self.assertEqual(code, 1, screen)
                self.assertIn("setup: will install 1 Debian packages: no-such-package-as-this\n" + PROMPT, screen)
                self.assertEqual(screen.splitlines()[-1].removeprefix(PROMPT), "dev: nothing was installed")
                self.assertEqual(self.files(), before)

    def test_yes_goes_ahead(self):
        for answer in (b"y\n", b"Yes\n", b"\n"):
            with self.subTest(answer=answer):
                (self.folder / "apt-calls").unlink(missing_ok=True)
                code, screen = self.on_a_terminal(answer=answer)
                self.assertEqual(code, 0, screen)
                self.assertIn(PROMPT, screen)
                self.assertIn("install -y", self.apt_calls())
                self.assertEqual(screen.splitlines()[-1], "setup: everything is there")

    def test_the_flag_yes_asks_nothing_on_a_terminal(self):
        code, screen = self.on_a_terminal("--yes")
        self.assertEqual(code, 0, screen)
        self.assertNotIn("Go ahead", screen)
        self.assertIn("install -y", self.apt_calls())

    def test_without_a_terminal_nothing_is_asked(self):
        done = self.setup(MUSTER_LIBTORCH=str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Go ahead", done.stderr)
        self.assertIn("install -y", self.apt_calls())

    def test_a_download_is_asked_about_like_packages(self):
        self.packages.write_text("bash bash\n")
        before = self.files()
        code, screen = self.setup_on_a_terminal(answer=b"n\n")
        self.assertEqual(code, 1, screen)
        self.assertIn("will download LibTorch", screen)
        self.assertIn("dev: nothing was installed", screen)
        self.assertEqual(self.files(), before)

    def test_who_can_not_install_is_not_asked(self):
        self.user(1000)
        self.take_away("sudo")
        code, screen = self.on_a_terminal(answer=b"y\n")
        self.assertEqual(code, 1, screen)
        self.assertNotIn(PROMPT, screen)
        self.assertIn("no-such-package-as-this", screen.splitlines()[-1])


class SetupCuda(SetupCase):
    options = ["--cuda"]

    def setUp(self):
        super().setUp()
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()
        self.list = self.folder / "cuda.txt"
        self.list.write_text(self.wheel("nvidia_thing", {"nvidia/thing/include/thing.h": "// a header",
                                                         "nvidia/thing/lib/libthing.so": "a library",
                                                         "nvidia/thing/bin/thing": "a program"}))
        self.compiler = self.folder / "nvcc.txt"
        self.compiler.write_text(self.wheel("nvidia_compiler", {"nvidia/cu13/bin/nvcc": "a compiler",
                                                                "nvidia/cu13/nvvm/bin/cicc": "a part of it",
                                                                "nvidia/cu13/lib/libother.so": "a library"}))
        self.free_space(100_000)

    def setup(self, **environment):
        return super().setup(MUSTER_LIBTORCH=str(self.folder), MUSTER_CUDA_LIST=str(self.list),
                             MUSTER_NVCC_LIST=str(self.compiler), **environment)

    def test_headers_and_libraries_are_unpacked_and_the_second_time_nothing_is_done(self):
        done = self.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        thing = self.deps / "cuda" / "nvidia" / "thing"
        self.assertEqual(sorted(path.name for path in thing.rglob("*.*")), ["libthing.so", "thing.h"])
        self.assertFalse((thing / "bin").exists())
        compiler = self.deps / "nvcc" / "nvidia" / "cu13"
        self.assertEqual(sorted(path.name for path in compiler.rglob("*") if path.is_file()), ["cicc", "nvcc"])
        self.assertEqual(self.left_behind(), ["cuda", "nvcc"])
        self.take_away("python3", "unzip", "df")
        done = self.setup()
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))

    def test_another_list_is_unpacked_in_place_of_the_old_one(self):
        self.assertEqual(self.setup().returncode, 0)
        self.list.write_text(self.wheel("nvidia_other", {"nvidia/other/include/other.h": ""}))
        self.assertEqual(self.setup().returncode, 0)
        self.assertEqual([path.name for path in (self.deps / "cuda" / "nvidia").glob("*")], ["other"])

    def test_a_wrong_hash_is_refused_and_leaves_nothing_behind(self):
        self.list.write_text("nvidia_thing==1.0 --hash=sha256:" + "0" * 64 + "\n")
        self.refused("wrong hash", str(self.list))
        self.assertEqual(self.left_behind(), [])

    def test_a_list_without_a_hash_is_refused(self):
        self.list.write_text("nvidia_thing==1.0\n")
        self.refused("hash")
        self.assertEqual(self.left_behind(), [])

    def test_what_was_there_stays_when_a_new_list_is_refused(self):
        self.assertEqual(self.setup().returncode, 0)
        self.list.write_text("nvidia_thing==1.0 --hash=sha256:" + "0" * 64 + "\n")
        self.refused("wrong hash")
        self.assertTrue((self.deps / "cuda" / "nvidia" / "thing" / "include" / "thing.h").exists())

    def test_a_wheel_that_is_nowhere_is_named(self):
        self.list.write_text("nvidia_nowhere==1.0 --hash=sha256:" + "0" * 64 + "\n")
        self.refused("nvidia_nowhere")
        self.assertEqual(self.left_behind(), [])

    def test_too_little_room_is_said_before_anything_is_downloaded(self):
        self.free_space(4999)
        self.tool("python3", "echo started >> " + str(self.folder / "downloads"))
        self.refused("CUDA needs 5000 MiB", "has 4999 MiB free", "MUSTER_DEPS_FOLDER")
        self.assertFalse((self.folder / "downloads").exists())

    def test_a_disk_that_fills_up_while_downloading_is_said(self):
        self.tool("python3", f"echo '{FULL_DISK}' >&2; exit 1")
        self.refused("the disk is full while downloading", "MUSTER_DEPS_FOLDER")
        self.assertEqual(self.left_behind(), [])

    def test_a_disk_that_fills_up_while_unpacking_is_said(self):
        self.tool("unzip", "exit 50")
        self.refused("unpacking nvidia_thing-1.0-py3-none-any.whl", "is the disk full?")
        self.assertEqual(self.left_behind(), [])

    def test_a_python_without_pip_is_said(self):
        self.tool("python3", "echo '/usr/bin/python3: No module named pip' >&2; exit 1")
        self.refused("No module named pip")
        self.assertEqual(self.left_behind(), [])

    def test_a_missing_unzip_is_said_before_anything_is_downloaded(self):
        self.take_away("unzip")
        self.refused("unzip")
        self.assertEqual(self.left_behind(), [])

    def test_a_folder_that_takes_no_writes_is_named(self):
        self.deps = self.folder / "lib" / "libtorch_cpu.so" / "deps"
        self.refused(f"can't create {self.deps}", "MUSTER_DEPS_FOLDER")


class SetupPeers(SetupCase):
    options = ["--peers"]

    def setUp(self):
        super().setUp()
        if sys.version_info[:2] != (3, 11):
            self.skipTest("the judges' packages are for Python 3.11")
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()
        cuda_list = self.folder / "cuda.txt"
        cuda_list.write_text("# none\n")
        (self.deps / "cuda" / "nvidia").mkdir(parents=True)
        (self.deps / "cuda" / ".complete").write_text(hashlib.sha256(cuda_list.read_bytes()).hexdigest() + "  -\n")
        self.list = self.folder / "peers.txt"
        modules = {"torch": "", "transformers": "LlamaForCausalLM = None\n", "safetensors": ""}
        self.list.write_text("".join(self.wheel(name, {f"{name}.py": text}) for name, text in modules.items()))
        self.environment = dict(MUSTER_LIBTORCH=str(self.folder), MUSTER_CUDA_LIST=str(cuda_list),
                                MUSTER_PEERS_LIST=str(self.list))
        self.free_space(100_000)
        self.python = shutil.which("python3")
        # The same environment with the pip that is there: to install a second one takes long.
        self.python_where("-m venv", f"exec {self.python} -m venv --without-pip --system-site-packages $3")

    def setup(self, **environment):
        return super().setup(**self.environment, **environment)

    def python_where(self, words, script):
        """The real Python, except for command lines that hold these words."""
        self.tool("python3", f"case \"$*\" in *'{words}'*) {script} ;; *) exec {self.python} \"$@\" ;; esac")

    def test_the_judges_are_installed_and_the_second_time_nothing_is_done(self):
        done = self.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        python = self.deps / "peers" / "bin" / "python"
        where = subprocess.run([python, "-c", "import os, nvidia, torch; print(os.path.realpath(list(nvidia.__path__)[0]))"],
                               capture_output=True, text=True)
        self.assertEqual(where.stdout.strip(), os.path.realpath(self.deps / "cuda" / "nvidia"), where.stderr)
        self.assertEqual(self.left_behind(), ["cuda", "peers"])
        self.take_away("python3", "df")
        done = self.setup()
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))

    def test_a_checkout_that_moves_takes_them_along(self):
        self.assertEqual(self.setup().returncode, 0)
        self.deps = self.deps.rename(self.folder / "moved")
        self.take_away("python3", "df")
        done = self.setup()
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))

    def test_a_wrong_hash_is_refused_and_leaves_nothing_behind(self):
        self.list.write_text("torch==1.0 --hash=sha256:" + "0" * 64 + "\n")
        self.refused(str(self.list), "DO NOT MATCH THE HASHES")
        self.assertEqual(self.left_behind(), ["cuda"])

    def test_packages_that_cannot_be_imported_are_told_and_tried_anew_the_next_time(self):
        good = self.list.read_text()
        self.list.write_text(self.wheel("torch", {"torch.py": "raise ImportError('libcudart.so.13 is not there')\n"})
                             + "".join(good.splitlines(keepends=True)[1:]))
        self.refused("can't be imported", "libcudart.so.13 is not there")
        self.refused("can't be imported", "libcudart.so.13 is not there")

    def test_another_python_is_named(self):
        self.python_where("version_info", "exit 1")
        self.refused("are for Python 3.11, and python3 is Python 3.11.")
        self.assertEqual(self.left_behind(), ["cuda"])

    def test_a_python_that_cannot_make_environments_says_which_package_is_missing(self):
        self.python_where("-m venv", "mkdir $3; printf 'ensurepip is not available\\n\\nFailing command: x\\n'; exit 1")
        self.refused("python3 -m venv failed", "python3-venv")
        self.assertEqual(self.left_behind(), ["cuda"])

    def test_too_little_room_is_said_before_anything_is_downloaded(self):
        self.free_space(2499)
        self.refused("PyTorch needs 2500 MiB", "has 2499 MiB free", "MUSTER_DEPS_FOLDER")
        self.assertEqual(self.left_behind(), ["cuda"])

    def test_a_disk_that_fills_up_while_installing_is_said(self):
        pip = self.folder / "pip"
        pip.write_text(f"#!/bin/sh\necho 'WARNING: something else' >&2\necho '{FULL_DISK}' >&2\nexit 1\n")
        pip.chmod(0o755)
        self.python_where("-m venv", f"mkdir -p $3/bin; cp {pip} $3/bin/python")
        self.refused(f"installing {self.list} failed", "No space left on device", "MUSTER_DEPS_FOLDER")
        self.assertEqual(self.left_behind(), ["cuda"])

    def test_the_newest_torch_has_its_own_libraries_and_finds_the_others_beside_them(self):
        self.options = ["--newest-torch"]
        libraries = self.deps / "cuda" / "nvidia"
        for name in ("one/lib/libone.so.1", "two/lib/libtwo.so.1"):
            (libraries / name).parent.mkdir(parents=True)
            (libraries / name).write_text("of the pinned list")
        newest = self.folder / "newest.txt"
        newest.write_text(self.wheel("newest_torch", {"torch.py": "", "nvidia/two/lib/libtwo.so.1": "its own"}))
        self.environment["MUSTER_NEWEST_TORCH_LIST"] = str(newest)
        done = self.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.left_behind(), ["cuda", "peers", "peers-torch-newest"])
        beside = self.deps / "peers-torch-newest" / "nvidia"
        self.assertEqual([(beside / name).read_text() for name in ("one/lib/libone.so.1", "two/lib/libtwo.so.1")],
                         ["of the pinned list", "its own"])
        self.take_away("python3", "df")
        done = self.setup()
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))

    def test_a_newest_torch_with_a_wrong_hash_is_refused_and_the_judges_stay(self):
        self.options = ["--newest-torch"]
        newest = self.folder / "newest.txt"
        newest.write_text(self.wheel("newest_torch", {"torch.py": ""}).split(" ")[0] + " --hash=sha256:" + "0" * 64 + "\n")
        self.environment["MUSTER_NEWEST_TORCH_LIST"] = str(newest)
        self.refused(str(newest), "DO NOT MATCH THE HASHES")
        self.assertEqual(self.left_behind(), ["cuda", "peers"])

    def test_the_judges_need_cuda_first_and_its_failure_is_theirs(self):
        (self.deps / "cuda" / ".complete").unlink()
        self.free_space(3000)
        self.refused("CUDA needs 5000 MiB")
        self.assertEqual(self.left_behind(), ["cuda"])


if __name__ == "__main__":
    unittest.main()
