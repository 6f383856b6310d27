"""Training one adapter and head over a frozen text encoder, for label tasks."""
