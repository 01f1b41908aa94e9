"""AMQP: a broker's queue (RabbitMQ) into a topic, and a topic out to an exchange.

``amqp_inlet.py`` consumes, ``amqp_publisher.py`` publishes over ``confirmed_channel.py``; both share
``amqp_connection.py``.
Read first: ``amqp_inlet.py``.
"""
