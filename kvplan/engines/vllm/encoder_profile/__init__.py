"""The profile run of vision and audio encoders: the largest items of a class, and their memory."""
