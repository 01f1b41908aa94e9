"""Services: requests in one topic, replies in another, each request answered once.

``service.py`` is what users hold: asking, and the two topics. ``service_runner.py`` answers by a function, message by
message; ``answer_sink.py`` answers by a view, tick by tick. The chapter is ``docs/processes.md``.
"""
