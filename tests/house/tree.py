"""A small tree of files, and what a check of tools/ says of it."""

import os
import pathlib
import subprocess
import sys
import tempfile


def check_tree(check, files, **environment):
    """Runs the check on a folder that has these files, by their names. Returns its exit status and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, "-B", check, folder], capture_output=True, text=True, env=dict(os.environ, **environment))
    return done.returncode, done.stdout
