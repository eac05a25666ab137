"""The networks, normalisations and data sets that the published studies train."""
