"""The wire: what leaves for a stranger and what comes from one, bounded in time, size and depth."""
