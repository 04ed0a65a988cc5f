"""Instant fakes of Firestore, Cloud Tasks and the metadata server. They keep names in memory, and count every call."""
