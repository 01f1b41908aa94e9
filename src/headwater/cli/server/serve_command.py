"""``headwater serve APP.py``: an app over HTTP, with its dashboard.

What it is: the verb that starts the server and its engine.
Invariants: Ctrl-C or SIGTERM ends it with status 0, after subscribers got their resume tokens and the engine finished
its tick. With ``--json`` one line has the address.
Not here: the server (``server/``).
Read next: ``server/running.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import AcceptLossOption, JsonOption
from headwater.cli.output import console
from headwater.cli.quantities import parse_seconds

KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="Ask for keys, of this file: headwater key.", show_default=False),
]


def serve(
    file: AppFileArgument,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", help="The port; 0 is any that is free.")] = 8080,
    engine: Annotated[
        bool, typer.Option("--engine/--no-engine", help="Run the app too; without, another process does.")
    ] = True,
    key_file: KeyFileOption = None,
    jwt_issuer: Annotated[
        str | None,
        typer.Option("--jwt-issuer", metavar="URL", help="Take tokens (JWT) of this identity provider, beside keys."),
    ] = None,
    jwt_audience: Annotated[
        str | None, typer.Option("--jwt-audience", metavar="NAME", help="What its tokens must be for.")
    ] = None,
    jwt_keys: Annotated[
        str | None,
        typer.Option("--jwt-keys", metavar="FILE|URL", help="Its public keys (JWKS); else it is asked where they are."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="Speak TLS, with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key; else it is in the same file.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", metavar="URL", help="A site whose pages may call; may be given again."),
    ] = None,
    requests_per_second: Annotated[
        float, typer.Option("--rate", min=0.1, help="Requests a second of one key, or address.")
    ] = 1000.0,
    body_mib_max: Annotated[int, typer.Option("--body-mib", min=1, help="The largest body, in MiB.")] = 16,
    query_timeout: Annotated[
        str, typer.Option("--query-timeout", metavar="DURATION", help="The longest query.")
    ] = "30s",
    query_rows_max: Annotated[int, typer.Option("--query-rows", min=1, help="The most rows of an answer.")] = 10_000,
    query_mib_max: Annotated[int, typer.Option("--query-mib", min=1, help="The largest answer, in MiB.")] = 16,
    query_memory_mib: Annotated[
        int, typer.Option("--query-memory-mib", min=32, help="Memory for a query of the store, in MiB.")
    ] = 256,
    queries_at_once_max: Annotated[
        int, typer.Option("--queries", min=1, help="Queries at once, of the store and of Spark each.")
    ] = 4,
    spark_query_memory_mib: Annotated[
        int, typer.Option("--spark-query-memory-mib", min=512, help="Memory for all queries of Spark, in MiB.")
    ] = 1024,
    command_timeout: Annotated[
        str, typer.Option("--command-timeout", metavar="DURATION", help="The longest that a command may take.")
    ] = "10s",
    wait_timeout: Annotated[
        str,
        typer.Option("--wait-timeout", metavar="DURATION", help="The longest that a request waits for rows to come."),
    ] = "30s",
    subscriptions_max: Annotated[
        int, typer.Option("--subscriptions", min=1, help="Open subscriptions at once.")
    ] = 2000,
    send_timeout: Annotated[
        str,
        typer.Option(
            "--send-timeout", metavar="DURATION", help="The longest that a subscriber may take for a message."
        ),
    ] = "30s",
    connections_max: Annotated[
        int | None,
        typer.Option(
            "--connections", min=1, help="Open connections; default: a quarter of ulimit -n.", show_default=False
        ),
    ] = None,
    head_timeout: Annotated[
        str, typer.Option("--head-timeout", metavar="DURATION", help="The longest that the head of a request may take.")
    ] = "10s",
    body_timeout: Annotated[
        str, typer.Option("--body-timeout", metavar="DURATION", help="And its body; longer only while it keeps coming.")
    ] = "30s",
    idle_timeout: Annotated[
        str,
        typer.Option(
            "--idle-timeout", metavar="DURATION", help="The longest that a connection waits for its next request."
        ),
    ] = "30s",
    stalled_after: Annotated[
        str,
        typer.Option(
            "--stalled-after",
            metavar="DURATION",
            help="Rows wait, and no tick comes for so long: the engine is restarted.",
        ),
    ] = "60s",
    accept_loss: AcceptLossOption = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Keep a second engine ready, which takes over at once when the first one ends. With the state on a"
            " store: stand by while another server, on any machine, runs the app.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve an app over HTTP, with a dashboard, until Ctrl-C; and run it, in a process beside.

    [cyan]headwater serve shop.py[/cyan]
    [cyan]headwater serve shop.py --host 0.0.0.0 --port 443 --key-file keys.json --tls-certificate cert.pem
    --tls-key key.pem[/cyan]
    """
    from headwater.server import required

    required()
    from headwater.server.engine.supervisor import Supervisor
    from headwater.server.http.log_lines import log_to_stderr
    from headwater.server.running import check_tls, listening
    from headwater.server.running import serve as listen
    from headwater.server.server_settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        key_file=key_file,
        jwt_issuer=jwt_issuer,
        jwt_audience=jwt_audience,
        jwt_keys=jwt_keys,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        origins=tuple(origin or ()),
        body_bytes_max=body_mib_max << 20,
        requests_per_second=requests_per_second,
        request_burst=max(1, round(2 * requests_per_second)),
        query_seconds_max=parse_seconds(query_timeout, "--query-timeout", at_least="100ms"),
        query_rows_max=query_rows_max,
        query_bytes_max=query_mib_max << 20,
        query_memory_bytes=query_memory_mib << 20,
        queries_at_once_max=queries_at_once_max,
        spark_query_memory_bytes=spark_query_memory_mib << 20,
        command_seconds_max=parse_seconds(command_timeout, "--command-timeout", at_least="100ms"),
        wait_seconds_max=parse_seconds(wait_timeout, "--wait-timeout", at_least="1ms"),
        subscriptions_max=subscriptions_max,
        send_seconds_max=parse_seconds(send_timeout, "--send-timeout", at_least="100ms"),
        connections_max=connections_max,
        head_seconds_max=parse_seconds(head_timeout, "--head-timeout", at_least="100ms"),
        body_seconds_max=parse_seconds(body_timeout, "--body-timeout", at_least="100ms"),
        idle_seconds_max=parse_seconds(idle_timeout, "--idle-timeout", at_least="1s"),
        stalled_seconds_max=parse_seconds(stalled_after, "--stalled-after", at_least="1s"),
    )
    check_tls(settings)
    log_to_stderr()
    with app_of(file) as app, listening(host, port) as listener:
        folder = app.log.home / "views" / app.name
        supervisor = None
        if engine and app.views:
            shared = app.state is not None
            supervisor = Supervisor(
                file.resolve(),
                folder,
                app.log.clock,
                accept_loss=accept_loss,
                standby=standby and not shared,
                watches=standby and shared,
            )
            supervisor.start()  # first, since Java takes longer to start than all that the server imports

        def announce(address: str) -> None:
            if as_json:
                sys.stdout.write(json.dumps({"app": app.name, "address": address, "home": str(app.log.home)}) + "\n")
                sys.stdout.flush()
            else:
                console(stderr=True).print(f'app "{app.name}" in {app.home}: {address}', markup=False)

        try:
            from headwater.server.server_state import ServerState

            state = ServerState(app, settings, supervisor=supervisor, file=file.resolve())
            listen(state, listener, on_listening=announce)
        finally:
            if supervisor is not None:
                supervisor.stop()
