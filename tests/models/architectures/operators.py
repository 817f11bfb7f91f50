"""Lets a torchvision that was built for another build of torch be imported.

It brings its transforms, which are Python, and no compiled operators; of two of them it asks for the names.
"""

import torch

for operator in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, operator):
        torch.library.define(f"torchvision::{operator}", "(Tensor d, Tensor s, float t) -> Tensor")
