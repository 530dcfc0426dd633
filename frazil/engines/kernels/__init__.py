"""Device code. Imported by compile.py alone, and only when a kernel is in no cache."""
