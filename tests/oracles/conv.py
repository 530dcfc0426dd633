"""Convolution and its gradients in torch float64; the gradients by autograd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from frazil import convolution_mode, data_type

FORWARD = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d}


def oracle(made: Any) -> dict[str, np.ndarray]:
    """Results of a set-up case (see `tests.harness`) by output port."""
    ((port, tensor),) = made.outputs.items()
    result = evaluate(port, made.args(), tuple(tensor.dim))
    if tensor.data_type is data_type.INT8:
        result = np.clip(result, -128, 127)
    return {port: result}


def evaluate(port: str, args: Mapping[str, Any], dim: tuple[int, ...]) -> np.ndarray:
    """Y, DX or DW, of extents `dim`, for the arguments of the builder that returns it."""
    if port == "Y":
        return forward(_double(args["image"]), _double(args["weight"]), args).numpy()
    unknown = torch.zeros(dim, dtype=torch.float64, requires_grad=True)
    if port == "DX":
        result = forward(unknown, _double(args["filter"]), args)
    else:
        result = forward(_double(args["image"]), unknown, args)
    (gradient,) = torch.autograd.grad(result, unknown, _double(args["loss"]))
    return gradient.numpy()


def forward(image: torch.Tensor, weight: torch.Tensor, args: Mapping[str, Any]) -> torch.Tensor:
    """Y in float64, differentiable in image and weight."""
    rank = image.dim() - 2
    both = args.get("padding") or [0] * rank
    pre, post = args.get("pre_padding") or both, args.get("post_padding") or both
    # torch.nn.functional.pad counts axes from the last one.
    amounts = [x for pair in reversed(list(zip(pre, post, strict=True))) for x in pair]
    padded = torch.nn.functional.pad(image, amounts)
    if args.get("convolution_mode") is convolution_mode.CONVOLUTION:
        weight = weight.flip(tuple(range(2, 2 + rank)))
    stride, dilation = args.get("stride") or [1] * rank, args.get("dilation") or [1] * rank
    if 0 in (image.shape[0], image.shape[1], weight.shape[0]):
        # torch refuses some empty operands: take the extents from ones of extent 1, and sum over nothing.
        one = FORWARD[rank](
            padded.new_zeros(1, 1, *padded.shape[2:]),
            weight.new_zeros(1, 1, *weight.shape[2:]),
            stride=tuple(stride),
            dilation=tuple(dilation),
        )
        empty = one.new_zeros(image.shape[0], weight.shape[0], *one.shape[2:])
        return empty + 0 * (image.sum() + weight.sum())
    return FORWARD[rank](padded, weight, stride=tuple(stride), dilation=tuple(dilation))


def _double(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.astype(np.float64)))
