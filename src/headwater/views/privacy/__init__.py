"""Privacy: which columns of topics and views are personal, and what masks them.

What lives here: ``personal_data.py`` carries the declarations of topics through the lineage of views;
``people_min.py`` writes a view's least number of people into its text; ``privacy_map.py`` lists where personal data is
and who gets it. Read ``docs/privacy.md``, then ``personal_data.py``.
"""
