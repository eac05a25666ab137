"""How fast the engine is: against the loop one would write by hand, and against other tools."""
