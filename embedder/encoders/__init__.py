"""Encoders: networks over features or images, whose layer before the classes is the vector."""
