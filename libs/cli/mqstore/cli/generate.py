"""``mqstore generate …``: files for monitoring and for running the services, on stdout."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK, refuse, run_command
from mqstore.cli.yaml_text import yaml_lines

Store = Annotated[Path, typer.Option(help="Directory of the store.", metavar="DIR")]

RUNBOOKS: Final = "docs"
RESTRICTIONS: Final = (
    *("NoNewPrivileges=yes", "PrivateTmp=yes", "PrivateDevices=yes", "ProtectSystem=strict"),
    *("ProtectHome=read-only", "ProtectKernelTunables=yes", "ProtectControlGroups=yes"),
    *("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", "LockPersonality=yes"),
)
TOKENS: Final = "/run/mqstore-tokens"
ALL_ADDRESSES: Final = ("--host", "0.0.0.0")  # noqa: S104  # a container publishes its ports
STORE_IN_CONTAINER: Final = "/var/lib/mqstore/store"


def grafana() -> None:
    """Print the dashboard for Grafana, in JSON. Its data source is a variable, a Prometheus.

    Examples:

    \b
        mqstore generate grafana > mqstore-dashboard.json
    """
    sys.stdout.write(_data("dashboard.json"))


def alerts(
    match: Annotated[
        str, typer.Option(help="Label matcher of the services' series in Prometheus.")
    ] = 'job="mqstore"',
    instance: Annotated[
        str, typer.Option(help="Label that names a process: instance, or pod on Kubernetes.")
    ] = "instance",
    shards: Annotated[int, typer.Option(min=1, help="Number of shards.")] = 1,
    runbooks: Annotated[
        str, typer.Option(help="URL before /how-to/PAGE.md in the annotation runbook_url.")
    ] = RUNBOOKS,
    coordinator: Annotated[bool, typer.Option(help="Alert on a missing coordinator too.")] = True,
) -> None:
    """Print the alerting rules for Prometheus: those that the chart installs on Kubernetes.

    Examples:

    \b
        mqstore generate alerts > /etc/prometheus/rules/mqstore.yaml
        mqstore generate alerts --match 'job="mq",env="prod"' --shards 3
    """
    rules = [
        rule_of(alert, match, instance, shards, runbooks)
        for alert in json.loads(_data("alerts.json"))
        if alert.get("when") is None or (coordinator and alert["when"] == "coordinator")
    ]
    for line in yaml_lines({"groups": [{"name": "mqstore", "rules": rules}]}):
        print(line)


def systemd(
    store: Store = Path("/var/lib/mqstore/store"),
    user: Annotated[str, typer.Option(help="Account that runs the services.")] = "mqstore",
    settings: Annotated[
        Path, typer.Option(help="File of settings, MQSTORE_NAME=value a line.", metavar="FILE")
    ] = Path("/etc/mqstore/environment"),
) -> None:
    """Print a unit of systemd that runs all services over a store, on the loopback address.

    Without `MQSTORE_FILE_RESERVED_TIME` or another setting of retention in the file of settings
    `mqstore run` deletes no message.

    Examples:

    \b
        mqstore generate systemd > /etc/systemd/system/mqstore.service
        mqstore generate systemd --store /data/store --user mq
    """

    def print_unit() -> int:
        """Print the unit; returns the exit code."""
        command = shutil.which("mqstore") or str(Path(sys.argv[0]).absolute())
        print("\n".join(unit_lines(command, store.absolute(), user, settings.absolute())))
        return EXIT_OK

    raise typer.Exit(run_command(print_unit, refuse, unread=EXIT_OK))


def compose(
    image: Annotated[str, typer.Option(help="Image of the services.")] = "mqstore/services:0.1.0",
    tokens: Annotated[
        Path, typer.Option(help="Directory with a file for each role.", metavar="DIR")
    ] = Path("tokens"),
) -> None:
    """Print a file for docker compose: all services over one volume.

    The services listen on all addresses of the container, and so need tokens: the files admin,
    produce, consume and system in the directory of --tokens.

    Examples:

    \b
        mkdir tokens
        for role in admin produce consume system; do openssl rand -hex 32 > tokens/$role; done
        mqstore generate compose > compose.yaml; docker compose up
        mqstore topic ls --token-file tokens/admin
    """

    def print_document() -> int:
        """Print the document; returns the exit code."""
        print("\n".join(yaml_lines(compose_document(image, tokens))))
        return EXIT_OK

    raise typer.Exit(run_command(print_document, refuse, unread=EXIT_OK))


def rule_of(
    alert: dict[str, str], match: str, instance: str, shards: int, runbooks: str
) -> dict[str, Any]:
    """A rule of Prometheus, from an alert of the chart."""
    expression = alert["expr"].replace("$mine", match).replace("$shards", str(shards))
    return {
        "alert": f"Mqstore{alert['alert']}",
        "expr": expression.replace("by (pod", f"by ({instance}"),
        "for": alert["for"],
        "labels": {"severity": alert["severity"]},
        "annotations": {
            "summary": alert["summary"].replace("$labels.pod", f"$labels.{instance}"),
            "runbook_url": f"{runbooks}/how-to/{alert['page']}.md",
        },
    }


def unit_lines(command: str, store: Path, user: str, settings: Path) -> list[str]:
    """The lines of the unit. Raises ValueError for a path that a unit cannot hold."""
    return [
        "[Unit]",
        "Description=mqstore: RocketMQ's message store as services",
        "Wants=network-online.target",
        "After=network-online.target local-fs.target",
        "",
        "[Service]",
        "Type=exec",
        f"User={user}",
        f"ExecStart={unit_word(command)} run --store {unit_word(str(store))}",
        f"EnvironmentFile=-{unit_word(str(settings), quoted=False)}",
        "# 2: refused, which another start does not change",
        "RestartPreventExitStatus=2",
        "Restart=on-failure",
        "RestartSec=5",
        "TimeoutStopSec=120",
        "LimitNOFILE=1048576",
        "UMask=0077",
        *RESTRICTIONS,
        f"ReadWritePaths={unit_word(str(store.parent), expands=False)}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]


def unit_word(text: str, *, quoted: bool = True, expands: bool = True) -> str:
    """A word of a unit's setting, with specifiers and, where it expands them, variables escaped.

    Raises ValueError.
    """
    if not text.isprintable():
        raise ValueError(f"{text!r} has a character that a unit cannot hold; name another path")
    escaped = text.replace("%", "%%")
    if not quoted:
        return escaped
    if expands:
        escaped = escaped.replace("$", "$$")
    if any(each in escaped for each in " \"'\\"):
        inner = escaped.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{inner}"'
    return escaped


def compose_document(image: str, tokens: Path) -> dict[str, Any]:
    """The document for docker compose, which expands variables in values and divides volumes at
    colons. Raises ValueError for a directory with a colon."""
    if ":" in str(tokens):
        raise ValueError(
            f"--tokens {tokens}: compose divides a volume at colons; name another path"
        )
    place = _unexpanded(str(tokens) if tokens.is_absolute() else f"./{tokens}")
    return {
        "services": {
            "mqstore": {
                "image": _unexpanded(image),
                "command": ["mqstore", "run", *ALL_ADDRESSES, "--store", STORE_IN_CONTAINER],
                "environment": {"MQSTORE_TOKENS_DIR": TOKENS},
                "ports": [f"127.0.0.1:{port}:{port}" for port in (8081, 8082, 8083)],
                "volumes": ["store:/var/lib/mqstore", f"{place}:{TOKENS}:ro"],
                "restart": "on-failure",
                "stop_grace_period": "2m",
            }
        },
        "volumes": {"store": {}},
    }


def _unexpanded(text: str) -> str:
    return text.replace("$", "$$")


def _data(name: str) -> str:
    return (files("mqstore.cli") / "monitoring" / name).read_text(encoding="utf-8")
