"""The public enumerations but for `data_type` (dtypes.py). Values are those that existing graph code stores
and logs.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "attention_implementation",
    "behavior_note",
    "build_plan_policy",
    "convolution_mode",
    "cuda_graph_retention",
    "diagonal_alignment",
    "heur_mode",
    "knob_type",
    "moe_grouped_matmul_mode",
    "norm_forward_phase",
    "numerical_note",
    "reduction_mode",
    "reshape_mode",
    "scalar_type",
    "tensor_reordering",
]


class heur_mode(IntEnum):
    """Which candidates planning offers."""

    A = 0
    B = 1
    FALLBACK = 2
    OPENSOURCE = 3


class build_plan_policy(IntEnum):
    """Build the first candidate that builds, or all of them."""

    HEURISTICS_CHOICE = 0
    ALL = 1


class behavior_note(IntEnum):
    """What a plan does besides computing."""

    RUNTIME_COMPILATION = 1
    REQUIRES_FILTER_INT8x32_REORDER = 2
    REQUIRES_BIAS_INT8x32_REORDER = 3
    SUPPORTS_CUDA_GRAPH_NATIVE_API = 4
    CUBLASLT_DEPENDENCY = 5


class numerical_note(IntEnum):
    """How a plan computes."""

    TENSOR_CORE = 1
    DOWN_CONVERT_INPUTS = 2
    REDUCED_PRECISION_REDUCTION = 3
    FFT = 4
    NONDETERMINISTIC = 5
    WINOGRAD = 6
    WINOGRAD_TILE_4x4 = 7
    WINOGRAD_TILE_6x6 = 8
    WINOGRAD_TILE_13x13 = 9
    STRICT_NAN_PROP = 10


class knob_type(IntEnum):
    """Names of the tuning choices that a plan may expose; ids from 1000 on belong to open engines."""

    NOT_SET = 0
    SWIZZLE = 1
    TILE_SIZE = 2
    EDGE = 3
    MULTIPLY = 4
    SPLIT_K_BUF = 5
    TILEK = 6
    STAGES = 7
    REDUCTION_MODE = 8
    SPLIT_K_SLC = 9
    IDX_MODE = 10
    SPECFILT = 11
    KERNEL_CFG = 12
    WORKSPACE = 13
    TILE_CGA_M = 14
    TILE_CGA_N = 15
    BLOCK_SIZE = 16
    OCCUPANCY = 17
    ARRAY_SIZE_PER_THREAD = 18
    SPLIT_COLS = 19
    TILE_ROWS = 20
    TILE_COLS = 21
    LOAD_SIZE = 22
    CTA_COUNT = 23
    STREAM_K = 24
    SPLIT_P_SLC = 25
    TILE_M = 26
    TILE_N = 27
    WARP_SPEC_CFG = 28
    SWAP_AB = 29
    INPUT_TMA_ENABLE = 30
    OUTPUT_TMA_ENABLE = 31
    TILE_CGA = 32
    SCHED_POLICY = 1000
    PACK_GQA = 1001
    SPLIT_KV = 1002
    PIPELINE_ARCH = 1003
    MMA_TILE_M = 1004
    MMA_TILE_N = 1005
    MMA_TILE_K = 1006
    CTA_GROUP = 1007
    WARPS_M = 1008
    WARPS_N = 1009


class tensor_reordering(IntEnum):
    """Element orders beyond strides."""

    NONE = 0
    INT8x32 = 1
    F16x16 = 2
    F8_128x4 = 3


class norm_forward_phase(IntEnum):
    """INFERENCE returns Y alone; TRAINING also the statistics that the backward needs."""

    NOT_SET = 0
    INFERENCE = 1
    TRAINING = 2


class reduction_mode(IntEnum):
    """How a reduction combines elements."""

    NOT_SET = 0
    ADD = 1
    MUL = 2
    MIN = 3
    MAX = 4
    AMAX = 5
    AVG = 6
    NORM1 = 7
    NORM2 = 8
    MUL_NO_ZEROS = 9


class diagonal_alignment(IntEnum):
    """Which corner of the score matrix the diagonal of a banded mask passes through."""

    TOP_LEFT = 0
    BOTTOM_RIGHT = 1


class attention_implementation(IntEnum):
    """Constrains which of the closed library's attention implementations may serve; open engines ignore
    it.
    """

    AUTO = 0
    COMPOSITE = 1
    UNIFIED = 2


class moe_grouped_matmul_mode(IntEnum):
    """How a grouped matmul moves tokens."""

    NONE = 1
    GATHER = 2
    SCATTER = 3
    COMBINE = 4


class scalar_type(IntEnum):
    """RUNTIME_PARAM: given at execute. COMPILE_TIME_CONST: part of the graph."""

    RUNTIME_PARAM = 0
    COMPILE_TIME_CONST = 1


class reshape_mode(IntEnum):
    """VIEW_ONLY must not move data; LOGICAL keeps the row-major order of elements and may copy."""

    VIEW_ONLY = 1
    LOGICAL = 2


class convolution_mode(IntEnum):
    """CROSS_CORRELATION is what frameworks call convolution; CONVOLUTION flips the filter."""

    CONVOLUTION = 1
    CROSS_CORRELATION = 2


class cuda_graph_retention(IntEnum):
    """Whether a captured graph keeps the plan it runs alive."""

    PER_GRAPH = 0
    NONE = 1
