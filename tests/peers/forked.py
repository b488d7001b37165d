"""Programs of Python that start at once: they are forked from a process that has imported what they import.

Importing PyTorch and transformers takes seconds of a processor, and most programs of tests compute for less.

forked.py PROGRAM [MODULE]...   imports PROGRAM and the modules, and reads requests from stdin until its end. A request is a line of
                                JSON: {"argv": [PROGRAM, ...], "env": {...}, "folder": "...", "out": FILE, "err": FILE}, of which argv
                                is needed. Of each program that has ended it prints a line with the request's number, from 0, and the
                                exit status. `env` is added to the environment. A variable that a module reads while it is imported
                                must be there before.
Programs: the same for Python.
"""

import importlib
import json
import os
import pathlib
import runpy
import selectors
import subprocess
import sys
import traceback


def run(request):
    """In the forked process. Ends it."""
    status = 1
    try:
        os.environ.update(request.get("env", {}))
        os.chdir(request.get("folder", "."))
        for descriptor, name in ((0, "in"), (1, "out"), (2, "err")):
            file = os.open(request.get(name, os.devnull), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(file, descriptor)
            os.close(file)
        sys.argv = request["argv"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def serve(program, modules):
    sys.path.insert(0, str(pathlib.Path(program).parent))
    for module in (pathlib.Path(program).stem, *modules):
        importlib.import_module(module)
    asked = 0
    with selectors.DefaultSelector() as events:
        events.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is sys.stdin:
                    # One line at a time: what a buffer held, select() would not tell of.
                    line = b""
                    while not line.endswith(b"\n") and (part := os.read(0, 1)):
                        line += part
                    if not line:
                        return
                    if (pid := os.fork()) == 0:
                        run(json.loads(line))
                    events.register(os.pidfd_open(pid), selectors.EVENT_READ, (asked, pid))
                    asked += 1
                else:
                    number, pid = key.data
                    events.unregister(key.fileobj)
                    os.close(key.fd)
                    print(number, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Programs:
    """Forks programs that are like `program`. Use it in a `with`."""

    def __init__(self, program, *modules, env=None):
        command = [sys.executable, "-B", __file__, str(program), *modules]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.asked, self.ended = 0, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()

    def start(self, *argv, **how):
        """Returns the program's number. `how`: env, folder, out, err."""
        request = {"argv": [str(word) for word in argv], **{key: value if key == "env" else str(value) for key, value in how.items()}}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        self.asked += 1
        return self.asked - 1

    def wait(self, number):
        """Its exit status."""
        while number not in self.ended:
            line = self.server.stdout.readline()
            if not line:
                raise RuntimeError(f"the process that forks programs has ended with {self.server.wait()}")
            ended, status = map(int, line.split())
            self.ended[ended] = status
        return self.ended[number]


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
