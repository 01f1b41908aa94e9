"""ZeroMQ: messages of PUB and PUSH sockets into a topic.

``zeromq_inlet.py`` receives, ``zeromq_frames.py`` decodes the frames and notices gaps.
Read first: ``zeromq_inlet.py``.
"""
