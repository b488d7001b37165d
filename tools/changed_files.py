"""Which files of the repository in the current folder differ from main. Tools use it that look at changed files alone."""

import subprocess


class Unknown(Exception):
    """git could not tell. The text says what failed."""


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unknown(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def changed_files(deleted=False):
    """The files that differ from the point where this branch left main, and untracked files. Deleted files only if asked for."""
    base = git("merge-base", "main", "HEAD")[0]
    # Without renames, a moved file counts as deleted and as new.
    differ = git("diff", "--name-only", "--no-renames", *([] if deleted else ["--diff-filter=d"]), base)
    return sorted({*differ, *git("ls-files", "--others", "--exclude-standard")})
