"""HTTP: what every request passes, whatever its route.

``connections.py`` and ``guard.py`` limit, ``keys.py`` authenticates, ``request_bodies.py`` and ``arrow_bodies.py``
read, ``renderings.py`` and ``answers.py`` write; ``coalescing_executor.py`` runs short blocking jobs of many requests
in one thread; ``held_consumers.py`` keeps group members for clients over HTTP.
Read first: ``guard.py``, then ``answers.py``.
"""
