"""groundwatch: how much of what a vision-language model says about an image is not in the image."""

__version__ = "0.1.0"
