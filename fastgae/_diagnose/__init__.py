"""Find common mistakes in rollouts.

``steps`` prepares a call for the detectors in ``flags``, ``rows``, ``bootstrap``, ``numerics`` and ``fit``.
``report`` describes the findings, and ``diagnose`` runs the detectors.
"""
