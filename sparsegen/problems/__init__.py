"""The problems that can be described: a module each."""
