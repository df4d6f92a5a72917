"""Checkpoints of models: where they lie, whether they are complete, what their configuration says."""
