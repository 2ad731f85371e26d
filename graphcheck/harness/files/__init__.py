"""The files that users keep: matrices, suites, checkpoints, goldens, calibrations; read, checked, written."""
