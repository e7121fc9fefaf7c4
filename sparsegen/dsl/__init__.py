"""The stencil language.

``dsl.stencil`` holds the value object :class:`Stencil`; ``dsl.trace`` the decorator that turns a Python function into
one.  Nothing is re-exported here: the decorator and its module share a name.
"""
