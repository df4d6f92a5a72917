"""The load generator: a closed loop of streams, timed at the arrival of the bytes, that watches itself."""
