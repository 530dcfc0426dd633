"""Engines: each says what it serves and builds programs. Planning finds them through the catalog."""
