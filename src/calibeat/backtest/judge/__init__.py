"""What the counts mean: measures, intervals, certificates and the verdict."""
