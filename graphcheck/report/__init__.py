"""Reports: pure functions of a run folder. Works where torch and transformers are absent."""
