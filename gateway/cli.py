"""The command line: ``messages-gateway serve`` and its siblings."""

from typing import Any

import click

from gateway.errors import MessagesGatewayError
from gateway.options import read_settings, settings_options


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
