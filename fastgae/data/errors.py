"""The error of this package."""


class DataError(ValueError):
    """Recorded data that cannot be computed; the message says the file, the episode and the step."""
