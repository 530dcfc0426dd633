"""Effective geometry: which extents and strides are in force for a bound buffer, and whether it holds them.

In order: an override, the buffer's own metadata, the declaration; a bare address has only the first and the
last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .buffers import Buffer
from .errors import GraphError
from .geometry import span
from .spec import TensorSpec

Override = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Place:
    """Extents and strides in force, and what they take in memory.

    Attributes
    ----------
    elements, nbytes
        From the first to behind the last; for a packed tensor, what its buffer holds.
    """

    dim: tuple[int, ...]
    stride: tuple[int, ...]
    elements: int
    nbytes: int


def geometry(
    spec: TensorSpec, buffer: Buffer, override: Override | None
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Extents and strides in force with the elements they span, and the check that the buffer holds them."""
    where: dict[str, Any] = {"tensor": spec.name, "uid": spec.uid}
    if buffer.dim is None or buffer.stride is None:  # a bare address says nothing of itself
        dim, stride = override or (spec.dim, spec.stride)
        return dim, stride, span(dim, stride)
    if any(s < 0 for s in buffer.stride):
        raise GraphError(
            "strides of the bound buffer", got=buffer.stride, expected="no negative stride", **where
        )
    held = span(buffer.dim, buffer.stride)
    if spec.is_ragged:
        dim, stride = override or (spec.dim, spec.stride)
        _check_packed(dim, stride, buffer, where)
        return dim, stride, held
    if override is None and buffer.dim == spec.dim:
        return buffer.dim, buffer.stride, held
    if override is None and spec.dynamic and len(buffer.dim) == len(spec.dim):
        check_maxima(spec, buffer.dim)
        return buffer.dim, buffer.stride, held
    dim, stride = override or (spec.dim, spec.stride)
    needed = span(dim, stride)
    if not buffer.is_dense and override is None:
        got = f"{buffer.dim} with strides {buffer.stride}"
        raise GraphError(
            "shape of the bound buffer", got=got, expected=f"{dim}, or memory without gaps", **where
        )
    if held < needed:
        got = f"{held} elements (shape {buffer.dim})"
        raise GraphError(
            "size of the bound buffer", got=got, expected=f"{needed} (shape {dim}, strides {stride})", **where
        )
    return dim, stride, needed


def same_place(spec: TensorSpec, place: Place) -> bool:
    """Whether the geometry in force addresses what the declared one does; axes of extent 1 do not count."""
    triples = zip(place.dim, place.stride, spec.stride, strict=True)
    return place.dim == spec.dim and all(d <= 1 or s == e for d, s, e in triples)


def _check_packed(
    dim: tuple[int, ...], stride: tuple[int, ...], buffer: Buffer, where: Mapping[str, Any]
) -> None:
    """Refuse a buffer that cannot hold a packed tensor.

    It may be (T, H, D) with the declared inner extents and strides and any T, have the declared shape and
    inner strides, or be contiguous memory, which is read as declared.
    """
    assert buffer.dim is not None and buffer.stride is not None
    wrong_inner = False
    if len(dim) == 4 and len(buffer.dim) == 3:
        # (B, H, S, D) in declaration is (T, H, D) in memory, T standing for B and S.
        wrong_inner = buffer.dim[1:] != (dim[1], dim[3])
        if not wrong_inner and _same_steps(buffer, (stride[2], stride[1], stride[3])):
            return
    if buffer.dim == dim and _same_steps(buffer, (buffer.stride[0], *stride[1:])):
        return
    if not buffer.is_contiguous or wrong_inner:
        raise GraphError(
            "layout of the bound packed buffer",
            got=f"shape {buffer.dim} with strides {buffer.stride}",
            expected=f"(T, H, D) or contiguous memory for {dim} with strides {stride}",
            **where,
        )


def _same_steps(buffer: Buffer, steps: Sequence[int]) -> bool:
    """Whether strides agree on every axis on which something lies behind the first element."""
    assert buffer.dim is not None and buffer.stride is not None
    return all(d <= 1 or a == b for d, a, b in zip(buffer.dim, buffer.stride, steps, strict=True))


def check_maxima(spec: TensorSpec, dim: Sequence[int]) -> None:
    if any(not 0 <= d <= most for d, most in zip(dim, spec.dim, strict=True)):
        got, most = tuple(dim), f"at most the declared {spec.dim}, axis by axis"
        raise GraphError(
            "extents of a dynamic tensor", tensor=spec.name, uid=spec.uid, got=got, expected=most
        )
