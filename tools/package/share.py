"""Writes what is installed beside programs and comes from their help: man pages and completion.

Usage: share.py BIN_FOLDER SHARE_FOLDER VERSION
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import reference

reference.COLUMNS = "80"
COMPLETION = {"bash": "bash-completion/completions/muster", "zsh": "zsh/site-functions/_muster",
              "fish": "fish/vendor_completions.d/muster.fish"}


def roff(text):
    """Text for man as it stands: backslashes and leading points and quotes have a meaning in roff."""
    lines = (line.replace("\\", "\\e").replace("-", "\\-") for line in text.rstrip().splitlines())
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def page(name, section, title, version, parts):
    out = [f'.TH {name.upper()} {section} "" "muster {version}"', ".SH NAME", f"{name} \\- {title}"]
    for heading, text in parts:
        out += [f'.SH "{heading}"', ".nf", roff(text), ".fi"]
    return "\n".join(out) + "\n"


def help_of_program(binaries, name):
    return subprocess.run([name, "--help"], executable=binaries / name, capture_output=True, text=True, check=True,
                          env={"HOME": "/nonexistent", "COLUMNS": reference.COLUMNS}).stdout


def pages(binaries, version):
    """The man pages by the names of their files."""
    commands = list(reference.all_commands(binaries))
    (_, muster), rest = commands[0], commands[1:]
    parts = [("DESCRIPTION", muster), *((" ".join(("muster", *words)), text.split(reference.KEYS_BEGIN)[0])
                                        for words, text in rest)]
    yield "man1/muster.1", page("muster", 1, "submit, watch and requeue training jobs", version, parts)
    yield "man8/musterd.8", page("musterd", 8, "daemon that runs and watches training jobs", version,
                                 [("DESCRIPTION", help_of_program(binaries, "musterd"))])
    submit = reference.help_of(binaries, "submit")
    yield "man5/muster-job.5", page("muster-job", 5, "job file of muster", version,
                                    [("DESCRIPTION", reference.KEYS_BEGIN + submit.split(reference.KEYS_BEGIN, 1)[1])])


def main():
    binaries, share, version = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3]
    files = {"man/" + name: text for name, text in pages(binaries, version)}
    for shell, name in COMPLETION.items():
        files[name] = subprocess.run([binaries / "muster", "completion", shell], capture_output=True, text=True, check=True).stdout
    for name, text in files.items():
        file = share / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
