"""From what was recorded to outcomes, verdicts, loci and findings: pure functions."""
