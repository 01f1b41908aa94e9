"""The compiler: a view's SQL becomes a plan of stages. Pure: no Spark, no files.

What it is: ``compile_view``, and the words of ``plan.py``.
Invariants: nothing here imports pyspark; the same SQL over the same relations gives the same plan.
Not here: running plans.
Read next: ``plan.py``.
"""
