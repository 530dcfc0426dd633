"""One kernel for a graph of elementwise operations with broadcasting.

Each program computes BLOCK elements of the output space, whose axes have been merged as far as all operands
allow. Operands are addressed by strides, 0 where they broadcast; INNER says at compile time which have stride
1 or 0 along the last axis, so that those are read in whole vectors.
"""

import triton
import triton.language as tl

from .device.expr import apply


@triton.jit
def _offset(index, shape, strides, FIRST: tl.constexpr, RANK: tl.constexpr, INNER: tl.constexpr):
    """Element offsets of one operand for linear indices of the output space."""
    rest = index
    offset = tl.zeros_like(index)
    for back in tl.static_range(RANK):
        if back == RANK - 1:
            position = rest
        else:
            position = rest % shape[RANK - 1 - back]
            rest = rest // shape[RANK - 1 - back]
        if back > 0 or INNER == 2:
            offset += position * strides[FIRST + RANK - 1 - back]
        elif INNER == 1:
            offset += position
    return offset


@triton.jit
def pointwise(
    inputs,
    outputs,
    scalars,
    n,
    shape,
    strides,
    STEPS: tl.constexpr,
    RESULTS: tl.constexpr,
    INNER: tl.constexpr,
    BOOLEAN: tl.constexpr,
    RANK: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Evaluate STEPS over `inputs` and `scalars`; store value RESULTS[i] to output i, as 0 or 1 where
    BOOLEAN[i].
    """
    block = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    index = block * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    values = ()
    for i in tl.static_range(len(inputs)):
        offset = _offset(index, shape, strides, i * RANK, RANK, INNER[i])
        values = values + (tl.load(inputs[i] + offset, mask=mask, other=0).to(tl.float32),)
    for i in tl.static_range(len(scalars)):
        values = values + (tl.full([BLOCK], 0.0, tl.float32) + scalars[i],)
    for s in tl.static_range(len(STEPS)):
        values = values + (
            apply(
                STEPS[s][0],
                values[STEPS[s][1]],
                values[STEPS[s][2]],
                values[STEPS[s][3]],
                STEPS[s][4],
                STEPS[s][5],
                STEPS[s][6],
            ),
        )
    for o in tl.static_range(len(outputs)):
        offset = _offset(index, shape, strides, (len(inputs) + o) * RANK, RANK, INNER[len(inputs) + o])
        value = values[RESULTS[o]]
        if BOOLEAN[o]:
            tl.store(outputs[o] + offset, (value != 0).to(tl.int8), mask=mask)
        else:
            tl.store(outputs[o] + offset, value.to(outputs[o].dtype.element_ty), mask=mask)
