"""The version, in one place: setuptools reads it from here, and it is part of every cache key."""

__version__ = "0.1.0"
