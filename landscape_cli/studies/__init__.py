"""Published studies, one file each."""
