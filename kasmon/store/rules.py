"""The standing rules on disk: a TOML file that kasmon writes and users may read. An invalid file allows nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from kasmon.errors import ConfigError, NotFoundError
from kasmon.model.rule import Rule
from kasmon.paths import open_regular, private_folder, write_private
from kasmon.store.file_lock import lock


class RuleBook:
    """The rules in the file at *path*. Every change reads it again, under a lock, and replaces it whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[Rule, ...]:
        """Return all rules, oldest first.

        Raises:
            ConfigError: if the file cannot be read, is not TOML, or holds no valid rules; it is left unchanged.
        """
        try:
            with os.fdopen(open_regular(self.path, os.O_RDONLY), encoding="utf-8") as file:
                import tomllib  # only here: few users have rules

                table = tomllib.loads(file.read())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(str(self.path), f"it cannot be read ({error.strerror or error})") from error
        except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or a number of 5,000 digits
            raise ConfigError(str(self.path), f"it is not valid TOML: {error}") from error
        try:
            return msgspec.convert(table.get("rule", []), tuple[Rule, ...])
        except msgspec.ValidationError as error:
            raise ConfigError(str(self.path), f"it contains no rules: {error}") from error

    def add(self, rule: Rule) -> Rule:
        """Store *rule* under the next free id and return it. An existing rule with equal content is returned instead.

        Raises:
            ConfigError: if the file cannot be read; nothing is stored then.
            OSError: if it cannot be written.
        """
        added = rule

        def append_rule(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
            nonlocal added
            same = [existing for existing in rules if _content(existing) == _content(rule)]
            if same:
                added = same[0]
                return rules
            number = 1 + max((int(existing.id[1:]) for existing in rules if existing.id[1:].isdecimal()), default=0)
            added = msgspec.structs.replace(rule, id=f"k{number}")
            return (*rules, added)

        self._change(append_rule)
        return added

    def remove(self, rule_id: str) -> Rule:
        """Revoke and return the rule with this id.

        Raises:
            NotFoundError: if there is none.
            ConfigError, OSError: as `add`.
        """
        removed: list[Rule] = []

        def drop_rule(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
            removed.extend(rule for rule in rules if rule.id == rule_id)
            if not removed:
                raise NotFoundError(f"there is no rule {rule_id!r}.", hint="See `kasmon rules ls`.")
            return tuple(rule for rule in rules if rule.id != rule_id)

        self._change(drop_rule)
        return removed[0]

    def drop_session(self, session: str) -> None:
        """Revoke the rules of a session that is being forgotten. Raises `ConfigError` or `OSError` as `add`."""
        if not self.path.exists():
            return
        self._change(
            lambda rules: tuple(rule for rule in rules if not (rule.scope == "session" and rule.of == session))
        )

    def _change(self, change: Callable[[tuple[Rule, ...]], tuple[Rule, ...]]) -> None:
        private_folder(self.path.parent)
        with lock(self.path):
            before = self.read()
            after = change(before)
            if after != before:
                import tomli_w  # only here: most hosts never write a rule

                content = tomli_w.dumps({"rule": [msgspec.to_builtins(rule) for rule in after]}).encode()
                write_private(self.path, content, durable=True)


def _content(rule: Rule) -> tuple[str, ...]:
    return (rule.effect, rule.scope, rule.of, rule.tool, rule.match, rule.text)
