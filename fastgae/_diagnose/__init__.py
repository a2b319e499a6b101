"""Find the mistakes that people make with rollouts.

``steps`` prepares a call for the detectors in ``flags``, ``rows``, ``bootstrap``, ``numerics`` and ``fit``; ``report``
describes their findings, and ``overview`` what one looks at first.
"""
