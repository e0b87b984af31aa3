"""The settings as options of a command: ``--config``, and a flag for each setting that may be one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway.settings import NEGATED, REPEATABLE, SECRETS, Settings, flag, load, variable

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(command: Command) -> Command:
    """``--config`` and a flag for each setting that may be one; the values are for :func:`read_settings`."""
    for name, field in reversed(Settings.model_fields.items()):
        if name not in SECRETS:
            default = (
                ""
                if name in REPEATABLE or field.default is None
                else f" [{variable(name)}; default: {_shown(field.default)}]"
            )
            words = f"{field.description}{default or f' [{variable(name)}]'}"
            if name in NEGATED:
                option = click.option(flag(name), name, is_flag=True, flag_value="false", default=None, help=words)
            else:
                option = click.option(flag(name), name, multiple=name in REPEATABLE, metavar="VALUE", help=words)
            command = option(command)
    path = click.Path(path_type=Path)
    return click.option("--config", type=path, metavar="FILE", help="TOML file with settings by name.")(command)


def read_settings(given: Mapping[str, Any]) -> Settings:
    """The settings from a command's options, the environment and the file. Raises SettingsError."""
    return load({name: value for name, value in _flags(given).items() if name != "config"}, given["config"])


def as_arguments(given: Mapping[str, Any]) -> list[str]:
    """The options as a person would type them for another command that takes the same."""
    arguments = []
    for name, value in _flags(given).items():
        option = "--config" if name == "config" else flag(name)
        if name in NEGATED:
            arguments.append(option)
            continue
        for item in value if isinstance(value, tuple) else (value,):
            arguments.append(f"{option}={item}")
    return arguments


def _flags(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value != ()}


def _shown(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)
