"""What kasmon knows of agents is data in folders: kasmon's, the user's own, and those of other packages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kasmon.agents.catalog import PROFILES, SHIPPED, AgentCatalog, catalog
from kasmon.agents.profile import parse
from kasmon.detection.rules.catalog import RuleCatalog
from kasmon.errors import ConfigError, NotFoundError
from kasmon.paths import user_paths
from tests.support.reference_pages import agent_profiles


def put(folder: Path, text: str, name: str = "parrot") -> Path:
    file = folder / name / "profile.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_each_shipped_agent_is_a_whole_folder() -> None:
    """A profile that is valid, and a README; and rules that read its recorded screens, if it has any."""
    folders = sorted(path for path in SHIPPED.iterdir() if path.is_dir() and path.name != "__pycache__")
    assert [folder.name for folder in folders] == sorted(AgentCatalog().names())
    for folder in folders:
        profile = parse((folder / "profile.toml").read_text(), folder.name, "")
        recorded = [path for path in folder.iterdir() if path.is_dir()]

        assert profile == AgentCatalog().load(folder.name)
        assert profile.title, folder.name
        assert (folder / "README.md").read_text().startswith("# "), folder.name
        assert bool(recorded) <= bool([*folder.glob("screen*.toml")]), folder.name


def test_a_folder_without_a_profile_is_an_agent_too(tmp_path: Path) -> None:
    put(tmp_path, 'title = "Parrot"')
    (tmp_path / "screens-only").mkdir()
    (tmp_path / "__pycache__").mkdir()

    assert {"parrot": {"title": "Parrot"}, "screens-only": {}} == json.loads(agent_profiles(tmp_path))


def test_a_single_file_has_the_same_profiles_as_the_folders() -> None:
    assert PROFILES.read_text("utf-8") == agent_profiles(), "run `make pages`"


def test_a_folder_in_the_config_is_an_agent_at_once(tmp_path: Path) -> None:
    agents = AgentCatalog(tmp_path)
    with pytest.raises(NotFoundError, match="there is no agent 'parrot'"):
        agents.load("parrot")

    put(tmp_path, 'title = "Parrot"\nalso = ["parrot-cli"]\n[start]\nmodel = "--model"')

    assert ("Parrot", "parrot", "--model") == (
        (known := agents.load("parrot")).title,
        known.name,
        known.start.model,
    )
    assert known == agents.find("parrot-cli")
    assert "parrot" in agents.names()

    put(tmp_path, 'title = "Parrot"\nalso = ["parakeet", "budgie"]')

    assert ["parrot", None] == [known and known.name for known in map(agents.find, ("budgie", "parrot-cli"))]


def test_a_folder_of_the_user_has_priority_and_a_broken_one_hides_no_other(tmp_path: Path) -> None:
    agents = AgentCatalog(tmp_path)
    file = put(tmp_path, 'title = "Mine"', "claude")
    assert "Mine" == agents.load("claude").title

    file.write_text('titel = "Mine"')

    with pytest.raises(ConfigError, match="titel"):
        agents.load("claude")
    assert agents.get("claude") is None
    assert "Codex" == agents.load("codex").title


def test_screens_alone_make_an_agent_too(tmp_path: Path) -> None:
    (tmp_path / "parrot").mkdir()
    (tmp_path / "parrot" / "screen.toml").write_text('program = "parrot"\n[[rule]]\nname = "a"\nstate = "idle"\n')

    assert "parrot" == AgentCatalog(tmp_path).load("parrot").name
    assert RuleCatalog(agents=AgentCatalog(tmp_path)).rules("parrot") is not None
    assert RuleCatalog().rules("parrot") is None


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ('title = "x"\ntitel = "y"', 2, "titel", "there is no such key"),
        ('interrupt = "q"', 1, "interrupt", "ctrl-c"),
        ('[start]\nresume = ["--resume"]', 2, "start.resume", r"'--resume'.*\{id\}"),
        ('[start]\nmodel = ["-m"]', 2, "start.model", "str"),
        ('also = ["A b"]', 1, "also", "'A b' is not the name of a program"),
        ('name = "other"', 1, "name", "'other' is not needed"),
        ('quirks = ["odd"]', 1, "quirks[0]", "'odd'"),
        ('[variables]\nown = ["A"]', 2, "variables.own[0]", "not 'A'"),
        ('[sandbox.files]\n"../x" = "why"', 1, "sandbox.files", "'../x' is not a path below the home folder"),
        ('[sandbox.log_in_files]\n"/etc/shadow" = "why"', 1, "sandbox.log_in_files", "'/etc/shadow'"),
        ('[log_in]\nfile = "~/x"', 2, "log_in.file", "'~/x'"),
        ("title = ", 1, "", "not valid TOML"),
    ],
)
def test_an_error_of_a_profile_names_the_file_the_line_the_key_and_the_value(
    text: str, line: int, key: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse(text, "parrot", "/x/profile.toml")

    assert ("/x/profile.toml", line, key) == (caught.value.file, caught.value.line, caught.value.key or "")


def test_a_profile_that_is_too_large_or_not_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    file = put(tmp_path, "#" * 70_000)
    with pytest.raises(ConfigError, match="larger than 64 KB"):
        AgentCatalog(tmp_path).load("parrot")

    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match="no file"):
        AgentCatalog(tmp_path).load("parrot")


@pytest.mark.parametrize("name", [".hidden", "Two Words", "x" * 41])
def test_a_folder_without_the_name_of_a_program_is_no_agent(tmp_path: Path, name: str) -> None:
    (tmp_path / "agents" / name).mkdir(parents=True, exist_ok=True)

    assert AgentCatalog(tmp_path / "agents").names() == AgentCatalog(tmp_path / "none").names()
    assert AgentCatalog(tmp_path / "agents").get(name) is None


def test_another_package_brings_agents_by_an_entry_point_and_is_not_imported(tmp_path: Path) -> None:
    package = tmp_path / "birds"
    put(package / "agents", 'title = "Parrot"')
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    facts = tmp_path / "birds-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: birds\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[kasmon.agents]\nbirds = birds.agents\n")
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})\n"
        "from kasmon.agents.catalog import catalog\n"
        "print([*catalog().folders('parrot')][0].origin, catalog().load('parrot').title)"
    )

    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert "birds Parrot\n" == done.stdout


def test_the_catalog_of_a_user_is_in_the_config_folder() -> None:
    put(user_paths().agents, 'title = "Parrot"')

    assert "Parrot" == catalog(user_paths()).load("parrot").title
    assert SHIPPED not in {folder.path.parent for folder in catalog(user_paths()).folders("parrot")}
