"""The commands: what each takes, and the one thing it calls. A function's docstring is its help.

`--help` changes nothing and starts nothing. What a function calls is imported when it is called.
"""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, validators

from kasmon import __version__
from kasmon.commands.later import LATER, NOT_YET, refuse
from kasmon.commands.output import guarded
from kasmon.errors import UsageError
from kasmon.model.command import When

LATER_GROUP = "With a later version"
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, for programs.")]
Session = Annotated[str, Parameter(help="Id, exact name, or the beginning of an id (3 letters or more).")]
Text = Annotated[str | None, Parameter(allow_leading_hyphen=True, help="The prompt; `-` reads it from stdin.")]
Timeout = Annotated[float | None, Parameter(validator=validators.Number(gte=0), help="Give up after so many seconds.")]
States = Annotated[str | None, Parameter(help="States, with commas: starting, idle, working, asking, limited, ...")]

app = App(
    name="kasmon",
    help="A live dashboard and runtime for many coding agents. Without a command it opens the dashboard.",
    help_formatter="plain",
    version=f"kasmon {__version__}",
    version_flags=["--version"],
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    help_on_error=False,
)


def run(arguments: Sequence[str]) -> int:
    """Do what *arguments* say; return the exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return guarded(partial(_run, list(arguments)), wants_json="--json" in options)


def _run(arguments: list[str]) -> int | None:
    verb = next((word for word in arguments[:1] if not word.startswith("-")), "")
    if verb and verb not in app:
        near = get_close_matches(verb, app, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "See `kasmon --help`."
        raise UsageError(f"there is no command {verb!r}.", hint=hint)
    if verb == "ctx":
        from kasmon.commands.ctx import with_word

        arguments = with_word(arguments)
    try:
        code: int | None = app(arguments)
    except CycloptsError as error:
        raise UsageError(" ".join(str(error).split()), hint=f"See `{f'kasmon {verb}'.strip()} --help`.") from error
    return code


@app.default
def dashboard() -> int:
    """Open the dashboard."""
    from kasmon.commands.screen import dashboard

    return dashboard()


@app.command
def demo(
    *,
    agents: int = 12,
    seed: int = 1,
    headless: Annotated[
        float | None, Parameter(help="Open no screen, run for so many seconds, print `ls --json`.")
    ] = None,
    svg: Annotated[str | None, Parameter(help="Save the dashboard's picture here.")] = None,
) -> int:
    """Show a live fleet of scripted agents; nothing is left behind."""
    from kasmon.commands.screen import demo

    return demo(agents, seed, headless, svg)


@app.command
def new(
    name: str,
    /,
    *argv: Annotated[str, Parameter(help="Behind `--`: any program to run in tmux, with its arguments.")],
    agent: Annotated[
        str, Parameter(help="A profile: claude, codex, opencode, gemini, amp, shell, scripted, or your own.")
    ] = "",
    mode: Annotated[str | None, Parameter(help="tmux or sdk; by default what the profile says, else tmux.")] = None,
    sandbox: Annotated[str | None, Parameter(help="Comes with a later version.")] = None,
    dir: Annotated[str, Parameter(help="The folder it works in; by default this one.")] = "",  # noqa: A002 - its flag
    prompt: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="Its first prompt; `-` reads it from stdin.")
    ] = "",
    in_: Annotated[str | None, Parameter(name="--in", help="Open a further window beside this session's.")] = None,
    task: Annotated[int | None, Parameter(help="Its task's number.")] = None,
    wave: Annotated[int | None, Parameter(help="Its wave's number.")] = None,
    peers: Annotated[int | None, Parameter(help="How many sessions its wave has, with this one.")] = None,
    env: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="A variable for it: NAME takes yours. NAME=VALUE can be read by others, in `ps`.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Start a session and print its id."""
    from kasmon.commands import living

    wanted = living.Wanted(
        name=name,
        argv=argv,
        agent=agent,
        mode=mode,
        sandbox=sandbox,
        folder=dir,
        prompt=prompt,
        beside=in_,
        task=task,
        wave=wave,
        peers=peers,
        variables=env or (),
    )
    living.new(wanted, wants_json=json)


