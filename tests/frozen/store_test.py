"""Goal: today's musterd opens the store of the last released version, tells the same of it, and goes on with its jobs.

Method: the databases that freeze.py has kept. New fields may have come, and none may be gone or say something else.
Usage: store_test.py BIN_FOLDER
"""

import json
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import freeze  # noqa: E402

BIN = None
VERSIONS = sorted(folder for folder in HERE.iterdir() if (folder / "told.json").exists())


def lost(kept, now, place=""):
    """What is not said any more: lines of place, what was said, and what is said now."""
    if isinstance(kept, dict) and isinstance(now, dict):
        return [line for key, value in kept.items() for line in lost(value, now.get(key), f"{place}.{key}")]
    if isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        return [line for i, value in enumerate(kept) for line in lost(value, now[i], f"{place}[{i}]")]
    return [] if kept == now else [f"{place}: {kept!r} -> {now!r}"]


class Store(unittest.TestCase):
    def test_is_opened_told_and_gone_on_with(self):
        self.assertTrue(VERSIONS)
        for version in VERSIONS:
            with self.subTest(version.name), tempfile.TemporaryDirectory() as temporary:
                data = pathlib.Path(temporary) / "data"
                data.mkdir(mode=0o700)
                for name in ("muster", "metrics"):
                    freeze.load(version / f"{name}.sql", data / f"{name}.db")
                kept = json.loads((version / "told.json").read_text())
                with freeze.daemon(BIN, data) as musterd:
                    now = freeze.told(musterd, kept["jobs"])
                    self.assertEqual("\n".join(lost(kept["told"], now)), "")
                    waiting, held, after = kept["jobs"][-3:]
                    musterd.muster("release", held)
                    musterd.muster("admin", "resume")
                    for job in (waiting, held, after):
                        musterd.ended(job)
                        self.assertEqual(musterd.state(job), "succeeded", job)
                    again = musterd.ended(musterd.submit(freeze.SHORT.format("new")))
                    self.assertGreater(int(again), max(int(job) for job in kept["jobs"]))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
