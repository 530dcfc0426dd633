"""The integer values of the public enumerations, and the kinds of the errors."""

from __future__ import annotations

import pytest

import frazil
from frazil import GraphError, StateError, data_type

HALF, FLOAT, BF16, INT32 = data_type.HALF, data_type.FLOAT, data_type.BFLOAT16, data_type.INT32


ENUMS = {
    "heur_mode": {"A": 0, "B": 1, "FALLBACK": 2, "OPENSOURCE": 3},
    "build_plan_policy": {"HEURISTICS_CHOICE": 0, "ALL": 1},
    "behavior_note": {
        "RUNTIME_COMPILATION": 1, "REQUIRES_FILTER_INT8x32_REORDER": 2, "REQUIRES_BIAS_INT8x32_REORDER": 3,
        "SUPPORTS_CUDA_GRAPH_NATIVE_API": 4, "CUBLASLT_DEPENDENCY": 5,
    },
    "numerical_note": {
        "TENSOR_CORE": 1, "DOWN_CONVERT_INPUTS": 2, "REDUCED_PRECISION_REDUCTION": 3, "FFT": 4,
        "NONDETERMINISTIC": 5, "WINOGRAD": 6, "WINOGRAD_TILE_4x4": 7, "WINOGRAD_TILE_6x6": 8,
        "WINOGRAD_TILE_13x13": 9, "STRICT_NAN_PROP": 10,
    },
    "knob_type": {
        "NOT_SET": 0, "SWIZZLE": 1, "TILE_SIZE": 2, "EDGE": 3, "MULTIPLY": 4, "SPLIT_K_BUF": 5, "TILEK": 6,
        "STAGES": 7, "REDUCTION_MODE": 8, "SPLIT_K_SLC": 9, "IDX_MODE": 10, "SPECFILT": 11, "KERNEL_CFG": 12,
        "WORKSPACE": 13, "TILE_CGA_M": 14, "TILE_CGA_N": 15, "BLOCK_SIZE": 16, "OCCUPANCY": 17,
        "ARRAY_SIZE_PER_THREAD": 18, "SPLIT_COLS": 19, "TILE_ROWS": 20, "TILE_COLS": 21, "LOAD_SIZE": 22,
        "CTA_COUNT": 23, "STREAM_K": 24, "SPLIT_P_SLC": 25, "TILE_M": 26, "TILE_N": 27, "WARP_SPEC_CFG": 28,
        "SWAP_AB": 29, "INPUT_TMA_ENABLE": 30, "OUTPUT_TMA_ENABLE": 31, "TILE_CGA": 32, "SCHED_POLICY": 1000,
        "PACK_GQA": 1001, "SPLIT_KV": 1002, "PIPELINE_ARCH": 1003, "MMA_TILE_M": 1004, "MMA_TILE_N": 1005,
        "MMA_TILE_K": 1006, "CTA_GROUP": 1007, "WARPS_M": 1008, "WARPS_N": 1009,
    },
    "tensor_reordering": {"NONE": 0, "INT8x32": 1, "F16x16": 2, "F8_128x4": 3},
    "norm_forward_phase": {"NOT_SET": 0, "INFERENCE": 1, "TRAINING": 2},
    "reduction_mode": {
        "NOT_SET": 0, "ADD": 1, "MUL": 2, "MIN": 3, "MAX": 4, "AMAX": 5, "AVG": 6, "NORM1": 7, "NORM2": 8,
        "MUL_NO_ZEROS": 9,
    },
    "diagonal_alignment": {"TOP_LEFT": 0, "BOTTOM_RIGHT": 1},
    "attention_implementation": {"AUTO": 0, "COMPOSITE": 1, "UNIFIED": 2},
    "moe_grouped_matmul_mode": {"NONE": 1, "GATHER": 2, "SCATTER": 3, "COMBINE": 4},
    "scalar_type": {"RUNTIME_PARAM": 0, "COMPILE_TIME_CONST": 1},
    "reshape_mode": {"VIEW_ONLY": 1, "LOGICAL": 2},
    "convolution_mode": {"CONVOLUTION": 1, "CROSS_CORRELATION": 2},
    "cuda_graph_retention": {"PER_GRAPH": 0, "NONE": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", ENUMS)
def test_integer_values_of_enums(name: str) -> None:
    assert {m.name: int(m) for m in getattr(frazil, name)} == ENUMS[name]


def test_every_public_enum_is_listed() -> None:
    from frazil import enums

    assert set(enums.__all__) == set(ENUMS)


def test_errors_are_of_the_kinds_that_users_catch() -> None:
    assert issubclass(GraphError, ValueError) and issubclass(StateError, RuntimeError)
    assert issubclass(frazil.CudaError, RuntimeError)
    assert frazil.cudnnGraphNotSupportedError is frazil.NotSupported
    assert not issubclass(frazil.NotSupported, (ValueError, RuntimeError))
    for kind in (GraphError, StateError, frazil.CudaError, frazil.NotSupported):
        assert issubclass(kind, frazil.FrazilError)
