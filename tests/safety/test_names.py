"""Names and layout, as CONTRIBUTING has them: what this file lists as an exception has its reason beside it."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support import syntax_trees
from tests.support.syntax_trees import nodes

ROOT: Final = Path(__file__).parents[2] / "kasmon"

BANNED: Final = frozenset(
    {"told", "heard", "said", "word", "words", "way", "ways", "ground", "grounds", "lot", "seat", "desk", "pen", "hand"}
    | {"hands", "deed", "deeds", "inside", "far", "place", "places", "room", "rooms", "house", "wish", "wishes"}
)
"""Words with a private meaning: they are no part of a module's, a class's or a type alias's name."""
BOXES: Final = frozenset({"prompt", "text", "code", "line", "edit"})
"""What stands before `box`: a field for text has that name in every toolkit. A sandbox is none."""
IRREGULAR: Final = frozenset(
    {"begun", "bound", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven", "fallen", "felt"}
    | {"forgotten", "found", "given", "gone", "grown", "handed", "heard", "held", "hidden", "kept", "known", "laid"}
    | {"left", "lost", "made", "meant", "met", "paid", "proven", "said", "seen", "sent", "shown", "sought", "spoken"}
    | {"spent", "stood", "taken", "taught", "thought", "thrown", "told", "understood", "withdrawn", "won", "written"}
)
"""Participles that end neither in -ed nor in -ing."""
NOUNS: Final = {
    "encoding": "a standard noun: how keys and mouse reports become bytes",
    "formatting": "a standard noun: how numbers and times become text",
    "listing": "a standard noun: a list that a command prints",
    "provisioning": "a standard noun: making virtual machines",
    "quoting": "a standard noun: quotes in tmux's command language",
}
"""Words on -ing or -ed that end a module's name."""
TYPES: Final = {
    "everything": "no participle",
    "heading": "a standard noun: the row above a group",
    "provisioning": "as for a module",
    "reading": "a standard noun: the result of reading a screen",
    "setting": "a standard noun: a value that a user chooses",
}
"""Words on -ing or -ed that end the name of a class or a type alias."""
PAST: Final = {
    "SecretsLearned": "an event that no log contains",
    "OnDone": "a callback, by what calls it",
    "VersionBound": "a standard noun: one end of a range",
}
"""Names that end in a participle though they are no event, message or error."""
EVENTS: Final = frozenset({"BaseEvent", "Message"})
"""The bases of what happened, which has a name in the past tense: events of a log, and messages of Textual."""
PAST_TENSE: Final = frozenset({"became", "began", "came", "died", "fell", "gave", "got", "took", "went"})
"""Irregular past tenses that are no participle."""
NO_VERBS: Final = frozenset(
    {"about", "after", "again", "anew", "at", "back", "before", "behind", "beside", "by", "down", "due", "for", "from"}
    | {"in", "into", "next", "of", "off", "out", "over", "overdue", "soon", "to", "under", "until", "up", "with"}
)
"""Prepositions and adverbs: a function that acts begins with none of them."""
VERBS: Final = {"bring": "no participle", "feed": "no participle", "need": "no participle", "ring": "no participle"}
"""Words on -ing or -ed that begin the name of a function that acts."""
VERBLESS: Final = {
    "embedded_terminal": "a name of the Python API",
    "of": "a name of the Python API: `ExecutionSession.of`",
}
"""Functions that act and have no verb."""
FLAT: Final = {
    "Dialog": "the screen that every dialog is, as Textual's own bases",
    "PaneListener": "an interface whose methods do nothing by default",
    "TextBox": "Textual's text area, adapted",
}
"""In-house bases that count as none; so do protocols, errors, and all of `tui/textual_ext`."""
SHARED: Final = {
    "JsonObject": "one type, in the programs of a guest, which import each other as little as possible",
}
"""Public names that several modules define."""
LINES: Final = 60
LONE: Final = {
    "backends/tmux/evidence/signal_ledger.py": "pure, and tested alone",
    "host/session/limit_follower.py": "follows a session's log, as its neighbour turn_recorder",
    "supervisor/recovery/gemini.py": "the format of one agent, as its neighbours",
    "supervisor/recovery/opencode.py": "the format of one agent, as its neighbours",
    "tui/terminal/background.py": "sans-IO, and tested alone, as its neighbour stdin_tap",
    "tui/textual_ext": "each module adapts one part of Textual",
}
"""Modules of fewer than `LINES` lines that only one module imports, and folders of such."""
NOT_SPLIT: Final = {"sandbox/guest": "the files that run inside a sandbox are copied there as one flat folder"}
"""Folders with more than `FILES` modules."""
FILES: Final = 20
NO_MODULES: Final = {
    "check_snapshot": "a function of a module that the map names",
    "claude": "a program",
    "gh": "a program",
    "glab": "a program",
    "nats": "a program",
}
"""Names in a map that are no module."""
PREFIXES: Final = {
    "backends/tmux/evidence/process": "a source of evidence, beside sources of one module each",
    "backends/tmux/evidence/screen": "a source of evidence, beside sources of one module each",
    "supervisor/plans/task": "a plan is made of tasks: the word divides nothing",
    "supervisor/plans/machines/task": "a plan is made of tasks: the word divides nothing",
    "web/request": "limits of HTTP requests, and the page of a permission request",
}
"""First words that three modules of a folder share."""


GONE: Final = frozenset(
    {"anew", "clue", "course", "deed", "deeds", "desk"}
    | {"diary", "door", "doubt", "doubts", "far", "found", "gift"}
    | {"glance", "grounds", "hands", "hear", "heard", "hears"}
    | {"heir", "house", "housing", "keep", "known", "learn", "lodger", "pen", "places"}
    | {"rooms", "seat", "shelf", "steer", "steered", "steward", "take", "tell"}
    | {"tenant", "thrift", "together", "told", "typist", "vigil"}
    | {"way", "ways", "whom", "wish", "wishes", "word"}
)
"""Words that no function, method, parameter or field has in its name."""
REPLACED: Final[Mapping[str, frozenset[str]]] = {
    "asks": frozenset(["backends"]),  # an ability, named so in the logs
    "look": frozenset(["detection", "tui"]),  # a key of screen rules; the styles that every widget shares
}
"""Words that get no further uses in such names, each with the packages that still have one."""


DIALECT: Final = re.compile(
    r"\b(nobody|somebody|whoever|deeds?|wishes|tenants?|anew|goes on|stands there|what becomes of|by its own word)\b",
    re.IGNORECASE,
)
"""Words of the older docstrings that name no actor or have a private meaning."""


class Named(NamedTuple):
    """A module, a class or a type alias, and where it is."""

    name: str
    where: str
    bases: tuple[str, ...] = ()


def modules() -> list[Named]:
    return [Named(path.stem, str(path.relative_to(ROOT))) for path in sorted(ROOT.rglob("*.py"))]


def folders(names: list[Named]) -> list[Named]:
    """The folders of these modules."""
    return sorted({Named(part, str(of)) for each in names for of in Path(each.where).parents if (part := of.name)})


@functools.cache
def sources() -> dict[str, str]:
    syntax_trees.modules()  # makes all of them, in less time
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def classes(sources: Mapping[str, str]) -> list[Named]:
    """Every class at the top of a module."""
    return [_class(node, at) for at, tree in _trees(sources) for node in tree.body if isinstance(node, ast.ClassDef)]


def types(sources: Mapping[str, str]) -> list[Named]:
    """Every class, nested ones too, and every type alias."""
    found: list[Named] = []
    for where, tree in _trees(sources):
        found += [_class(node, where) for node in nodes(tree) if isinstance(node, ast.ClassDef)]
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and re.match("_?[A-Z][a-z]", target.id):
                found.append(Named(target.id, where))
    return found


def _trees(sources: Mapping[str, str]) -> list[tuple[str, ast.Module]]:
    return [(where, syntax_trees.parse(source)) for where, source in sources.items()]


def _class(node: ast.ClassDef, where: str) -> Named:
    """A class with the last names of its bases: `Protocol` of `typing.Protocol[T]`."""
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return Named(node.name, where, tuple(ast.unparse(base).rpartition(".")[2] for base in bases))


def words(name: str) -> list[str]:
    """The words of a name in camel case or with underscores, in small letters."""
    return [word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", part)]


def banned(names: list[Named]) -> list[Named]:
    return [named for named in names if BANNED & set(words(named.name)) or is_other_box(words(named.name))]


def is_other_box(words: list[str]) -> bool:
    """Whether `box` is among *words* and no field for text."""
    return any(word == "box" and (not at or words[at - 1] not in BOXES) for at, word in enumerate(words))


def ends_in_participle(name: str, nouns: Container[str]) -> bool:
    end = next(reversed(words(name)), "")
    return end in IRREGULAR or (re.search(r"(ing|ed)$", end) is not None and end not in nouns)


def participles(names: list[Named]) -> list[Named]:
    """Modules whose name ends in a participle without being a standard noun."""
    return [named for named in names if ends_in_participle(named.name, {*NOUNS, "speed", "embed"})]


def past(names: list[Named]) -> list[Named]:
    """Classes and type aliases whose name ends in a participle, though they are no event, message or error."""
    return [named for named in names if not EVENTS & set(named.bases) and ends_in_participle(named.name, TYPES)]


def acts(sources: Mapping[str, str]) -> list[Named]:
    """Every function and method that returns None or is a coroutine, nested ones too; properties are values."""
    return [
        Named(node.name, where)
        for where, tree in _trees(sources)
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (is_coroutine(node) or (isinstance(node.returns, ast.Constant) and node.returns.value is None))
    ]


def is_coroutine(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether *node* is asynchronous and neither a generator, as context managers are, nor a property."""
    is_property = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
    return isinstance(node, ast.AsyncFunctionDef) and not is_property and not any(map(_yields, node.body))


def _yields(node: ast.AST) -> bool:
    """Whether *node* yields, apart from functions in it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return False
    return isinstance(node, ast.Yield | ast.YieldFrom) or any(map(_yields, ast.iter_child_nodes(node)))


def members(sources: Mapping[str, str]) -> list[Named]:
    """Every function, method, parameter, and attribute that is annotated in a class or assigned to an object."""
    found: list[Named] = []
    for where, tree in _trees(sources):
        for node in nodes(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                    found.append(Named(name, where))
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    found.append(Named(name, where))
                case ast.ClassDef(body=body):
                    targets = [each.target for each in body if isinstance(each, ast.AnnAssign)]
                    found += [Named(target.id, where) for target in targets if isinstance(target, ast.Name)]
    return found


def packages(names: list[Named], replaced: Container[str]) -> dict[str, frozenset[str]]:
    """Return each of the *replaced* words that is in one of *names*, with the packages of those."""
    found: dict[str, set[str]] = {}
    for named in names:
        for word in words(named.name):
            if word in replaced:
                found.setdefault(word, set()).add(Path(named.where).parts[0])
    return {word: frozenset(where) for word, where in found.items()}


def verbless(names: list[Named]) -> list[Named]:
    """The functions whose name begins with a participle, a past tense, a preposition or an adverb."""
    firsts = [(named, next(iter(words(named.name)), "")) for named in names]
    others = PAST_TENSE | NO_VERBS
    return [named for named, first in firsts if first in others or ends_in_participle(first, VERBS)]


def deep(sources: Mapping[str, str]) -> list[str]:
    """The classes with an in-house base that has an in-house base."""
    known = {named.name: named for named in classes(sources)}
    ours: dict[str, set[str]] = {}
    for where, tree in _trees(sources):
        imports = [node for node in nodes(tree) if isinstance(node, ast.ImportFrom)]
        ours[where] = {name.name for node in imports if (node.module or "").startswith("kasmon") for name in node.names}
        ours[where] |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}

    def levels(named: Named) -> int:
        bases = [known[base] for base in named.bases if base in known and base in ours[named.where]]
        return max((1 + levels(base) for base in bases if _is_level(base)), default=0)

    return sorted(name for name, named in known.items() if _is_level(named) and levels(named) > 1)


def _is_level(named: Named) -> bool:
    is_adapter = named.where.startswith("tui/textual_ext/") or named.name in FLAT
    return not is_adapter and "Protocol" not in named.bases and not named.name.endswith("Error")


def lone(sources: Mapping[str, str]) -> list[str]:
    """The short modules that one other module imports, when it is imported itself; a program has a `__main__`."""
    eager: dict[str, set[str]] = {}
    every: dict[str, set[str]] = {}
    for where, tree in _trees(sources):
        for node, is_deferred in _imports(tree):
            for name in (node.module or "", *(f"{node.module}.{name.name}" for name in node.names)):
                every.setdefault(name, set()).add(where)
                if not is_deferred:
                    eager.setdefault(name, set()).add(where)
    found: list[str] = []
    for where, source in sources.items():
        name = "kasmon." + where.removesuffix(".py").replace("/", ".")
        is_program = Path(where).stem.startswith("__") or '__name__ == "__main__"' in source
        if (
            len(source.splitlines()) < LINES
            and not is_program
            and len(every.get(name, ())) == len(eager.get(name, ())) == 1
        ):
            found.append(where)
    return found


def _imports(tree: ast.AST, is_deferred: bool = False) -> Iterator[tuple[ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield node, is_deferred
        yield from _imports(node, is_deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def excepted(where: str) -> str:
    """The entry of `LONE` for *where*; empty if it has none."""
    return next((entry for entry in LONE if where == entry or where.startswith(f"{entry}/")), "")


def aliases(sources: Mapping[str, str]) -> list[Named]:
    """Every type alias and `NewType` at the top of a module; type variables name no type."""
    found: list[Named] = []
    for where, tree in _trees(sources):
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                made_by = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
                if re.match("[A-Z][a-z]", ast.unparse(target)) and made_by not in ("TypeVar", "ParamSpec"):
                    found.append(Named(ast.unparse(target), where))
    return found


def shared(names: list[Named]) -> list[str]:
    """The public names that more than one module defines."""
    count = Counter(named.name for named in names if not named.name.startswith("_"))
    return sorted(name for name, number in count.items() if number > 1)


def crowded(names: list[Named]) -> list[str]:
    """The folders with more than `FILES` modules besides `__init__` and `__main__`."""
    flat = Counter(str(Path(named.where).parent) for named in names if not named.name.startswith("__"))
    return sorted(folder for folder, number in flat.items() if number > FILES)


def prefixes(names: list[Named]) -> list[str]:
    """The first words that three or more modules of a folder share, each after its folder."""
    plain = [named for named in names if not named.name.startswith("__")]
    count = Counter((Path(named.where).parent / named.name.split("_")[0]).as_posix() for named in plain)
    return sorted(prefix for prefix, number in count.items() if number > 2)


def lost(sources: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names in the maps, the docstrings of packages, that are no module or member there, each after its map."""
    folders = {str(folder) for where in sources for folder in Path(where).parents}
    found: list[tuple[str, str]] = []
    for where, tree in _trees(sources):
        if Path(where).name == "__init__.py":
            for name in re.findall(r"`([a-z_]+(?:\.\w+)*)/?`", ast.get_docstring(tree) or ""):
                first = name.removeprefix("kasmon.").split(".")[0]
                near = [(at / first).as_posix() for at in Path(where).parents]
                if (
                    first.islower()
                    and first not in NO_MODULES
                    and not any(at in folders or f"{at}.py" in sources for at in near)
                ):
                    found.append((where, name))
    return found


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of *source*, each with its line."""
    for node in nodes(syntax_trees.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for number, line in enumerate(source.splitlines(), 1):
        if (comment := re.search(r"(?:^|\s)# (.*)", line)) is not None:
            yield number, comment[1]


def dialect(prose: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(line, found[0]) for line, text in prose for found in DIALECT.finditer(" ".join(text.split()))]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The sentences among the strings of *source*: those that contain a space."""
    for node in nodes(syntax_trees.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def pages() -> dict[str, str]:
    """The prose of the documents, of the page in a browser and of the screen rules, without code and names of tests."""
    project = ROOT.parent
    documents = [*project.glob("*.md"), *project.glob("docs/**/*.md"), *(ROOT / "web" / "page").glob("page.*")]
    found = {
        path: re.sub(r"```.*?```|`[^`\n]+`|^    .*?$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for path in documents
    }
    rules = {path: "\n".join(re.findall("# .*", path.read_text())) for path in ROOT.glob("agents/*/screen*.toml")}
    return {path.relative_to(project).as_posix(): text for path, text in (found | rules).items()}


def test_docstrings_and_comments_are_in_plain_english() -> None:
    assert [] == [(where, *each) for where, source in sources().items() for each in dialect(prose(source))]


def test_the_texts_of_the_interface_and_of_the_documents_are_in_plain_english() -> None:
    own = {where: source for where, source in sources().items() if not where.startswith("bench/")}  # imitates agents
    assert [] == [(where, *each) for where, source in own.items() for each in dialect(texts(source))]
    assert {} == {where: found for where, text in pages().items() if (found := dialect([(0, text)]))}
    assert {"README.md", "docs/plans.md", "kasmon/agents/claude/screen.toml", "kasmon/web/page/page.js"} <= set(pages())


def test_dialect_is_found_in_texts_and_not_in_names() -> None:
    source = "say('It goes on.')\nname = 'nobody'\nraise E(f'{x} asks somebody')"

    assert [(1, "goes on"), (3, "somebody")] == dialect(texts(source))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def f():\n    """Ends when nobody\n    reads it."""', [(2, "nobody")]),
        ('x = 1\n"""It goes\non."""', [(2, "goes on")]),
        ("x = 1  # Whoever reads it", [(1, "Whoever")]),
        ('x = "nobody"  # the user of that name', []),
        ("x = 1  # indeed", []),
    ],
)
def test_dialect_is_found_in_prose_and_not_in_values(source: str, found: list[tuple[int, str]]) -> None:
    assert found == dialect(prose(source))


def test_no_word_with_a_private_meaning_is_part_of_a_name() -> None:
    assert [] == banned(modules()) + banned(folders(modules())) + banned(types(sources()))


def test_the_folders_are_those_of_the_modules_at_any_depth() -> None:
    assert [Named("a", "a"), Named("b", "a/b")] == folders(
        [Named("x", "a/b/x.py"), Named("y", "a/y.py"), Named("z", "z.py")]
    )


def test_a_replaced_word_is_part_of_no_function_parameter_or_field() -> None:
    assert REPLACED == packages(members(sources()), GONE | set(REPLACED))


@pytest.mark.parametrize(
    "source",
    [
        "def tell() -> None: ...",
        "class A:\n    async def _tell_all(self) -> None: ...",
        "def f(*, can_tell: bool) -> None: ...",
        "class A:\n    tell: int = 0",
        "class A:\n    def __init__(self) -> None:\n        self._tell = 1",
    ],
)
def test_a_replaced_word_is_found_with_its_package(source: str) -> None:
    assert {"tell": {"host"}} == packages(members({"host/a/x.py": source}), {"tell"})


def test_a_replaced_word_may_name_a_local_variable_or_an_attribute_of_others() -> None:
    assert {} == packages(members({"x.py": "def f(a: A) -> None:\n    tell = a.tell\n    teller = 1"}), {"tell"})


def test_no_participle_is_the_name_of_a_module() -> None:
    assert [] == participles(modules())


def test_no_participle_is_the_name_of_a_class_that_is_no_event() -> None:
    assert sorted(PAST) == sorted({named.name for named in past(types(sources()))})


def test_the_name_of_a_function_that_acts_begins_with_a_verb() -> None:
    assert sorted((name, "execution/session.py") for name in VERBLESS) == sorted(
        (named.name, named.where) for named in verbless(acts(sources()))
    )


def test_a_class_and_a_type_alias_have_a_name_of_their_own() -> None:
    assert sorted(SHARED) == shared(classes(sources()) + aliases(sources()))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Row = int", ["Row"]),
        ("Row: TypeAlias = int", ["Row"]),
        ('Row = NewType("Row", int)', ["Row"]),
        ('Row = TypeVar("Row")\nMore = ParamSpec("More")', []),
        ("_Row = int\nROW = 1\nrow = 2", []),
    ],
)
def test_an_alias_is_found_and_a_type_variable_is_not(source: str, found: list[str]) -> None:
    assert found == [named.name for named in aliases({"x.py": source})]


def test_a_class_inherits_from_one_level_of_ours() -> None:
    assert [] == deep(sources())


def test_a_short_module_has_two_importers() -> None:
    found = lone(sources())
    assert [] == [where for where in found if not excepted(where)]
    assert [] == [entry for entry in LONE if entry not in map(excepted, found)]


def test_a_folder_has_as_many_files_as_a_reader_takes_in() -> None:
    assert sorted(NOT_SPLIT) == crowded(modules())


def test_three_modules_with_a_common_prefix_are_in_a_folder_of_that_name() -> None:
    assert sorted(PREFIXES) == prefixes(modules())


def test_a_map_names_modules_that_exist() -> None:
    assert [] == lost(sources())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`b` and `c/`, `c.d`, `kasmon.top`, `top`", []),
        ("`b.Some` and `c.d.run`", []),
        ("`d`", ["d"]),
        ("`gone` and `gone.Some`", ["gone", "gone.Some"]),
    ],
)
def test_a_name_in_a_map_is_found_beside_it_or_above(text: str, found: list[str]) -> None:
    files = {"a/__init__.py": f'"""A map: {text}."""', "a/b.py": "", "a/c/d.py": "", "top.py": ""}
    assert [("a/__init__.py", name) for name in found] == lost(files)


def test_no_exception_is_obsolete() -> None:
    maps = [source for where, source in sources().items() if where.endswith("__init__.py")]
    assert [] == [name for name in NO_MODULES if not any(f"`{name}`" in source for source in maps)]
    ends = {words(named.name)[-1] for named in modules() if words(named.name)}
    assert [] == [noun for noun in NOUNS if noun not in ends]
    ends = {words(named.name)[-1] for named in types(sources())}
    assert [] == [noun for noun in TYPES if noun not in ends]
    begins = {words(named.name)[0] for named in acts(sources())}
    assert [] == [verb for verb in VERBS if verb not in begins]
    names = {named.name for named in classes(sources())}
    assert [] == [base for base in FLAT if base not in names]


@pytest.mark.parametrize(
    "name", ["Told", "TheRoom", "_Way", "_Grounds", "house", "prompt_desk", "far", "Box", "SandboxBox"]
)
def test_a_banned_word_is_found_anywhere_in_a_name(name: str) -> None:
    assert [Named(name, "x.py")] == banned([Named(name, "x.py")])


@pytest.mark.parametrize(
    "name", ["Handler", "Farm", "Password", "roommate", "always", "LostSession", "PromptBox", "Sandbox"]
)
def test_a_banned_word_within_a_longer_word_is_allowed(name: str) -> None:
    assert [] == banned([Named(name, "x.py")])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("adopted", 1),
        ("request_editing", 1),
        ("key_encoding", 0),
        ("string", 1),
        ("panes_seen", 1),
        ("known_agents", 0),
    ],
)
def test_a_participle_is_distinguished_from_a_standard_noun(name: str, found: int) -> None:
    assert found == len(participles([Named(name, "x.py")]))


def test_a_name_that_two_modules_define_is_found_and_a_private_one_is_not() -> None:
    names = [
        Named("Row", "a.py"),
        Named("Row", "b.py"),
        Named("_Row", "a.py"),
        Named("_Row", "b.py"),
        Named("Cell", "a.py"),
    ]
    assert ["Row"] == shared(names)


@pytest.mark.parametrize(("number", "found"), [(FILES, []), (FILES + 1, ["a"])])
def test_a_folder_is_crowded_from_one_file_over_the_limit(number: int, found: list[str]) -> None:
    names = [Named(f"module_{n}", f"a/module_{n}.py") for n in range(number)]
    assert found == crowded([*names, Named("__init__", "a/__init__.py")])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["wave_a", "wave_b", "wave_c"], ["x/wave"]),
        (["wave", "wave_a", "wave_b"], ["x/wave"]),
        (["wave_a", "wave_b", "waves_c", "waves_d"], []),
        (["__init__", "__main__", "__about__"], []),
    ],
)
def test_a_prefix_is_found_from_three_modules_of_one_folder(names: list[str], found: list[str]) -> None:
    assert found == prefixes([*(Named(name, f"x/{name}.py") for name in names), Named("wave_z", "y/wave_z.py")])


def test_a_class_is_found_within_a_class_and_an_alias_at_the_top() -> None:
    source = "class Outer:\n    class Told(Message): ...\nSaid = str\nRoom: TypeAlias = int\nROOM = 1\nroom = 2\n"
    assert ["Told", "Said", "Room"] == [named.name for named in banned(types({"x.py": source}))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class PaneSeen(Frame): ...", ["PaneSeen"]),
        ("class Watched: ...", ["Watched"]),
        ("Given: TypeAlias = str", ["Given"]),
        ("class Outer:\n    class Taken: ...", ["Taken"]),
        ("class TurnEnded(BaseEvent, frozen=True): ...", []),
        ("class Row:\n    class Picked(Message): ...", []),
        ("class KnownAgent: ...\nclass ScreenReading: ...\nclass LostError(Exception): ...", []),
    ],
)
def test_a_participle_names_events_and_messages_alone(source: str, found: list[str]) -> None:
    assert found == [named.name for named in past(types({"x.py": source}))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def heard() -> None: ...", ["heard"]),
        ("class A:\n    async def _died(self, status: int) -> None: ...", ["_died"]),
        ("def f() -> None:\n    def taken(value: int) -> None: ...", ["taken"]),
        ("def printed_all() -> None: ...\ndef until_connected() -> None: ...", ["printed_all", "until_connected"]),
        ("def heard() -> bool: ...\ndef told() -> str | None: ...", []),
        ("async def heard() -> bool: ...", ["heard"]),
        ("class A:\n    async def of(self) -> int: ...", ["of"]),
        ("async def heard():\n    def f():\n        yield 1", ["heard"]),
        ("async def heard() -> AsyncIterator[int]:\n    if a:\n        yield 1", []),
        ("@asynccontextmanager\nasync def opened() -> AsyncIterator[int]:\n    yield 1", []),
        ("class A:\n    @property\n    async def given(self) -> int: ...", []),
        ("class A:\n    def __init__(self) -> None: ...\n    def on_mount(self) -> None: ...", []),
        ("def feed() -> None: ...\ndef record_printed() -> None: ...\ndef forget() -> None: ...", []),
    ],
)
def test_a_function_that_acts_without_a_verb_is_found(source: str, found: list[str]) -> None:
    assert found == [named.name for named in verbless(acts({"x.py": source}))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A: ...\nclass B(A): ...", []),
        ("class A: ...\nclass B(A): ...\nclass C(B): ...", ["C"]),
        ("class A(Generic[T]): ...\nclass B(A[int]): ...\nclass C(B): ...", ["C"]),
        ("class A(Protocol[T]): ...\nclass B(A[int]): ...\nclass C(B): ...", []),
        ("class AnError(Exception): ...\nclass BError(AnError): ...\nclass CError(BError): ...", []),
        ("from textual.screen import Screen\nclass A(Screen): ...\nclass B(A): ...", []),
    ],
)
def test_a_second_level_of_our_own_bases_is_found(source: str, found: list[str]) -> None:
    assert found == deep({"x.py": source})


def test_a_second_level_is_found_over_files_and_an_adapter_of_textual_is_none() -> None:
    base = {"tui/textual_ext/a.py": "class A: ...", "b.py": "class B: ..."}
    middle = "from kasmon.{0} import {1}\nclass M{1}({1}): ...\nclass C{1}(M{1}): ...\n"
    over = {"x.py": middle.format("tui.textual_ext.a", "A"), "y.py": middle.format("b", "B")}
    assert ["CB"] == deep(base | over)


def test_a_short_module_with_one_importer_is_found_and_others_are_not() -> None:
    short, program = "X = 1\n", 'if __name__ == "__main__":\n    run()\n'
    files = {
        "one.py": short,
        "two.py": short,
        "late.py": short,
        "run.py": program,
        "long.py": short * LINES,
        "none.py": "",
    }
    names = "one, two, run, long"
    users = {
        "a.py": f"from kasmon import {names}\ndef f():\n    from kasmon.late import X\n",
        "b.py": "from kasmon.two import X",
    }
    assert ["one.py"] == lone(files | users)
