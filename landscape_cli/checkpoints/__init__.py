"""Reading checkpoints: one file per format, named tensors out."""
