"""Find common mistakes in rollouts.

``steps`` prepares a call for the detectors in ``flags``, ``rows``, ``bootstrap``, ``numerics`` and ``fit``.
``overview`` computes the overview of the report, and ``report`` describes the findings.
"""
