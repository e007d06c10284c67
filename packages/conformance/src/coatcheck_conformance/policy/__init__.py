"""The suites of selectors, retry policies and admission policies: a module for each, and one for what they share."""
