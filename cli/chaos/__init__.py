"""The chaos run: many messages through the whole stack while all of it is being broken, and an account of each."""
