"""coatcheck as a contender in a benchmark of poll jobs: one module for each store, all with the harness's interface.

The harness imports them by their dotted names and brings a module `common` with the base class.
"""
