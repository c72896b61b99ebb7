"""What a pane runs: read a launch file, enter the directory, say "ready", become the agent.

It is run by path (`python -I -S launch.py FILE`), knows nothing else of kasmon and imports only what a bare Python has
built in, so that it is gone within a few milliseconds. The launch file is ours alone (0600) and holds
NUL-terminated `key=value` pairs, since a NUL is the one byte that no word, path or variable contains:

    arg       a word of the agent's command, once for each; the first is looked up on the PATH that the agent will have
    workdir   where the agent starts
    umask     the agent's umask, octal
    base      a `NAME=value` of whoever launches it, once for each, in place of what the tmux server knows (optional)
    env_file  a file of NUL-terminated `NAME=value` pairs that go over the base environment (optional)
    nonce     what to announce (optional)
    tmux, socket  the program and the server to announce it to (optional)

An agent that cannot be started leaves one plain sentence on its pane and exit code 125 (launch file unusable),
126 (not allowed) or 127 (not found), as a shell would.
"""

import _signal  # type: ignore[import-not-found]  # built in; `signal` would be half of our start
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
"""What an agent gets from the surroundings without being asked for; everything else is named by `--env`."""

BASE_PREFIXES = ("LC_", "XDG_")
HIDDEN_VARIABLES = ("TMUX", "TMUX_PANE")
"""Our server is not the agent's business: a tmux command of its own must not reach it."""

RUN = "KASMON_RUN"
"""The variable by which what an agent starts is known: its value is another one at each start, everywhere."""
MACHINERY = "KASMON_HOST"
"""A variable that kasmon's hosts and its tmux server have, and what these run; no agent gets it, and no person."""

UNUSABLE, NOT_ALLOWED, NOT_FOUND = 125, 126, 127
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class CannotLaunchError(Exception):
    """Nothing was started; says why in one sentence and with which code to exit."""

    def __init__(self, sentence: str, code: int) -> None:
        self.code = code
        super().__init__(sentence)


def base_environment(surroundings: dict[str, str]) -> dict[str, str]:
    """The variables of *surroundings* that every agent may have: no tmux, no kasmon, no other agent's."""
    return {
        name: value for name, value in surroundings.items() if name in BASE_VARIABLES or name.startswith(BASE_PREFIXES)
    }


def read_pairs(path: str) -> list[tuple[str, str]]:
    """The pairs in a file that is ours alone.

    Raises:
        CannotLaunchError: if the file is missing, a link, another's, open to others, or not in this format.
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
    return pairs  # type: ignore[return-value]


def environment(surroundings: dict[str, str], own: list[tuple[str, str]]) -> dict[str, str]:
    """What the agent gets: the base of *surroundings*, true colour, and over these its *own* pairs."""
    everything = {"PATH": DEFAULT_PATH, **base_environment(surroundings), "COLORTERM": "truecolor", **dict(own)}
    return {name: value for name, value in everything.items() if name not in HIDDEN_VARIABLES}


def terminal_variables() -> dict[str, str]:
    """What tmux says of the terminal that the agent runs in."""
    return {name: value for name, value in os.environ.items() if name.startswith("TERM")}


def find(program: str, variables: dict[str, str]) -> str:
    """The file that *program* names on the PATH of *variables*, as a shell would find it.

    Raises:
        CannotLaunchError: if there is none, or one that is not executable.
    """
    places = [""] if "/" in program else os.get_exec_path(variables)
    candidates = [os.path.join(place, program) for place in places]
    there = [path for path in candidates if os.path.isfile(path)]
    for path in there:
        if os.access(path, os.X_OK):
            return path
    if there:
        raise CannotLaunchError(f"{there[0]!a} is not executable", NOT_ALLOWED)
    raise CannotLaunchError(f"{program!a} was not found", NOT_FOUND)


def enter(workdir: str) -> None:
    """Go to *workdir*.

    Raises:
        CannotLaunchError: if it is not there or not open to us.
    """
    try:
        os.chdir(workdir)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
        raise CannotLaunchError(f"cannot enter {workdir!a}: {error.strerror}", code) from error


def announce(spec: dict[str, str], pane: str) -> None:
    """Set the pane's option `@kasmon_ready` to the nonce. A tmux that cannot be told costs the agent nothing."""
    if not (pane and {"nonce", "tmux", "socket"} <= spec.keys()):
        return
    command = [spec["tmux"], "-S", spec["socket"], "set-option", "-p", "-t", pane, "@kasmon_ready", spec["nonce"]]
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    try:
        os.waitpid(os.posix_spawn(command[0], command, {"PATH": DEFAULT_PATH}, file_actions=quiet), 0)
    except OSError:
        return


def become(path: str, argv: list[str], variables: dict[str, str]) -> None:
    """Turn this process into the agent; returns only by the error.

    Raises:
        CannotLaunchError: if the system does not take the file for a program.
    """
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(ignored, _signal.SIG_DFL)
    try:
        os.execve(path, argv, variables)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
        raise CannotLaunchError(f"cannot run {path!a}: {error.strerror}", code) from error


def launch(path: str) -> None:
    """Do what the launch file at *path* says; returns only by the error.

    Raises:
        CannotLaunchError: with the sentence for the person who looks at the pane.
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
    """Become the agent, or say on the pane why not."""
    try:
        launch(sys.argv[1])
    except CannotLaunchError as cannot:
        os.write(2, f"kasmon: {cannot}. Nothing was started.\r\n".encode())
        sys.exit(cannot.code)


if __name__ == "__main__":
    main()
