"""The reference judge: decides claims from what is known of the image, without a model."""

from groundwatch.verification.engines.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine"]
