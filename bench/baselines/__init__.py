"""Servers to compare with. Each is one small file that runs alone; README.md says what each of them is."""
