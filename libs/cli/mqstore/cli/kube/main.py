"""``kubectl mqstore …``: a kubectl plugin for an installed release."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from mqstore.cli.kube import (
    backup,
    debug,
    events,
    grow,
    jobs,
    logs,
    replicas,
    request,
    restore,
    retention,
    scale,
    status,
    switchover,
    writes,
)
from mqstore.cli.kube.commands import Chosen
from mqstore.cli.kube.kubectl import Kubectl

_WITH_VALUE: Final = ("-n", "--namespace", "--context", "--kubeconfig", "--release")
_GIVEN: Final = tuple(f"{name}=" for name in _WITH_VALUE if name.startswith("--"))


def own_first(arguments: Sequence[str]) -> list[str]:
    """Arguments with the plugin's own options moved before the command.

    Users of kubectl write such options after the command, where typer does not accept them.
    """
    own: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for each in left:
        if each == "--":
            rest += [each, *left]
        elif each in _WITH_VALUE:
            value = next(left, None)
            if value is None:
                return [*own, each]  # which says that a value is missing
            own += [each, value]
        elif each.startswith(_GIVEN):
            own.append(each)
        else:
            rest.append(each)
    return own + rest


app = typer.Typer(
    name="kubectl mqstore",
    help="Inspect an mqstore release on Kubernetes, run its jobs and maintain its shards.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for module in (
    *(status, request, retention, writes, switchover, events, debug),
    *(jobs, logs, backup, restore, scale, replicas, grow),
):
    module.add(app)


@app.callback()
def _chosen(
    context: typer.Context,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace. [default: kubectl's]")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--context", help="Context of the kubeconfig.")
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="The kubeconfig file.")] = None,
    release: Annotated[
        str | None, typer.Option(help="Release, if the namespace has several.")
    ] = None,
) -> None:
    """These options may stand behind the command as well."""
    given: dict[str, Any] = {
        "--namespace": namespace,
        "--context": cluster,
        "--kubeconfig": kubeconfig,
    }
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    context.obj = Chosen(Kubectl(tuple(options)), release)


def main() -> None:
    """Run the plugin with the arguments of the process."""
    app(args=own_first(sys.argv[1:]))


if __name__ == "__main__":
    main()
