"""Measures: one file each, named as in the file format."""
