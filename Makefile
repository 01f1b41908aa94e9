# Every target sets itself up: the first run makes .venv, the next ones find it ready.
# Needed beforehand: Python 3.11+, Java 17+, pip.   make PYTHON=/path/to/python3.12 test   picks another Python.
# ARGS goes to the command that is run:             make test ARGS="tests/unit -k offsets"

PYTHON ?=
ARGS ?=

# Spark's workers must be the same Python as the driver. The shell's $$PWD, not make's functions, so that
# a folder with spaces in its name works.
# The tests start hundreds of processes: without compiled files each of them compiles what it imports, 0.2 to 0.4 s.
RUN = PYTHONDONTWRITEBYTECODE= PYSPARK_PYTHON="$$PWD/.venv/bin/python" PYSPARK_DRIVER_PYTHON="$$PWD/.venv/bin/python"
# Three at a time on two cores: one has a Spark, which is never idle, and the others mostly wait for servers.
TESTS = -n 3 --dist=loadfile --no-loadscope-reorder tests src/headwater --doctest-modules

.PHONY: help demo demo-cluster test test-functions check docs bench bench-log bench-writes bench-source bench-views bench-time bench-timeline bench-state bench-ticks bench-soak bench-store bench-backup bench-encryption bench-encrypted-home bench-scale bench-capture bench-sinks bench-server bench-hostile bench-federation bench-decide bench-watch torture-capture torture-writes merkle-vectors screenshot clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

.venv/.ready: pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" bash tools/setup.sh

demo: .venv/.ready  ## a live shop: capture, views, a dashboard, two kills, and a check of everything, in two or three minutes
	@$(RUN) .venv/bin/headwater demo $(ARGS)

demo-cluster: .venv/.ready  ## the same app on Kafka, a Spark cluster, S3 and PostgreSQL, each of which is killed; about four minutes
	@bash bench/setup.sh
	@bash tools/services.sh
	@$(RUN) .venv/bin/python -m tools.demo_cluster $(ARGS)

test: .venv/.ready  ## all tests, with the examples in docstrings, README and docs
	@bash bench/setup.sh
	@bash tools/services.sh
	@$(RUN) .venv/bin/python -m tools.java_archive
	@$(RUN) .venv/bin/python -m pytest $(if $(ARGS),$(ARGS),$(TESTS))

test-functions: .venv/.ready  ## Spark's functions, casts, literals, names and constructs in views, all of them, beside Spark's own answers
	@HEADWATER_TROUBLE=whole $(RUN) .venv/bin/python -m pytest tests/spark/trouble $(ARGS)

check: .venv/.ready  ## format, lint, types, the dashboard's JavaScript, then all tests
	@.venv/bin/python -m ruff format --check .
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m mypy
	@bash tools/check_javascript.sh
	@$(MAKE) --no-print-directory test

docs: .venv/.ready  ## the docs as a site, with a reference made from the code, in build/site; no network needed
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet $(ARGS)
	@echo "open build/site/index.html"

bench: bench-log bench-writes bench-source bench-views bench-time bench-timeline bench-state bench-ticks bench-soak bench-store bench-backup bench-encryption bench-encrypted-home bench-scale bench-capture bench-sinks bench-server bench-hostile bench-federation bench-decide bench-watch  ## every benchmark

bench-log: .venv/.ready  ## the log beside SQLite, Redis, NATS and Kafka, in one run
	@bash bench/setup.sh
	@$(RUN) .venv/bin/python -m bench.log_bench $(ARGS)

bench-writes: .venv/.ready  ## transactions, request ids, conditions and several writers, beside Kafka and SQLite
	@bash bench/setup.sh
	@$(RUN) .venv/bin/python -m bench.writes_bench $(ARGS)

bench-source: .venv/.ready  ## topics read by Spark, beside plain Parquet
	@$(RUN) .venv/bin/python -m bench.source_bench $(ARGS)

bench-views: .venv/.ready  ## views beside recomputation, Flink SQL and Pathway; ARGS="--quick latency" for a part
	@bash bench/views/setup.sh
	@$(RUN) .venv/bin/python -m bench.views_bench $(ARGS)

bench-state: .venv/.ready  ## a day of events under a horizon of ten minutes: state, log and memory hour by hour
	@$(RUN) .venv/bin/python -m bench.state_bench $(ARGS)

bench-ticks: .venv/.ready  ## a million ticks without Spark: files, the catalog, merges and pruning; ARGS="--ticks 100000"
	@$(RUN) .venv/bin/python -m bench.ticks_bench $(ARGS)

bench-soak: .venv/.ready  ## eight views at 20 appends a second for an hour: memory, handles, files, the time of ticks; ARGS="--minutes 5"
	@$(RUN) .venv/bin/python -m bench.soak_bench $(ARGS)

