"""The engine: strategies that evaluate points on a line, and where they run."""
