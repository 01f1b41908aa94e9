"""A driver of the shop on a cluster, which does what it is told line by line: ticks, verifying, a rebuild.

What it is: a program: its arguments are the app's file, the master and the executors' archive. Each line of its input
is a command, each line of its output the answer to one, as JSON.
Not here: who tells it what to do (``test_views_on_a_cluster.py``).
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from headwater.errors import InvalidDeclaration
from headwater.views import thresholds
from headwater.views.spark import executor_environment
from headwater.views.spark.cluster_master import check_shared

USUAL = dict(vars(thresholds))  # before the app's file changes them: it makes every tick a large one
PACKAGES = ("confluent-kafka", "fastavro", "obstore")


def main(file: str, master: str, *conf: str) -> None:
    sys.path.insert(0, str(Path(file).parent))
    app = runpy.run_path(file)["app"]
    modules = executor_environment.neighbours(Path(file))
    archive = executor_environment.pack(app.log.home / "environments", packages=PACKAGES, modules=modules)
    given = dict(setting.split("=", 1) for setting in conf)
    app.spark_settings.update({**executor_environment.settings_for(archive), "spark.master": master, **given})
    large = dict(vars(thresholds))
    for line in sys.stdin:
        command, _, word = line.strip().partition(" ")
        answer: object = None
        if command == "large":
            vars(thresholds).update(large)
        elif command == "small":
            vars(thresholds).update(USUAL)
        elif command == "tick":
            print(json.dumps("ticking"), flush=True)
            report = app.tick()
            answer = {view.view: view.jobs for view in report.views}
        elif command == "share":
            try:
                check_shared(app._runtime.spark, Path(word), "somebody asked")
            except InvalidDeclaration as error:
                answer = error.message
        elif command == "verify":
            answer = {found.view: found.equal for found in app.verify()}
        elif command == "rebuild":
            answer = dict(app.rebuild(word).changes)
        print(json.dumps(answer), flush=True)
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
