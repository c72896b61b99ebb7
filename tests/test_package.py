"""What a person installs holds what the tree holds: packed as an sdist, installed from it, read as the product does."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.syntax_trees import modules, nodes

ROOT = Path(__file__).parent.parent
OF_EXTRAS = (
    "kasmon/acp/",
    "kasmon/backends/",
    "kasmon/bench/phone/",
    "kasmon/bench/programs/fleet_client.py",
    "kasmon/bus/nats/",
    "kasmon/mcp/",
    "kasmon/sandbox/e2b/",
    "kasmon/supervisor/notifications/push_sender.py",
    "kasmon/supervisor/notifications/web_push.py",
    "kasmon/tui/dialogs/picture.py",
    "kasmon/tui/gateway/desktop_notification.py",
    "kasmon/web/",
)
"""Where what an extra brings may be imported."""

READ_THEMES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from importlib.resources import files
import kasmon
themes = {theme.name: theme.read_text("utf-8") for theme in files("kasmon").joinpath("themes").iterdir()}
print(json.dumps({"from": kasmon.__file__, "themes": themes}))
"""


def run(argv: Sequence[str], home: Path, place: Path = ROOT) -> str:
    """What *argv* prints, run in *place* with a home of its own.

    Raises:
        subprocess.CalledProcessError: if it fails; what it said to stderr has gone to ours.
    """
    kept: Mapping[str, str] = {
        name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PIP_"))
    }
    environ = {**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    done = subprocess.run(
        argv, cwd=place, env=environ, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, packed."""
    home = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-P", "-m", "hatchling", "build", "-t", "sdist", "-d", str(home / "dist")], home)
    (packed,) = (home / "dist").iterdir()
    return packed


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel built from the sdist was installed; without network."""
    home = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run([*pip, "--no-index", "--no-build-isolation", "--no-deps", "--target", str(home / "site"), str(sdist)], home)
    return home / "site"


@pytest.fixture
def distribution(installed: Path) -> Distribution:
    (found,) = distributions(name="kasmon", path=[str(installed)])
    return found


def test_every_theme_is_read_from_the_installed_package(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run([sys.executable, "-I", "-c", READ_THEMES, str(installed)], tmp_path))

    assert found["from"].startswith(str(installed))
    assert found["themes"]
    assert {theme.name: theme.read_text("utf-8") for theme in (ROOT / "themes").iterdir()} == found["themes"]


def test_every_file_of_the_package_is_installed_but_what_python_makes(installed: Path) -> None:
    def files(package: Path) -> set[str]:
        every = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
        return {str(path) for path in every if "__pycache__" not in path.parts}

    assert files(ROOT / "kasmon") == files(installed / "kasmon") - {
        str(Path("themes", theme.name)) for theme in (ROOT / "themes").iterdir()
    }


def test_every_entry_point_names_a_module_that_is_installed(distribution: Distribution, installed: Path) -> None:
    points = {
        (point.group, point.name): installed / point.module.replace(".", "/") for point in distribution.entry_points
    }

    assert {
        ("console_scripts", "kasmon"),
        ("kasmon.backends", "scripted"),
        ("kasmon.backends", "tmux"),
    } <= points.keys()
    assert [] == [
        str(module)
        for module in points.values()
        if not module.with_suffix(".py").is_file() and not (module / "__init__.py").is_file()
    ]


def imported() -> dict[str, set[str]]:
    """The modules of others that kasmon imports, and the files of ours that do."""
    found: dict[str, set[str]] = {}
    for path, tree in modules().items():
        for node in nodes(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"kasmon"}:
                found.setdefault(top, set()).add(path)
    return found


def declared(requirements: Sequence[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def test_each_imported_package_is_a_declared_dependency_and_the_other_way_round() -> None:
    """What an extra brings is imported by backends, the processes that notify, `kasmon mcp`,
    `kasmon web` and its benchmark, the bus over NATS and the tier e2b alone; what another package brings along may go
    with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    always = declared(project["dependencies"])
    extras = set().union(
        *(declared(lines) for name, lines in project["optional-dependencies"].items() if name not in ("all", "dev"))
    )
    bring, needed, missing = packages_distributions(), set[str](), list[str]()
    for module, files in imported().items():
        brought_by = {canonicalize_name(name) for name in bring.get(module, [module])}
        in_backends = all(file.startswith(OF_EXTRAS) for file in files)
        needed |= brought_by
        if not brought_by & (always | extras if in_backends else always):
            missing.append(f"{module} in {sorted(files)}")

    assert [] == missing
    assert set() == always - needed


def test_the_sdist_has_only_the_package_and_its_documents(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        tops = {Path(name).parts[1] for name in packed.getnames()}

    assert {"kasmon", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore"} == tops


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_tree(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    wheels = []
    for place in (ROOT, unpacked):
        argv = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / place.name)]
        run(argv, tmp_path, place)
        (wheel,) = (tmp_path / place.name).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            wheels.append({name: packed.read(name) for name in packed.namelist()})

    assert "kasmon-0.1.0-py3-none-any.whl" == wheel.name
    assert wheels[0].keys() == wheels[1].keys()
    assert [] == [name for name in wheels[0] if wheels[0][name] != wheels[1][name]]
    assert {"kasmon", "kasmon-0.1.0.dist-info"} == {name.partition("/")[0] for name in wheels[0]}


DATA = {
    "themes": "kasmon/themes/nord.toml",
    "profiles of agents": "kasmon/agents/claude/profile.toml",
    "screens of agents": "kasmon/agents/claude/screen.toml",
    "pages": "kasmon/web/page/enter.html",
    "help": "kasmon/cli/help.txt",
    "types": "kasmon/py.typed",
    "guest": "kasmon/sandbox/guest/bashrc",
}


def test_data_files_are_in_the_wheel_too(installed: Path) -> None:
    assert [] == [what for what, path in DATA.items() if not (installed / path).is_file()]


def test_the_extra_all_has_every_extra_of_a_user() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    (everything,) = (Requirement(line) for line in extras["all"])
    assert everything.extras == extras.keys() - {"all", "dev"}


def test_no_text_installs_a_foreign_kasmon() -> None:
    """The name is not ours in any index: texts name the clone. It needs no wheel that a person builds first."""
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "kasmon").rglob("*.py")]
    wanted = re.compile(r"\b(pip|pipx|uv|uvx|tool) (install|run) (-\S+ )*[\"']?kasmon\b(?!-)|\buvx kasmon\b|\bWHEEL\[")

    assert wanted.search("pip install 'kasmon[web]'")
    assert wanted.search("pip install 'WHEEL[web]'")
    assert [] == [str(path) for path in paths if wanted.search(path.read_text("utf-8"))]
