"""Remote: manifests and runs of an app on an object store.

``commit_log.py`` is the protocol: numbered commits, each created once. ``store_manifests.py`` commits manifests by it
and keeps a copy of what was committed in the catalog; ``commit_body.py`` is their form. ``run_cache.py`` has the files
of runs, on the store and on this machine. Read first: ``commit_log.py``; ``docs/scale.md``.
"""
