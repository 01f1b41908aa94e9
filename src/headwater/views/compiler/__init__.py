"""The compiler: a view's SQL becomes a plan of stages. Pure: no Spark, no files.

    text → parse → names → query ─┬→ joining, subqueries, aggregation, windows, sets ─→ drafts → render → plan
                                  └→ (a SELECT that none of them can do) → whole

What it is: ``compile_view``, and the words of ``plan.py``. A SELECT is a ``block`` whose outer joins, subqueries,
aggregates and windows are replaced one by one by stages, until what is left is a ``flow``: linear or bilinear.
Invariants: nothing here imports pyspark; the same SQL over the same relations gives the same plan; what has no cheaper
kind is computed whole, so that only what is no function of its inputs is refused.
Not here: running plans.
Read next: ``plan.py``, then ``compile.py``, ``views/compiler/query_compiler.py``, ``views/compiler/algebra/flow.py``.
"""
