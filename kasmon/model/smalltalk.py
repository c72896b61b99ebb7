"""What a scripted agent does with a prompt that is no script: a small turn, drawn from its seed."""

from random import Random

from kasmon.model.step import AnyStep, Say, Script, Tool

THOUGHTS = (
    "They want {topic}. I should look at what is there before I say anything.",
    "{topic}: where would that be? Let me search for it first.",
    "First see how it is done today, then answer {topic}.",
)
LOOKS: tuple[tuple[Tool, ...], ...] = (
    (Tool(name="Read", input={"file_path": "README.md"}, output="# Example\n\nA small project.\n"),),
    (Tool(name="Grep", input={"pattern": "TODO"}, output="src/app.py:12: # see the issue\n1 match"),),
    (Tool(name="Bash", input={"command": "git status --short"}, output=" M src/app.py\n?? notes.md"),),
    (Tool(name="Bash", input={"command": "pytest -q"}, output="....................\n20 passed in 0.41s"),),
)
ANSWERS = (
    "I looked around for {topic}. I am a **scripted** agent, so nothing was run or changed; a line such as "
    "`ask git push` would make me ask you something.",
    "About {topic}: I only play a part here. Give me lines that begin with a verb, e.g. `say hello` or "
    "`question Which one?|A|B`, and I do exactly that.",
    "Here is what I found on {topic}:\n\n- it is a small project\n- nothing is broken\n\n"
    "I am scripted: what you saw was words only.",
)
TOPIC_CHARACTERS = 60


def small_turn(prompt: str, random: Random) -> Script:
    """A thought, a look at something and an answer that names the prompt's first line; the same for the same draw."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    short = first if len(first) <= TOPIC_CHARACTERS else f"{first[:TOPIC_CHARACTERS].rstrip()}…"
    topic = f"“{short}”" if short else "an empty prompt"
    steps: tuple[AnyStep, ...] = (
        Say(text=random.choice(THOUGHTS).replace("{topic}", topic), thinking=True),
        *random.choice(LOOKS),
        Say(text=random.choice(ANSWERS).replace("{topic}", topic)),
    )
    return steps
