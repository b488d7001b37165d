"""systemctl --user and loginctl as muster up needs them, with one state folder ($FAKE_SYSTEMD) and real processes.

Usage: fake_systemd.py systemctl|loginctl WORD...
"""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

STATE = pathlib.Path(os.environ["FAKE_SYSTEMD"])
UNITS = pathlib.Path(os.environ["HOME"]) / ".config/systemd/user"
END_LIMIT_S = 60


def lines_of(unit, key):
    return [line.partition("=")[2] for line in (UNITS / unit).read_text().splitlines() if line.startswith(key + "=")]


def plain(text):
    return text.replace("%%", "%")


def main_pid(unit):
    """The process of the unit; 0: it has ended."""
    try:
        pid = int((STATE / f"{unit}.pid").read_text())
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return 0 if state == "Z" else pid
    except (OSError, ValueError):
        return 0


def start(unit):
    if main_pid(unit):
        return
    command = [plain(word).replace("$$", "$") for word in shlex.split(lines_of(unit, "ExecStart")[0])]
    own = dict(plain(shlex.split(line)[0]).split("=", 1) for line in lines_of(unit, "Environment"))
    log = plain(lines_of(unit, "StandardError")[0].removeprefix("append:"))
    with open(log, "ab") as err:
        process = subprocess.Popen(command, env={"HOME": os.environ["HOME"], **own}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=err, start_new_session=True)
    (STATE / f"{unit}.pid").write_text(str(process.pid))


def stop(unit):
    pid = main_pid(unit)
    if pid > 1:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + END_LIMIT_S
    while main_pid(unit):
        if time.monotonic() > end:
            sys.exit("it does not end")
        time.sleep(0.02)


def systemctl(words):
    match words:
        case ["--user", "show-environment"] | ["--user", "daemon-reload"]:
            pass
        case ["--user", "enable", "--now", unit]:
            start(unit)
        case ["--user", "disable", "--now", unit]:
            stop(unit)
        case ["--user", "show", unit, "--property=MainPID", "--value"]:
            print(main_pid(unit))
        case ["--user", "show", unit, "--property=ActiveState", "--value"]:
            print("active" if main_pid(unit) else "failed")
        case ["--user", "show", unit, "--property=SubState", "--value"]:
            print("running" if main_pid(unit) else "failed")
        case _:
            sys.exit(f"unknown: {words}")


def loginctl(words):
    match words:
        case ["show-user", _, "--property=Linger", "--value"]:
            print("yes" if (STATE / "linger").exists() else "no")
        case ["enable-linger"]:
            if (STATE / "refuses-linger").exists():
                sys.exit("Could not enable linger: Access denied")
            (STATE / "linger").touch()
        case _:
            sys.exit(f"unknown: {words}")


if __name__ == "__main__":
    with open(STATE / "asked", "a", encoding="utf-8") as asked:
        asked.write(" ".join(sys.argv[1:]) + "\n")
    {"systemctl": systemctl, "loginctl": loginctl}[sys.argv[1]](sys.argv[2:])
