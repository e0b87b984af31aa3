"""The command line: ``messages-gateway serve`` and its siblings."""

import signal
from typing import Any

import click

from gateway.commands.options import as_arguments, read_settings, settings_options
from gateway.errors import MessagesGatewayError


class _Group(click.Group):
    """Says in a sentence what stops a command; a Ctrl-C needs none."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MessagesGatewayError as error:
            raise click.ClickException(str(error)) from None
        except KeyboardInterrupt:
            ctx.exit(128 + signal.SIGINT)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="messages-gateway")
def main() -> None:
    """An async proxy for the Anthropic Messages API that runs the server side of tools for open models."""


@main.command()
@click.option(
    "--model",
    metavar="NAME",
    help="Start vLLM with this model first, at the upstream's address; it ends with the gateway.",
)
@click.option(
    "--vllm-arg",
    "vllm_args",
    multiple=True,
    metavar="ARG",
    help="With --model: more for vllm serve, as in --vllm-arg '--max-model-len 32768'. Repeatable.",
)
@settings_options
def serve(model: str | None, vllm_args: tuple[str, ...], **given: Any) -> None:
    """Run the gateway.

    A setting comes from its flag, else from its GATEWAY_… variable, else from the file. Keys are no flags:
    GATEWAY_API_KEYS, GATEWAY_UPSTREAM_API_KEY, GATEWAY_SEARCH_API_KEY, GATEWAY_SEAL_KEYS, or the file.
    """
    from gateway.server import serve as server

    settings = read_settings(given)
    if model is None:
        if vllm_args:
            raise click.UsageError("--vllm-arg is for the vLLM that --model starts: give --model NAME too")
        server.serve(settings, reread=lambda: read_settings(given))
    else:
        from gateway.commands.vllm import running_vllm

        server.serve(settings, running_vllm(model, settings.upstream, vllm_args))


@main.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Show one request through the tool loop: no GPU, no key, no network."""
    from gateway.commands import demo as module

    ctx.exit(module.main())


@main.command()
@click.option("--model", metavar="NAME", help="The model to use; else the first that is served.")
@click.option("--print-env", is_flag=True, help="Print the environment as export lines, and start nothing.")
@settings_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@click.pass_context
def claude(ctx: click.Context, /, model: str | None, print_env: bool, arguments: tuple[str, ...], **given: Any) -> None:
    """Run Claude Code on this gateway; ARGS are its own.

    Where no gateway answers at --host and --port, one is started with the same settings and --max-tokens-cap auto, and
    stopped at the end. The exit status is Claude Code's.
    """
    from gateway.commands import claude as module

    settings = read_settings(given)
    if print_env:
        click.echo(module.exports(settings, model))
    else:
        ctx.exit(module.run(settings, as_arguments(given), model, arguments))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
@settings_options
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Check upstream, model, parsers, search and keys, and say what to type; exit status 1 on a problem."""
    import asyncio

    from rich.console import Console

    from gateway.commands.doctor import report

    settings = read_settings(given)
    ctx.exit(0 if asyncio.run(report(settings, Console(highlight=False), as_json=as_json)) else 1)
