"""`kasmon config`: show, explain and change settings. An unreadable config file is never written."""

from typing import Annotated, Any

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import as_json, note, print_answer, print_json, say
from kasmon.config import Config, load
from kasmon.config.edit import put
from kasmon.config.explain import ExplainedSetting, settings, value_at
from kasmon.config.explain import explain as explained
from kasmon.errors import ConfigError, UsageError
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.sessions.folder_config import in_folder


def config(
    key: Annotated[str | None, Arg(completer="settings", help="Setting, such as ui.theme.")] = None,
    value: Annotated[str | None, Arg(completer="values", hyphen=True, help="New value.")] = None,
    /,
    *,
    explain: Annotated[
        str | None, Arg(completer="settings", help="Explain this setting and where its value comes from.")
    ] = None,
    wants_json: Json = False,
) -> None:
    """Show or change settings; comments in the file are kept."""
    where = user_paths()
    if explain is not None and key is not None:
        raise UsageError("--explain requires the key as its own value.", hint=f"Run `kasmon config --explain {key}`.")
    if key is not None and value is not None:
        from kasmon.supervisor.limits.agents import check_is_person  # only where something is changed

        check_is_person(where, "change settings")
        put(where, key, value, check=lambda config: _check(where, key, config))
    if explain is not None:
        _print_explained(explained(where, explain), _folder_value(where, explain), wants_json=wants_json)
    elif key is not None:
        setting = explained(where, key)
        print_answer(_format_toml(setting.value), wants_json=wants_json, **_plain(setting))
    else:
        found = settings(load(where))
        lines = (f"{name} = {_format_toml(set_to)}" for name, set_to in found.items())
        file = str(where.config_file)
        print_answer(f"# {file}", *lines, wants_json=wants_json, file=file, settings=_plain(found))


def _check(where: Paths, key: str, config: Config) -> None:
    """Validate *config* after a change of *key*. Raises `ConfigError`."""
    from kasmon.cli.completion import themes
    from kasmon.tui.keymap import chosen

    chosen(config.keys)
    if key == "ui.theme" and config.ui.theme and config.ui.theme not in (known := themes(where)):
        raise ConfigError(str(where.config_file), f"there is no theme {config.ui.theme!r}", key=key, allowed=[*known])


def _folder_value(where: Paths, key: str) -> dict[str, Any] | None:
    """Return the setting's value for the current folder if it differs, or the notice on the folder's config."""
    own = load(where)
    settings = in_folder(where, own, "")
    if settings.local is None:
        return None
    path = tuple(key.split("."))
    if settings.notice:
        return {"origin": settings.local.file, "counts": False, "notice": settings.notice}
    if (value := value_at(settings.config, path)) == value_at(own, path):
        return None
    return {"origin": settings.local.file, "counts": True, "value": value}


def _print_explained(setting: ExplainedSetting, folder_value: dict[str, Any] | None, *, wants_json: bool) -> None:
    if wants_json:
        print_json(**_plain(setting), here=folder_value)
        return
    say(f"{setting.key} = {_format_toml(setting.value)}", f"  {setting.sentence}")
    say(f"  default   {_format_toml(setting.default)}", f"  from      {setting.origin}")
    if setting.allowed:
        say(f"  allowed   {', '.join(setting.allowed)}")
    if folder_value is not None and folder_value["counts"]:
        say(f"  here      {_format_toml(folder_value['value'])}, from {folder_value['origin']}")
    elif folder_value is not None:
        note(folder_value["notice"])


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _format_toml(value: Any) -> str:
    """Return *value* in TOML syntax; empty if it is not set."""
    return "" if value is None else as_json(_plain(value))
