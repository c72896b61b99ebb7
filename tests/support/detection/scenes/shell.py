"""Plain shells: at their prompt, and with a program in front of them; bash and sh, as every machine has them."""

from typing import Final

from tests.support.detection.scenes.studio import Studio

HOME: Final = {"PS1": r"\u@\h:\w\$ "}


def take(studio: Studio) -> None:
    """A prompt, what is typed there, and programs that ask or work."""
    with studio.program("bash", ("bash", "--norc", "--noprofile"), HOME) as stage:
        stage.until(r"[$#] ?$")
        studio.keep(stage, "idle", "idle")
        stage.type("git commit -m 'half")
        studio.keep(stage, "idle-draft", "idle", reads="unclear")
        stage.key("C-c")
        stage.say("seq 30")
        stage.until("^30")
        studio.keep(stage, "finished", "idle")
        stage.say("clear")
        studio.keep(stage, "cleared", "idle")
        stage.say("sleep 60")
        studio.keep(stage, "working-silent", "working", reads="unclear")
        stage.key("C-c")
        stage.say("while sleep 0.1; do date; done")
        stage.until("20..$")
        studio.keep(stage, "working", "working", reads="unclear", holds=".")
        stage.key("C-c")
        stage.still()
    with studio.program("bash", ("bash", "--norc", "--noprofile"), HOME) as stage:
        stage.until(r"[$#] ?$")
        stage.say("read -p 'Go on? [y/N] ' answer")
        stage.until("y/N. ?$")
        studio.keep(stage, "asks-yes-no", "asking", asking="question")
        stage.key("C-c")
        stage.say("read -s -p '[sudo] password for somebody: ' answer")
        stage.until("somebody: ?$")
        studio.keep(stage, "asks-password", "asking", asking="auth")
        stage.key("C-c")
        stage.say("read -p 'Your name: ' name")
        stage.until("name: ?$")
        studio.keep(stage, "asks-words", "asking", asking="question", reads="unclear")
        stage.key("C-c")
        stage.say("cat")
        studio.keep(stage, "program-waits", "working", reads="unclear")
        stage.key("C-d")
        stage.say("python3 -q")
        stage.until(">>>")
        studio.keep(stage, "python", "working", reads="unclear")
        stage.key("C-d")
        stage.say("for i in 1 2")
        stage.until("^> ?$")
        studio.keep(stage, "goes-on", "idle", reads="unclear")
    _prompts(studio)


def _prompts(studio: Studio) -> None:
    with studio.program("bash", ("bash", "--norc", "--noprofile"), {"PS1": r"\s-\v\$ "}) as stage:
        stage.until(r"bash-")
        studio.keep(stage, "idle-bare", "idle")
    with studio.program("sh", ("sh",), {"PS1": "$ "}) as stage:
        stage.until(r"^[$#]")
        studio.keep(stage, "idle", "idle")
    with studio.program("bash", ("bash", "--norc", "--noprofile"), {"PS1": "\\w\\n❯ "}) as stage:
        stage.until("❯")
        studio.keep(stage, "idle-two-rows", "idle")