@app.command
def ls(
    *,
    watch: Annotated[bool, Parameter(negative=(), help="Go on, and print what changes.")] = False,
    state: States = None,
    wave: int | None = None,
    tmux: Annotated[bool, Parameter(negative=(), help="List the panes of your own tmux, for `kasmon adopt`.")] = False,
    socket: Annotated[str, Parameter(help="With --tmux: the socket of that tmux.")] = "",
    json: Json = False,
) -> None:
    """List the sessions, those that need you first."""
    if tmux:
        from kasmon.commands.adopting import ls_tmux

        return ls_tmux(socket, wants_json=json)
    if watch:
        from kasmon.commands.watching import watch as follow

        return follow(state, wave, wants_json=json)
    from kasmon.commands.listing import ls

    return ls(state, wave, wants_json=json)


@app.command
def show(session: Session, /, *, json: Json = False) -> None:
    """Show all that is known of one session."""
    from kasmon.commands.looking import show

    show(session, wants_json=json)


@app.command
def send(
    session: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Id, exact name, or the beginning of an id; left out with --to."),
    ] = None,
    text: Text = None,
    /,
    *,
    to: Annotated[str | None, Parameter(help="Send to all of these: state=idle,wave=2,agent=claude.")] = None,
    when: Annotated[When, Parameter(help="If it is busy: queue, type it anyway, interrupt first, or refuse.")] = "now",
    wait: Annotated[str | None, Parameter(help="Then wait until it is in one of these states.")] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Send a prompt, and print the receipt."""
    from kasmon.commands.talking import send

    if to is not None and text is None:
        session, text = None, session
    if text is None:
        raise UsageError("there is no prompt.", hint="Say `kasmon send SESSION TEXT`, or `-` to read it from stdin.")
    return send(session, text, to=to, when=when, states=wait, timeout_s=timeout, wants_json=json)


@app.command
def read(
    session: Session,
    /,
    *,
    range: Annotated[  # noqa: A002 - its flag
        str | None,
        Parameter(allow_leading_hyphen=True, help="Lines A:B; -N counts from the end, nothing or `-` is the end."),
    ] = None,
    lines: Annotated[int | None, Parameter(help="The last so many lines.")] = None,
    ansi: Annotated[bool, Parameter(negative=(), help="Keep colours.")] = False,
    json: Json = False,
) -> None:
    """Print a session's screen with 50 lines above it, or its transcript."""
    from kasmon.commands.reading import read

    read(session, span=range, lines=lines, ansi=ansi, wants_json=json)


@app.command
def wait(
    *sessions: Session,
    for_: Annotated[str, Parameter(name="--for", help="States, with commas.")],
    timeout: Timeout = None,
    any: Annotated[bool, Parameter(negative=(), help="One of them is enough.")] = False,  # noqa: A002 - its flag
    json: Json = False,
) -> None:
    """Wait until sessions are in a state."""
    from kasmon.commands.watching import wait

    if not sessions:
        raise UsageError("there is no session to wait for.", hint="See `kasmon wait --help`.")
    wait(sessions, for_, timeout, one_will_do=any, wants_json=json)


@app.command
def inbox(
    *,
    alike: Annotated[str, Parameter(help="Only this request and those like it, and the digest of them all.")] = "",
    json: Json = False,
) -> None:
    """List the requests that wait for you, oldest first."""
    if alike:
        from kasmon.commands.together import list_alike

        list_alike(alike, wants_json=json)
        return
    from kasmon.commands.looking import inbox

    inbox(wants_json=json)


@app.command
def answer(
    request: Annotated[str, Parameter(help="The request's id, from `kasmon inbox`.")],
    decision: Annotated[str, Parameter(help="allow, always, deny, never, edit, choose, cancel or later.")],
    /,
    *,
    digest: Annotated[
        str, Parameter(help="The digest of what you decided on. Without it the request is shown first.")
    ] = "",
    scope: Annotated[
        Literal["session", "plan", "project"], Parameter(help="How far `always` and `never` reach.")
    ] = "session",
    reason: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="With `deny` and `never`: why; the agent is told.")
    ] = "",
    input: Annotated[  # noqa: A002 - its flag
        str | None,
        Parameter(allow_leading_hyphen=True, help="With `edit`: the input to go on with, as JSON; `-` reads stdin."),
    ] = None,
    choice: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="With `choose`: a label, its number, or your own words; once for each where several may be chosen.",
        ),
    ] = None,
    alike: Annotated[
        bool, Parameter(negative=(), help="Answer all that are like it too, by `allow` or `deny`; lists them first.")
    ] = False,
    yes: Annotated[bool, Parameter(negative=(), help="With --alike and the list's --digest: do not ask.")] = False,
    json: Json = False,
) -> int:
    """Answer a request, or with --alike all that are like it. A plan is approved by `allow`, sent back by `deny`."""
    if alike:
        from kasmon.commands.together import answer_alike

        return answer_alike(request, decision, digest=digest, reason=reason, yes=yes, wants_json=json)
    if yes:
        raise UsageError("--yes goes with --alike.", hint="One request is answered without a question by its --digest.")
    from kasmon.commands.answering import answer

    answer(
        request,
        decision,
        digest=digest,
        scope=scope,
        reason=reason,
        edited=input,
        labels=choice or (),
        wants_json=json,
    )
    return 0


