"""Syntax highlighting: keywords, names, literals, comments. It only adds colours and never changes the text."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from kasmon.model.transcript.text import Span, Token, by_line

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

LANGUAGES: Final = {
    **{name: name for name in ("bash", "c", "cpp", "css", "diff", "go", "html", "ini", "java", "javascript", "json")},
    **{name: name for name in ("kotlin", "lua", "make", "php", "python", "ruby", "rust", "sql", "swift", "toml")},
    **{name: name for name in ("typescript", "xml", "yaml", "csharp", "docker", "nix", "zig", "haskell", "elixir")},
    "sh": "bash", "shell": "bash", "zsh": "bash", "console": "bash", "c++": "cpp", "golang": "go", "js": "javascript",
    "jsx": "javascript", "jsonc": "json", "makefile": "make", "py": "python", "python3": "python", "rb": "ruby",
    "rs": "rust", "patch": "diff", "ts": "typescript", "tsx": "typescript", "yml": "yaml", "cs": "csharp",
    "dockerfile": "docker",
}  # fmt: skip
"""The word behind a fence -> the name of its lexer."""
LONGEST: Final = 6000
"""Code longer than this, in characters, is not highlighted."""
LONGEST_LINE: Final = 400
"""Nor is code with a longer line."""

_TOKENS: Final = (
    ("Token.Comment", Token.COMMENT),
    ("Token.Literal.String", Token.LITERAL),
    ("Token.Literal.Number", Token.FIGURE),
    ("Token.Keyword", Token.KEYWORD),
    ("Token.Operator.Word", Token.KEYWORD),
    ("Token.Name.Function", Token.NAME),
    ("Token.Name.Class", Token.NAME),
    ("Token.Name.Decorator", Token.NAME),
    ("Token.Name.Tag", Token.KEYWORD),
    ("Token.Name.Builtin", Token.NAME),
    ("Token.Name.Attribute", Token.NAME),
    ("Token.Generic.Inserted", Token.ADDED),
    ("Token.Generic.Deleted", Token.REMOVED),
    ("Token.Generic.Subheading", Token.HUNK),
)
"""Lexer token types, with their subtypes -> kasmon's."""


def highlight(lines: Sequence[str], language: str) -> list[tuple[Span, ...]]:
    """Return each of the cleaned *lines* as spans of the same text; in one colour if *language* is unknown."""
    plain: list[tuple[Span, ...]] = [((line, Token.CODE_BLOCK),) for line in lines]
    lexer = _lexer(language.strip().lower().partition(" ")[0])
    text = "\n".join(lines)
    if lexer is None or len(text) > LONGEST or max(map(len, lines), default=0) > LONGEST_LINE:
        return plain
    rows = by_line((piece, _token(str(kind))) for _, kind, piece in lexer.get_tokens_unprocessed(text))
    whole = [tuple(span for span in row if span[0]) for row in rows]
    return whole if [*lines] == ["".join(text for text, _ in row) for row in whole] else plain


@cache
def _token(kind: str) -> Token:
    return next((token for prefix, token in _TOKENS if kind.startswith(prefix)), Token.TEXT)


@cache
def _lexer(language: str) -> "Lexer | None":
    name = LANGUAGES.get(language)
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # heavy: only for code

    return get_lexer_by_name(name)
