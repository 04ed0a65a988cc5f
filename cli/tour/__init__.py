"""The tour: what `make run`, `make demo` and `make try` do."""
