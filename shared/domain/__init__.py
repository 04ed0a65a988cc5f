"""The rules of Pombo: pure functions, standard library only. They take records and times, and return new records."""
