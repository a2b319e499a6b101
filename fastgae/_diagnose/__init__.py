"""Find the mistakes that people make with rollouts.

``steps`` prepares a call for the detectors in ``flags``, ``rows``, ``bootstrap`` and ``numerics``; ``report``
describes their findings.
"""