@app.command
def rules(
    act: Annotated[Literal["ls", "rm"], Parameter(help="List them, or revoke some.")] = "ls",
    /,
    *wanted: Annotated[str, Parameter(help="With `rm`: the rules' ids.")],
    json: Json = False,
) -> None:
    """List the standing rules that answer requests for you, or revoke some."""
    from kasmon.commands.ruling import rules

    rules(act, wanted, wants_json=json)


@app.command
def adopt(
    target: Annotated[str, Parameter(help="SESSION, SESSION:WINDOW, SESSION:WINDOW.PANE or %PANE of your own tmux.")],
    /,
    *,
    name: Annotated[str, Parameter(help="What to call it; by default as its tmux session.")] = "",
    socket: Annotated[
        str, Parameter(help="The socket of that tmux; by default the one you are in, or the usual.")
    ] = "",
    json: Json = False,
) -> None:
    """Watch a session of your own tmux (`kasmon ls --tmux` lists them); it is never resized, renamed or ended."""
    from kasmon.commands.adopting import adopt

    adopt(target, name, socket, wants_json=json)


@app.command
def ctx(
    session: Annotated[str | None, Parameter(help="Id or name; by default the session that this is run in.")] = None,
    /,
    *,
    done: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Say that its task is done; a word on it may follow."),
    ] = None,
    waiting: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Say what it waits for on purpose; '' takes that back."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the agent inside its task, wave and peers; note that it is done, or waits on purpose."""
    from kasmon.commands.ctx import ctx

    ctx(session, done=done, waiting=waiting, wants_json=json)


@app.command
def interrupt(session: Session, /, *, json: Json = False) -> None:
    """End the running turn."""
    from kasmon.commands import living

    living.interrupt(session, wants_json=json)


@app.command
def stop(session: Session, /, *, json: Json = False) -> None:
    """End the agent; its log stays, and it can be restarted."""
    from kasmon.commands import living

    living.stop(session, wants_json=json)


@app.command
def restart(session: Session, /, *, json: Json = False) -> None:
    """Start an ended session again."""
    from kasmon.commands import living

    living.restart(session, wants_json=json)


@app.command
def move(
    session: Session,
    /,
    *,
    to: Annotated[Literal["tmux", "sdk"], Parameter(help="The mode it goes on in.")],
    json: Json = False,
) -> None:
    """Go on with the same conversation in a terminal, or as a structured session."""
    from kasmon.commands.moving import move

    move(session, to, wants_json=json)


@app.command
def rename(session: Session, name: str, /, *, json: Json = False) -> None:
    """Give a session another name."""
    from kasmon.commands import living

    living.rename(session, name, wants_json=json)


@app.command
def rm(session: Session, /, *, json: Json = False) -> None:
    """Take an ended session off the list."""
    from kasmon.commands import living

    living.rm(session, wants_json=json)


@app.command
def attach(session: Session, /) -> None:
    """Sit down at a session's real terminal; Ctrl+] leaves it."""
    from kasmon.commands.attaching import attach

    attach(session)


@app.command
def config(
    key: Annotated[str | None, Parameter(help="A setting, such as ui.theme.")] = None,
    value: Annotated[str | None, Parameter(allow_leading_hyphen=True, help="What to set it to.")] = None,
    /,
    *,
    explain: Annotated[str | None, Parameter(help="Say what this setting means and where it comes from.")] = None,
    json: Json = False,
) -> None:
    """Show or change settings; your comments stay."""
    from kasmon.commands.setting import config

    config(key, value, explain, wants_json=json)


