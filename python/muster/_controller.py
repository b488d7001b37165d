"""The controller's HTTP API: where it is, and one request to it. docs/api.md is the contract.

The settings are those of the `muster` command line (cli/cli_config.h), and the first that is given wins:

1. the argument `address`
2. MUSTER_HTTP_ADDRESS, MUSTER_ADDRESS, MUSTER_TOKEN_FILE, MUSTER_TOKEN
3. MUSTER_DATA_FOLDER: the address in its musterd.json, and its token
4. in a rank: the controller of its job, by MUSTER_ATTEMPT_FOLDER; on another machine the host that this controller
   advertises, else that of MUSTER_CONTROLLER, with the HTTP port in its musterd.json
5. ./muster.toml, ~/.config/muster/config.toml, /etc/muster/config.toml: http_address, address, token_file
6. the default data folder: the address in its musterd.json, and its token
7. the address 127.0.0.1:7601, if the token is named too: whoever listens there would get the token of a musterd of one's own

MUSTER_ADDRESS and `address` name the port of gRPC. The musterd.json of the data folder tells the HTTP port beside it.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

USUAL_ADDRESS = "127.0.0.1:7601"
CALL_SECONDS = 10.0
PATIENCE_SECONDS = 20.0  # how long a request waits for a controller that restarts
PAUSE_SECONDS = 0.25
MOST_BODY_BYTES = 4 * 1024 * 1024  # kMaxSubmissionBytes of controller/http/http_server.h
MOST_FILE_BYTES = 64 * 1024  # of a configuration file, a token or musterd.json


class MusterError(Exception):
    """What muster refuses, or could not do.

    `what` is wrong, `where` it is, and `remedy` says what to do; the latter two may be empty. `status` is the HTTP status,
    or None if no answer came. `findings` are those of a job that was refused: dictionaries with place, key, value,
    message and remedy.
    """

    def __init__(self, what: str, where: str = "", remedy: str = "", status: Optional[int] = None,
                 findings: Optional[List[Dict[str, str]]] = None) -> None:
        self.what, self.where, self.remedy, self.status = what, where, remedy, status
        self.findings = findings or []
        super().__init__((f"{where}: " if where else "") + what + (f"; {remedy}" if remedy else ""))


class Unreachable(MusterError):
    """The controller did not answer, so it is not known whether it got the request."""


@dataclass(frozen=True)
class Place:
    """Where the controller is, and which setting says so."""

    address: str  # host:port
    source: str
    token: Optional[str]
    token_file: str
    token_source: str
    doubt: str = ""  # why the address may be wrong
    is_absent: bool = False  # nobody named the address, and no musterd runs there: whoever listens would get the token


def find(address: Optional[str] = None) -> Place:
    """Raises MusterError for a setting that makes no sense."""
    settings = _Settings()
    if address:
        settings.take_address(address, "the argument address")
    if _variable("MUSTER_HTTP_ADDRESS"):
        settings.take_address(_variable("MUSTER_HTTP_ADDRESS"), "MUSTER_HTTP_ADDRESS")
    if _variable("MUSTER_ADDRESS"):
        settings.take_grpc(_variable("MUSTER_ADDRESS"), "MUSTER_ADDRESS")
    if _variable("MUSTER_TOKEN_FILE"):
        settings.take_token_file(os.path.abspath(_variable("MUSTER_TOKEN_FILE")), "MUSTER_TOKEN_FILE")
    folder = _variable("MUSTER_DATA_FOLDER")
    if folder:
        settings.take_folder(os.path.abspath(folder), "MUSTER_DATA_FOLDER", True)
    job = "" if folder else _data_folder_of_own_job()
    if job:
        settings.take_job(job)
    for file in ("muster.toml", os.path.expanduser("~/.config/muster/config.toml"), "/etc/muster/config.toml"):
        if os.path.isfile(file):
            settings.take_file(file)
    if not folder and not job:
        settings.take_folder(_default_folder(), "the default data folder", False)
    settings.take_address(USUAL_ADDRESS, "default")
    return settings.place()


class _Settings:
    """Each setting is taken once."""

    def __init__(self) -> None:
        self._address: Optional[Tuple[str, str]] = None
        self._token: Optional[Tuple[str, str]] = None
        self._doubt, self._is_absent = "", False

    def take_address(self, text: str, source: str) -> None:
        if self._address is not None:
            return
        address = re.sub(r"^http://([^/]*)/*$", r"\1", text)
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):[1-9]\d{0,4}", address):
            raise MusterError("want host:port of the dashboard, such as " + USUAL_ADDRESS, f'{source} "{text}"',
                              "the port is that of musterd --http")
        self._address = (address, source)

    def take_grpc(self, text: str, source: str) -> None:
        if self._address is not None:
            return
        for folder in [_variable("MUSTER_DATA_FOLDER"), _default_folder()]:
            ready = _ready(folder) if folder else None
            if ready and ready.get("grpc") == _own(text):
                return self.take_address(ready["http"], os.path.join(folder, "musterd.json"))
        raise MusterError("this is the address for gRPC, and no musterd.json tells the HTTP address beside it", f'{source} "{text}"',
                          "set MUSTER_HTTP_ADDRESS, or http_address in muster.toml, to the address that musterd --http names")

    def take_token_file(self, file: str, source: str) -> None:
        if self._token is None:
            self._token = (file, source)

    def take_folder(self, folder: str, source: str, named: bool) -> None:
        if self._address is None:
            ready = _ready(folder)
            file = os.path.join(folder, "musterd.json")
            if ready:
                self.take_address(ready["http"], file)
                self._doubt = _staleness(ready, file)
                self._is_absent = bool(self._doubt) and _is_loopback(ready["http"])
            elif named:
                self._doubt = f"there is no {file}, so no musterd runs on that folder ({source})"
        self.take_token_file(os.path.join(folder, "token"), source)

    def take_job(self, folder: str) -> None:
        """The addresses in musterd.json are those on musterd's own machine."""
        ready = _ready(folder)
        told = (ready or {}).get("advertised") or _variable("MUSTER_CONTROLLER")
        told = told.rsplit(":", 1)[0]
        if ready and told and ready.get("host") not in (None, "", socket.gethostname()):
            port = ready["http"].rsplit(":", 1)[1]
            self.take_address(f"{told}:{port}", "MUSTER_CONTROLLER")
        self.take_folder(folder, "MUSTER_ATTEMPT_FOLDER", True)

    def take_file(self, file: str) -> None:
        keys = _keys_of(file)
        if "http_address" in keys:
            self.take_address(keys["http_address"], f"{file}: http_address")
        if "address" in keys:
            self.take_grpc(keys["address"], f"{file}: address")
        if "token_file" in keys:
            path = os.path.expanduser(keys["token_file"])
            self.take_token_file(os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(file)), path)), file)

    def place(self) -> Place:
        assert self._address is not None and self._token is not None
        is_unnamed = self._address[1] == "default" and self._token[1] in ("MUSTER_DATA_FOLDER", "the default data folder")
        doubt = self._doubt or (f"no musterd runs on {os.path.dirname(self._token[0])}" if is_unnamed else "")
        token = _variable("MUSTER_TOKEN") or None
        return Place(*self._address, token, *self._token, doubt, self._is_absent or (is_unnamed and not token))


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def _default_folder() -> str:
    return os.path.join(_variable("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "muster")


def _data_folder_of_own_job() -> str:
    """The data folder of the musterd that runs this process as a rank: three folders above that of its attempt. Empty: this is no
    rank, or no musterd has started it."""
    folder, _, _ = _variable("MUSTER_ATTEMPT_FOLDER").rpartition("/jobs/")
    return folder if folder and os.path.exists(os.path.join(folder, "token")) else ""


def _read(file: str) -> str:
    with open(file, encoding="utf-8", errors="replace") as text:
        return text.read(MOST_FILE_BYTES)


def _own(address: str, ready: Optional[Dict[str, Any]] = None) -> str:
    """A client on the same machine reaches a daemon that listens on all addresses by the loopback address. A client elsewhere
    reaches the daemon of that musterd.json by the host that it advertises, else by its host's name."""
    found = re.fullmatch(r"(0\.0\.0\.0|\[::\]):(\d+)", address)
    if not found:
        return address
    host = (ready or {}).get("host")
    if ready and host and host != socket.gethostname():
        told = str(ready.get("advertised", "")).rsplit(":", 1)[0]
        return f"{host if not told or _is_loopback(told) else told}:{found.group(2)}"
    return ("127.0.0.1:" if found.group(1) == "0.0.0.0" else "[::1]:") + found.group(2)


def _is_loopback(address: str) -> bool:
    return re.match(r"127\.|\[::1\]|localhost", address) is not None


def _ready(folder: str) -> Optional[Dict[str, Any]]:
    """What a running musterd tells of itself; None: the file is missing or makes no sense."""
    try:
        ready = json.loads(_read(os.path.join(folder, "musterd.json")))
        return {**ready, "grpc": _own(ready["grpc"], ready), "http": _own(ready["http"], ready)}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _staleness(ready: Dict[str, Any], file: str) -> str:
    host, pid = ready.get("host"), ready.get("pid")
    if host and host != socket.gethostname():
        return f"{file} belongs to a musterd on host {host}, and this is {socket.gethostname()}"
    if isinstance(pid, int) and pid > 0 and not _is_alive(pid, ready.get("start_time")):
        return f"{file} was left by process {pid}, which has ended"
    return ""


def _is_alive(pid: int, start_time: Any) -> bool:
    """`start_time`: of the process, in clock ticks since boot. Another one may have its number by now."""
    try:
        words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return words[0] != "Z" and (not start_time or int(words[19]) == start_time)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, IndexError):
        return True


def _keys_of(file: str) -> Dict[str, str]:
    """The texts of a configuration file: lines of `key = "value"`. `muster` says what is wrong with others."""
    found = {}
    for line in _read(file).splitlines():
        match = re.fullmatch(r"""\s*(\w+)\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?""", line)
        if match:
            found[match.group(1)] = match.group(2) or match.group(3) or ""
    return {key: value for key, value in found.items() if value}


class Controller:
    """Sends requests. A musterd that restarts is waited for; its address is looked up anew each time."""

    def __init__(self, address: Optional[str] = None) -> None:
        self._wanted = address
        self._place: Optional[Place] = None
        # A proxy of the environment knows nothing of a controller.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None, CALL_SECONDS, True)

    def post(self, path: str, body: Dict[str, Any], limit: float = CALL_SECONDS, may_repeat: bool = False) -> Any:
        """`may_repeat`: the controller knows a repeated request, so it is sent again when its answer was lost."""
        data = json.dumps(body, allow_nan=False).encode()
        if len(data) > MOST_BODY_BYTES:
            raise MusterError(f"the request is {len(data)} bytes, more than {MOST_BODY_BYTES}", "",
                              "give the job fewer or shorter values, or submit a sweep in parts")
        return self._ask("POST", path, data, limit, may_repeat)

    def _ask(self, method: str, path: str, data: Optional[bytes], limit: float, may_repeat: bool) -> Any:
        end = time.monotonic() + PATIENCE_SECONDS
        told = False
        while True:
            place = self._find()
            try:
                return self._send(place, method, path, data, limit)
            except Unreachable as error:
                was_sent = not isinstance(error.__cause__, ConnectionRefusedError)
                if was_sent and not may_repeat:
                    raise Unreachable(error.what, error.where, "it is not known whether the request was carried out; "
                                      "look at the job", error.status) from error.__cause__
                if time.monotonic() >= end:
                    raise
                if not told:
                    print(f"muster: {error.where}: {error.what}; trying for {PATIENCE_SECONDS:.0f} s", file=sys.stderr)
                    told = True
                time.sleep(PAUSE_SECONDS)

    def _find(self) -> Place:
        """A musterd that restarts removes its musterd.json for a moment. Its address of before counts then."""
        try:
            place = find(self._wanted)
        except MusterError:
            if self._place is None:
                raise
            place = self._place
        if self._place is None or place.source != "default":
            self._place = place
        return self._place

    def _send(self, place: Place, method: str, path: str, data: Optional[bytes], limit: float) -> Any:
        if place.is_absent:
            raise Unreachable(place.doubt, "the controller", "start it with muster up, or set MUSTER_HTTP_ADDRESS") from ConnectionRefusedError()
        request = urllib.request.Request(f"http://{place.address}/api/v1/{path}", data=data, method=method, headers={
            "Authorization": "Bearer " + _token(place), "X-Muster": "1", "Content-Type": "application/json"})
        where = f"the controller at {place.address} ({place.source})"
        try:
            with self._opener.open(request, timeout=limit) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _refusal(error, place, where) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            remedy = (place.doubt + "; " if place.doubt else "") + "start it with musterd, or set MUSTER_HTTP_ADDRESS"
            raise Unreachable(f"no answer: {why}", where, remedy) from (why if isinstance(why, BaseException) else error)


def _token(place: Place) -> str:
    if place.token:
        return place.token
    try:
        token = _read(place.token_file).split("\n", 1)[0].strip()
        why = "its first line is empty"
    except OSError as error:
        token, why = "", error.strerror or str(error)
    if not token or not token.isascii() or not token.isprintable():
        raise MusterError(f"the token cannot be read: {why if not token else 'it is no token'}", f"{place.token_file} ({place.token_source})",
                          "musterd writes it at its first start; name its file with MUSTER_TOKEN_FILE, or set MUSTER_TOKEN")
    return token


def _refusal(error: urllib.error.HTTPError, place: Place, where: str) -> MusterError:
    """The refusal in the answer. 503 says that the request may be sent again."""
    try:
        body = json.loads(error.read())
        what, remedy, findings = str(body["error"]), str(body.get("remedy", "")), body.get("findings")
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        what, remedy, findings = f"it answered {error.code} without a reason", "is this a musterd?", None
    if error.code == 401:
        where = "MUSTER_TOKEN" if place.token else f"{place.token_file} ({place.token_source})"
        remedy = f"{remedy}; the controller is {place.address} ({place.source})" + (f"; {place.doubt}" if place.doubt else "")
    if error.code == 503:
        return Unreachable(what, where, remedy, error.code)
    if findings:
        where = ""  # each line of the text begins with its place
    return MusterError(what, where, remedy, error.code, findings)