bench-store: .venv/.ready  ## ticks whose state is in the home, in a folder and on S3Proxy, by turns; ARGS="--ticks 300"
	@bash bench/setup.sh
	@$(RUN) .venv/bin/python -m bench.store_bench $(ARGS)

bench-backup: .venv/.ready  ## a backup beside cp and rsync, and appends meanwhile; ARGS="--megabytes 400"
	@$(RUN) .venv/bin/python -m bench.backup_bench $(ARGS)

bench-encryption: .venv/.ready  ## backups with a key beside backups without; ARGS="--megabytes 200"
	@$(RUN) .venv/bin/python -m bench.encryption_bench $(ARGS)

bench-encrypted-home: .venv/.ready  ## a home on an encrypted volume (gocryptfs) beside one on the disk below it; ARGS="--rows 200000"
	@$(RUN) .venv/bin/python -m bench.encrypted_home_bench $(ARGS)

bench-scale: .venv/.ready  ## events from Kafka beside Spark's connector and Flink, ticks on a cluster, a model of 100 nodes; ARGS="--quick sources"
	@bash bench/setup.sh
	@bash bench/views/setup.sh
	@sh bench/scale/setup.sh
	@$(RUN) .venv/bin/python -m bench.scale_bench $(ARGS)

bench-capture: .venv/.ready  ## PostgreSQL captured, beside COPY and pg_recvlogical; ARGS="--quick"
	@$(RUN) .venv/bin/python -m bench.capture_bench $(ARGS)

torture-writes: .venv/.ready  ## writers, a copier and an app are killed for 20 minutes, every cut and tick judged; ARGS="--seconds 60"
	@$(RUN) .venv/bin/python -m tests.crash.write_torture --app $(ARGS)

torture-capture: .venv/.ready  ## captures of PostgreSQL and MariaDB, each killed 60 times under two writers; HEADWATER_KILLS and HEADWATER_SEED
	@HEADWATER_KILLS=$${HEADWATER_KILLS:-60} $(RUN) .venv/bin/python -m pytest -s --timeout=3000 tests/crash/test_capture_torture.py $(ARGS)

bench-timeline: .venv/.ready  ## the home timeline at 10 000 users; ARGS="--ticks 10" for a part
	@$(RUN) .venv/bin/python -m bench.timeline_bench $(ARGS)

bench-time: .venv/.ready  ## windows by event time beside Structured Streaming, Flink SQL and Pathway; ARGS="--quick"
	@bash bench/views/setup.sh
	@$(RUN) .venv/bin/python -m bench.time_bench $(ARGS)

bench-sinks: .venv/.ready  ## the PostgreSQL sink beside COPY and INSERT by hand, and every other sink; ARGS="--quick"
	@bash bench/setup.sh
	@bash tools/services.sh
	@$(RUN) .venv/bin/python -m bench.sinks_bench $(ARGS)

merkle-vectors: .venv/.ready  ## the 518 public test vectors of Merkle proofs against ours; ARGS=FOLDER, a copy of transparency-dev/merkle
	@$(RUN) .venv/bin/python -m tools.merkle_vectors $(ARGS)

screenshot: .venv/.ready  ## the README's picture of the dashboard, from the demo's shop
	@bash tools/services.sh
	@$(RUN) .venv/bin/python -m tools.screenshots $(ARGS)

bench-server: .venv/.ready  ## the server: appends, point reads, 500 subscribers, slow ones, a browser; ARGS="--quick"
	@bash tools/services.sh
	@$(RUN) .venv/bin/python -m bench.server_bench $(ARGS)

bench-hostile: .venv/.ready  ## ten minutes of queries that mean harm, beside an app that ticks; ARGS="--seconds 180"
	@$(RUN) .venv/bin/python -m bench.hostile_bench $(ARGS)

bench-federation: .venv/.ready  ## a query over a million rows of an attached PostgreSQL, with push-down and without; ARGS="--quick"
	@$(RUN) .venv/bin/python -m bench.federation_bench $(ARGS)

bench-decide: .venv/.ready  ## events and commands beside the library eventsourcing on SQLite and PostgreSQL; ARGS="--rounds 2 commands"
	@$(RUN) .venv/bin/python -m bench.decide_bench $(ARGS)

bench-watch: .venv/.ready  ## patterns beside Flink SQL, sketches beside exact answers, stored searches beside Lucene; ARGS="--quick patterns"
	@bash bench/views/setup.sh
	@[ ! -e bench/watch/setup.sh ] || sh bench/watch/setup.sh
	@$(RUN) .venv/bin/python -m bench.watch_bench $(ARGS)

clean:  ## remove .venv, .tools and caches; results in bench/out stay
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
