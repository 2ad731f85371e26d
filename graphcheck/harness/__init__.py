"""The harness: from a matrix file to verdicts. Never imports torch, never touches a GPU."""
