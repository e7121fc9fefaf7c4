"""Running plans: on a GPU, and on the emulator."""
