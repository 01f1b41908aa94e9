"""``headwater submit APP.py --master URL`` and ``headwater pack FOLDER``: an app on a Spark cluster.

What it is: ``submit`` is ``run`` with another Spark: the app's process is the driver, its executors are on the cluster
and get their Python packages from an archive that is packed here. ``pack`` writes that archive alone.
Invariants: the app's file stays as it is; what is given here counts more than what stands in it.
Not here: the archive (``views/spark/executor_environment.py``), running (``run_command.py``).
Read next: ``run_command.py``, ``docs/scale.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import console, write_json
from headwater.cli.views.run_command import run_app
from headwater.errors import InvalidDeclaration

KAFKA = ("confluent-kafka", "fastavro")  # executors read a log on Kafka themselves
S3 = ("obstore",)  # and state on S3

WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PACKAGE", help="A package that the app's functions need on executors; repeatable."),
]


def submit(
    file: AppFileArgument,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="spark://host:7077, k8s://host:443 or yarn.")],
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    packages: WithOption = None,
    environment: Annotated[
        Path | None,
        typer.Option(
            "--environment", metavar="FILE", help="An archive that headwater pack wrote, in place of a new one."
        ),
    ] = None,
    installed: Annotated[
        bool, typer.Option("--installed", help="The executors have Headwater and its packages: send nothing.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Process what is waiting, then end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run an app with its Spark on a cluster, until Ctrl-C.

    This process is the driver: executors must be able to reach it (--conf spark.driver.host=ADDRESS), and all of them
    must see the app's home, or the store that holds its state.

    [cyan]headwater submit shop.py --master spark://host:7077[/cyan]
    [cyan]headwater submit shop.py --master yarn --conf spark.executor.instances=4 --with scipy[/cyan]
    """
    from headwater.views.spark import executor_environment as environments

    given = dict(_setting(text) for text in conf or ())
    with app_of(file) as app:
        settings = {**app.spark_settings, "spark.master": master, **given}
        if not installed:
            if environment is None:
                if not as_json:
                    console(stderr=True).print("packing what the executors need ...")
                needed = [*(packages or ()), *(KAFKA if app.log_address is not None else ())]
                needed += S3 if app.state is not None and app.state.bucket else ()
                modules = environments.neighbours(file)
                environment = environments.pack(app.log.home / "environments", packages=needed, modules=modules)
            elif not environment.is_file():
                raise InvalidDeclaration(
                    f"there is no file {environment}", hint="headwater pack FOLDER writes one and says its name."
                )
            settings = {**environments.settings_for(environment.resolve()), **settings}
        app.spark_settings.update(settings)
        run_app(app, once=once, as_json=as_json)


def pack(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it.", show_default=False)],
    packages: WithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the archive of Python packages that executors of a Spark cluster need.

    [cyan]headwater pack build --with scipy[/cyan]
    """
    from headwater.views.spark import executor_environment as environments

    path = environments.pack(folder, packages=packages or ())
    if as_json:
        write_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        console().print(f"{path}  {path.stat().st_size / 1e6:,.0f} MB", markup=False)


def _setting(text: str) -> tuple[str, str]:
    """A setting of Spark as it stands on the command line.

    >>> _setting("spark.executor.memory=2g")
    ('spark.executor.memory', '2g')
    """
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise InvalidDeclaration(
            f'"{text}" is not a setting of Spark', hint="Write it as --conf spark.executor.memory=2g."
        )
    return name, value
