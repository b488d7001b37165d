"""./dev setup gets the crates of the tokenizers once, with a cargo that can build them, and leaves nothing half-done."""

import unittest

from setup_test import SetupCase


class SetupCrates(SetupCase):
    """cargo is a script here, which writes down how it is called and makes the folder that it is to make."""

    def setUp(self):
        super().setUp()
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()
        self.packages.write_text("[tokenizers]\ncargo-web cargo\n")
        self.free_space(100_000)
        self.cargo("1.85.0")

    def cargo(self, version, vendor="for last in \"$@\"; do :; done; mkdir \"$last\"; echo crate > \"$last/crate\""):
        self.tool("cargo", f'if [ "$1" = --version ]; then echo "cargo {version} (x)"; exit; fi\n'
                           f'echo "$@" >> {self.folder}/cargo-calls\n{vendor}')

    def setup(self, **environment):
        return super().setup(**{"MUSTER_LIBTORCH": str(self.folder), "MUSTER_TOKENIZERS": "1", **environment})

    def calls(self):
        file = self.folder / "cargo-calls"
        return file.read_text().splitlines() if file.exists() else []

    def test_the_crates_of_the_lock_file_are_unpacked_and_the_second_time_nothing_is_done(self):
        done = self.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("will download the crate tokenizers", done.stderr)
        self.assertEqual(self.left_behind(), ["crates"])
        self.assertEqual((self.deps / "crates" / "crate").read_text(), "crate\n")
        self.assertEqual(len(self.calls()), 1)
        self.assertIn("vendor --quiet --locked --manifest-path data/tokenizers/crate/Cargo.toml", self.calls()[0])
        done = self.setup()
        self.assertEqual((done.returncode, done.stderr, len(self.calls())), (0, "setup: everything is there\n", 1))

    def test_another_lock_file_brings_its_crates(self):
        (self.deps / "crates").mkdir(parents=True)
        (self.deps / "crates" / "old").touch()
        (self.deps / "crates" / ".complete").write_text("0" * 64 + "  -\n")
        self.assertEqual(self.setup().returncode, 0)
        self.assertEqual(sorted(path.name for path in (self.deps / "crates").iterdir()), [".complete", "crate"])

    def test_a_cargo_that_is_too_old_is_named_with_what_to_install(self):
        self.cargo("0.66.0")
        self.refused("cargo is 0.66.0", "need 1.85", "cargo-web", "MUSTER_TOKENIZERS=0")
        self.assertEqual((self.left_behind(), self.calls()), ([], []))

    def test_a_failed_download_leaves_nothing_behind(self):
        self.cargo("1.95.0", "echo 'error: failed to download from crates.io' >&2; exit 101")
        self.refused("downloading the crates of data/tokenizers/crate/Cargo.lock failed", "failed to download from crates.io")
        self.assertEqual(self.left_behind(), [])

    def test_a_missing_cargo_is_a_missing_package(self):
        (self.tools / "cargo").unlink()
        self.take_away("cargo")  # and apt-get is not there either
        self.refused("there is no apt-get: cargo-web")

    def test_without_tokenizers_no_cargo_is_needed(self):
        (self.tools / "cargo").unlink()
        self.take_away("cargo")
        done = self.setup(MUSTER_TOKENIZERS="0")
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))

    def test_too_little_room_is_said_before_anything_is_downloaded(self):
        self.free_space(1)
        self.refused("has 1 MiB free", "MUSTER_DEPS_FOLDER")
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