@app.command
def doctor(
    *,
    fix: Annotated[bool, Parameter(negative=(), help="Mend what is harmless to mend.")] = False,
    report: Annotated[
        bool, Parameter(negative=(), help="Print all that helps others to help, without secrets.")
    ] = False,
    json: Json = False,
) -> int:
    """Look for what is wrong; exit code 1 if something fails."""
    from kasmon.commands.doctor import doctor

    return doctor(fix=fix, report=report, wants_json=json)


@app.command
def bench(
    *names: Annotated[str, Parameter(help="What to measure; by default everything.")],
    rounds: Annotated[int, Parameter(help="How often each time is measured.")] = 9,
    seconds: Annotated[float, Parameter(help="How long each load is watched.")] = 10.0,
    json: Json = False,
) -> int:
    """Measure kasmon on this machine, as ratios."""
    from kasmon.bench.run import main

    if rounds < 1 or seconds <= 0:
        raise UsageError("nothing can be measured in no time.", hint="--rounds takes 1 or more, --seconds more than 0.")
    return main(names, rounds=rounds, seconds=seconds, json=json)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script of a shell: bash, zsh or fish."""
    sys.stdout.write(app.generate_completion(prog_name="kasmon", shell=shell))


@app.command
def explain(
    session: Annotated[str | None, Parameter(help="Id, exact name, or the beginning of an id.")] = None,
    /,
    *,
    screen: Annotated[
        str | None, Parameter(allow_leading_hyphen=True, help="A captured screen, or a golden folder; `-` is stdin.")
    ] = None,
    agent: Annotated[str | None, Parameter(help="Whose screen that is.")] = None,
    title: Annotated[
        str | None, Parameter(allow_leading_hyphen=True, help="The window's title that belongs to it.")
    ] = None,
    agent_version: Annotated[str, Parameter(help="The agent's version; by default the newest that is known.")] = "",
    export: Annotated[str | None, Parameter(help="Write the case into this folder, as a golden folder.")] = None,
    json: Json = False,
) -> None:
    """Say which evidence made a state, which lost, and why."""
    from kasmon.commands.explaining import explain_screen, explain_session

    if screen is None and session is None:
        raise UsageError("there is nothing to explain.", hint="kasmon explain SESSION, or --screen FILE --agent AGENT")
    if screen is None and session is not None:
        if agent is not None or title is not None or agent_version:
            raise UsageError("--agent, --title and --agent-version go with --screen.")
        explain_session(session, export=export, wants_json=json)
    elif agent is None or session is not None or screen is None:
        raise UsageError("a screen is explained for one agent.", hint="kasmon explain --screen FILE --agent AGENT")
    else:
        explain_screen(screen, agent, title=title, version=agent_version, export=export, wants_json=json)


plan_app = App(
    name="plan", help="Check, draw and run plans of many tasks, and decide on what they ask.", help_formatter="plain"
)
app.command(plan_app)
File = Annotated[str, Parameter(help="The plan's file: Markdown or TOML.")]
PlanName = Annotated[str, Parameter(name="PLAN", help="A plan that was run: its id, or its file.")]
Task = Annotated[str, Parameter(help="The task's id or number.")]


@plan_app.command
def check(file: File, /, *, json: Json = False) -> int:
    """Say whether a plan holds together, and what is wrong with it line by line."""
    from kasmon.commands import planning

    return planning.check(file, wants_json=json)


@plan_app.command(name="show")
def show_plan(
    plan: Annotated[str, Parameter(help="A plan's file, or one that was run.")],
    /,
    *,
    wave: Annotated[int | None, Parameter(help="Only this wave.")] = None,
    json: Json = False,
) -> None:
    """Draw a plan, with the state of its tasks where it was run."""
    from kasmon.commands import planning

    planning.show(plan, wave=wave, wants_json=json)


@plan_app.command(name="run")
def run_plan(
    file: File,
    /,
    *,
    wave: Annotated[int | None, Parameter(help="Begin with this wave; those before it are skipped.")] = None,
    yes: Annotated[bool, Parameter(negative=(), help="Agree to what it runs, without being shown it first.")] = False,
    ci: Annotated[bool, Parameter(negative=(), help="Wait for its end, report, and exit by its outcome.")] = False,
    dir: Annotated[str, Parameter(help="Where it runs; by default the file's folder.")] = "",  # noqa: A002 - its flag
    report: Annotated[Literal["text", "json", "junit"], Parameter(help="With --ci: the report's form.")] = "text",
    output: Annotated[str, Parameter(help="With --ci: write the report into this file.")] = "",
    json: Json = False,
) -> int:
    """Run a plan, after showing every command that it would run. It goes on without a dashboard."""
    from kasmon.commands import planning

    return planning.run(file, wave=wave, yes=yes, ci=ci, folder=dir, form=report, output=output, wants_json=json)


@plan_app.command(name="ls")
def list_plans(*, json: Json = False) -> None:
    """List the plans that were run, the newest last."""
    from kasmon.commands import planning

    planning.list_all(wants_json=json)


@plan_app.command
def pause(plan: PlanName, /, *, json: Json = False) -> None:
    """Begin no further task; what runs goes on."""
    from kasmon.commands import planning

    planning.steer(plan, "pause", wants_json=json)


@plan_app.command
def resume(plan: PlanName, /, *, json: Json = False) -> None:
    """Go on with a plan that was paused, or that nobody runs any more."""
    from kasmon.commands import planning

    planning.steer(plan, "resume", wants_json=json)


@plan_app.command
def advance(plan: PlanName, /, *, json: Json = False) -> None:
    """Begin the next wave, once the one before it is done."""
    from kasmon.commands import planning

    planning.steer(plan, "advance", wants_json=json)


@plan_app.command
def abort(plan: PlanName, /, *, json: Json = False) -> None:
    """Give a plan up: its sessions end, its worktrees stay."""
    from kasmon.commands import planning

    planning.steer(plan, "abort", wants_json=json)


@plan_app.command
def accept(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Take a task for done that its agent calls done, and that nothing checks."""
    from kasmon.commands import planning

    planning.steer(plan, "accept", task, wants_json=json)


