"""The program that a pane runs: read a launch file, enter the directory, signal "ready", exec the agent.

It is run by path (`python -I -S launch.py FILE`), imports nothing else of kasmon and only modules built into bare
Python, so that it is replaced within a few milliseconds. The launch file is private to the user (0600) and holds
NUL-terminated `key=value` pairs: NUL is the one byte that no argument, path or variable contains.

    arg       an argument of the agent's command, repeated; the first is looked up on the PATH that the agent will have
    workdir   the agent's working directory
    umask     the agent's umask, octal
    base      a `NAME=value` of the launching process, repeated, in place of the tmux server's environment (optional)
    env_file  a file of NUL-terminated `NAME=value` pairs that override the base environment (optional)
    nonce     the value to announce (optional)
    tmux, socket  the program and the server to announce it to (optional)

If the agent cannot be started, the pane shows one sentence and the exit code is 125 (launch file unusable),
126 (not allowed) or 127 (not found), as in a shell.
"""

import _signal  # type: ignore[import-not-found]  # built in; `signal` would take half of the start time
import os
import stat
import sys

# fmt: off
BASE_VARIABLES = frozenset(
    {
        "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION", "COLORTERM", "TERMINFO", "TERMINFO_DIRS", "EDITOR", "VISUAL", "PAGER", "LESS",
        "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GNUPGHOME",
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
        "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
    }
)
# fmt: on
"""Variables that every agent inherits; all others are passed by `--env`."""

BASE_PREFIXES = ("LC_", "XDG_")
HIDDEN_VARIABLES = ("TMUX", "TMUX_PANE")
"""The agent does not get these: its own tmux commands must not reach kasmon's server."""

SESSION = "KASMON_SESSION"
"""The variable with the id of an agent's session."""
RUN = "KASMON_RUN"
"""The variable that marks every process an agent starts; its value is unique to each start, on every machine. That of a
structured agent begins with its session's id and a dot."""
MACHINERY = "KASMON_HOST"
"""A variable of kasmon's hosts, its tmux server and the programs these run; agents and users' shells never get it."""

UNUSABLE, NOT_ALLOWED, NOT_FOUND = 125, 126, 127
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class CannotLaunchError(Exception):
    """Nothing was started; the message is one sentence, with the exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        self.code = code
        super().__init__(sentence)


def base_environment(inherited: dict[str, str]) -> dict[str, str]:
    """Return the variables of *inherited* that every agent may have: no tmux, no kasmon, no other agent's."""
    return {
        name: value for name, value in inherited.items() if name in BASE_VARIABLES or name.startswith(BASE_PREFIXES)
    }


def read_pairs(path: str) -> list[tuple[str, str]]:
    """Return the pairs in a file that is private to the user.

    Raises:
        CannotLaunchError: if the file is missing, a link, another user's, open to others, or not in this format.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            facts = os.fstat(handle)
            content = file.read()
    except OSError as error:
        raise CannotLaunchError(f"cannot read {path!a}: {error.strerror}", UNUSABLE) from error
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077 or not stat.S_ISREG(facts.st_mode):
        raise CannotLaunchError(f"{path!a} is not private to you", UNUSABLE)
    *entries, rest = content.split(b"\0")
    pairs = [tuple(os.fsdecode(entry).partition("=")[::2]) for entry in entries if b"=" in entry[1:]]
    if rest or len(pairs) != len(entries):
        raise CannotLaunchError(f"{path!a} is damaged", UNUSABLE)
    return pairs  # type: ignore[return-value]  # the slice of three has two


def environment(inherited: dict[str, str], own: list[tuple[str, str]]) -> dict[str, str]:
    """Return the agent's environment: the base of *inherited*, true colour, overridden by its *own* pairs."""
    everything = {"PATH": DEFAULT_PATH, **base_environment(inherited), "COLORTERM": "truecolor", **dict(own)}
    return {name: value for name, value in everything.items() if name not in HIDDEN_VARIABLES}


def terminal_variables() -> dict[str, str]:
    """Return the variables by which tmux describes the agent's terminal."""
    return {name: value for name, value in os.environ.items() if name.startswith("TERM")}


def find(program: str, variables: dict[str, str]) -> str:
    """Return the file that *program* names on the PATH of *variables*, as a shell would find it.

    Raises:
        CannotLaunchError: if there is none, or one that is not executable.
    """
    paths = [""] if "/" in program else os.get_exec_path(variables)
    candidates = [os.path.join(place, program) for place in paths]
    existing = [path for path in candidates if os.path.isfile(path)]
    for path in existing:
        if os.access(path, os.X_OK):
            return path
    if existing:
        raise CannotLaunchError(f"{existing[0]!a} is not executable", NOT_ALLOWED)
    raise CannotLaunchError(f"{program!a} was not found", NOT_FOUND)


def enter(workdir: str) -> None:
    """Change to *workdir*. Raises `CannotLaunchError` if it does not exist or is not accessible."""
    try:
        os.chdir(workdir)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
        raise CannotLaunchError(f"cannot enter {workdir!a}: {error.strerror}", code) from error


def announce(spec: dict[str, str], pane: str) -> None:
    """Set the pane's option `@kasmon_ready` to the nonce. The agent starts even if tmux cannot be reached."""
    if not (pane and {"nonce", "tmux", "socket"} <= spec.keys()):
        return
    command = [spec["tmux"], "-S", spec["socket"], "set-option", "-p", "-t", pane, "@kasmon_ready", spec["nonce"]]
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    try:
        os.waitpid(os.posix_spawn(command[0], command, {"PATH": DEFAULT_PATH}, file_actions=quiet), 0)
    except OSError:
        return


def become(path: str, argv: list[str], variables: dict[str, str]) -> None:
    """Replace this process by the agent; returns only by raising.

    Raises:
        CannotLaunchError: if the system cannot execute the file.
    """
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(ignored, _signal.SIG_DFL)
    try:
        os.execve(path, argv, variables)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
        raise CannotLaunchError(f"cannot run {path!a}: {error.strerror}", code) from error


def launch(path: str) -> None:
    """Execute the launch file at *path*; returns only by raising.

    Raises:
        CannotLaunchError: with the sentence to show on the pane.
    """
    pairs = read_pairs(path)
    argv = [value for key, value in pairs if key == "arg"]
    spec = {key: value for key, value in pairs if key not in ("arg", "base")}
    if not argv or "workdir" not in spec:
        raise CannotLaunchError(f"{path!a} contains no command or no directory", UNUSABLE)
    own = read_pairs(spec["env_file"]) if "env_file" in spec else []
    base = dict(value.partition("=")[::2] for key, value in pairs if key == "base")
    variables = environment({**(base or os.environ), **terminal_variables()}, own)
    os.umask(int(spec.get("umask", "022"), 8))
    enter(spec["workdir"])
    program = find(argv[0], variables)
    announce(spec, os.environ.get("TMUX_PANE", ""))
    become(program, argv, variables)


def main() -> None:
    """Exec the agent, or print on the pane why it cannot be started."""
    try:
        launch(sys.argv[1])
    except CannotLaunchError as cannot:
        os.write(2, f"kasmon: {cannot}. Nothing was started.\r\n".encode())
        sys.exit(cannot.code)


if __name__ == "__main__":
    main()
