"""The settings that an engine is started with: a pure function of the base, the device and what is wanted."""