@plan_app.command
def retry(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Do a task again; its agent is told what went wrong."""
    from kasmon.commands import planning

    planning.steer(plan, "retry", task, wants_json=json)


@plan_app.command
def skip(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Go on without a task."""
    from kasmon.commands import planning

    planning.steer(plan, "skip", task, wants_json=json)


@plan_app.command
def replace(
    plan: PlanName, task: Task, /, *, agent: Annotated[str, Parameter(help="The profile.")], json: Json = False
) -> None:
    """Do a task again with another agent."""
    from kasmon.commands import planning

    planning.steer(plan, "replace", task, agent, wants_json=json)


@plan_app.command
def diff(plan: PlanName, /, *, json: Json = False) -> None:
    """Show how a plan's file differs from what runs."""
    from kasmon.commands import planning

    planning.edit(plan, apply=False, yes=False, wants_json=json)


@plan_app.command
def apply(
    plan: PlanName,
    /,
    *,
    yes: Annotated[bool, Parameter(negative=(), help="Agree to what it runs.")] = False,
    json: Json = False,
) -> None:
    """Take the edits of a plan's file over into what runs."""
    from kasmon.commands import planning

    planning.edit(plan, apply=True, yes=yes, wants_json=json)


@plan_app.command
def clean(plan: PlanName, /, *, json: Json = False) -> None:
    """Remove the worktrees of a plan that is over, where nothing in them could be lost."""
    from kasmon.commands import planning

    planning.clean(plan, wants_json=json)


@app.command
def recover(
    *,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only say what would be done.")] = False,
    json: Json = False,
) -> int:
    """After a crash or a reboot: let plans go on where they were, each agent in its own conversation."""
    from kasmon.commands.recovering import recover_all

    return recover_all(dry_run=dry_run, wants_json=json)


@app.command(name="tell")
def tell_peer(
    peer: Annotated[str, Parameter(help="A peer's name, id or task number; `wave` is all of them.")],
    text: Text = None,
    /,
    *,
    json: Json = False,
) -> None:
    """From within a plan's session: leave a peer a message, which it gets at its turn's end."""
    from kasmon.commands.telling import tell_peer

    tell_peer(peer, text, wants_json=json)


def _later(name: str, what: str) -> None:
    def command(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
        refuse(name)

    command.__doc__ = f"{what}.\n\n{NOT_YET}"
    app.command(command, name=name, group=LATER_GROUP)


for _name, _what in LATER.items():
    _later(_name, _what)
