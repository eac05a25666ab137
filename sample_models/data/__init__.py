"""The data of the published studies: generated from a seed, or read from standard files."""
