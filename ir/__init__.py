"""The intermediate representation: node machinery, types, layouts, three vocabularies, text form, verifier, passes."""

if __name__ != "sparsegen.ir":
    raise ImportError(
        "import this package as 'sparsegen.ir': its folder only stands beside sparsegen/ in the repository"
    )
