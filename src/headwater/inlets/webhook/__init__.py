"""Webhooks: JSON that others post becomes rows of a topic.

``webhook_inlet.py`` is what a user declares; ``webhook_server.py`` speaks HTTP, ``webhook_receiver.py`` answers one
request, ``signature.py`` verifies who sent it.
Read first: ``webhook_inlet.py``, then ``webhook_receiver.py``.
"""
