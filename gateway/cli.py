"""The command line: ``messages-gateway serve`` and its siblings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway.errors import MessagesGatewayError
from gateway.settings import REPEATABLE, SECRETS, Settings, flag, load, variable

Command = TypeVar("Command", bound=Callable[..., Any])


class _Group(click.Group):
    """Says in a sentence what stops a command."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MessagesGatewayError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="messages-gateway")
def main() -> None:
    """An async proxy for the Anthropic Messages API that runs the server side of tools for open models."""


def settings_options(command: Command) -> Command:
    """``--config`` and a flag for each setting that may be one; the values are for :func:`read_settings`."""
    for name, field in reversed(Settings.model_fields.items()):
        if name not in SECRETS:
            default = (
                ""
                if name in REPEATABLE or field.default is None
                else f" [{variable(name)}; default: {_shown(field.default)}]"
            )
            option = click.option(
                flag(name),
                name,
                multiple=name in REPEATABLE,
                metavar="VALUE",
                help=f"{field.description}{default or f' [{variable(name)}]'}",
            )
            command = option(command)
    path = click.Path(path_type=Path)
    return click.option("--config", type=path, metavar="FILE", help="TOML file with settings by name.")(command)


def read_settings(given: dict[str, Any]) -> Settings:
    """The settings from a command's options, the environment and the file. Raises SettingsError."""
    config = given.pop("config")
    return load({name: value for name, value in given.items() if value is not None and value != ()}, config)


def _shown(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)


@main.command()
@settings_options
def serve(**given: Any) -> None:
    """Run the gateway.

    A setting comes from its flag, else from its GATEWAY_… variable, else from the file. Keys are no flags:
    GATEWAY_API_KEYS, GATEWAY_UPSTREAM_API_KEY, GATEWAY_SEARCH_API_KEY, GATEWAY_SEAL_KEYS, or the file.
    """
    from gateway import server

    server.serve(read_settings(given))


@main.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Show one request through the tool loop: no GPU, no key, no network."""
    from gateway import demo as module

    ctx.exit(module.main())
