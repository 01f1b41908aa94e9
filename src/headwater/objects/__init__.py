"""Objects: named bytes on a store that several machines share.

``object_store.py`` is the contract; ``s3_store.py`` keeps it on S3, ``webhdfs_store.py`` on HDFS, both as a
``remote_store.py`` that repeats requests; ``folder_store.py`` in a shared folder.
``object_address.py`` reads an address and opens the store. Nothing here knows what the objects mean: manifests and runs
on a store are ``views/state/remote/``. Read first: ``object_store.py``.
"""
