"""``python -m bench.log_bench``: the benchmark of the log, from a checkout.

Not here: the benchmark itself; it is in the package, so that ``headwater bench log`` runs it anywhere.
Read next: ``src/headwater/bench/log_bench.py``.
"""

from headwater.bench.log_bench import main

if __name__ == "__main__":
    main()
