"""Encryption: keys of users, the data keys that they wrap, and the form of encrypted bytes. No place is known here.

Read first: ``encryption_key.py``, where a key comes from; then ``data_key.py``, what is stored in its place, and
``encrypted_bytes.py``, what an encrypted file looks like. What is encrypted with them: backups
(``upkeep/backup/encrypted_store.py``).
"""
