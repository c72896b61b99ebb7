"""The names that the code of a folder defines, for completion."""

from pathlib import Path

from kasmon.supervisor.worktrees.code_symbols import CodeSymbol, find_symbols
from tests.support.git_repo import Repo

CODE = {
    "src/app.py": "import os\n\nclass App(Base):\n    async def start_all(self):\n        undefined()\n",
    "main.go": "package main\n\nfunc (s *Server) Serve() error {\n}\nfunc main() {\n}\n",
    "lib.rs": "pub(crate) struct Parts;\npub fn build() {}\n",
    "web.ts": "export default function render() {}\nexport interface Props {}\n",
}


def test_definitions_of_common_languages_are_found_with_file_and_line(tmp_path: Path) -> None:
    Repo(tmp_path, commits=0)
    for name, text in CODE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "ignored.py").write_text("def hidden(): ...\n")
    found = find_symbols(tmp_path)

    assert {
        CodeSymbol("App", "src/app.py", 3),
        CodeSymbol("start_all", "src/app.py", 4),
        CodeSymbol("Serve", "main.go", 3),
        CodeSymbol("main", "main.go", 5),
        CodeSymbol("Parts", "lib.rs", 1),
        CodeSymbol("build", "lib.rs", 2),
        CodeSymbol("render", "web.ts", 1),
        CodeSymbol("Props", "web.ts", 2),
    } == set(found)


def test_outside_of_a_repository_there_are_no_symbols(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def there(): ...\n")

    assert [] == find_symbols(tmp_path / "missing")
