"""Frazil: a graph of deep-learning operations as one asynchronous launch.

The public names. `import frazil as cudnn` serves graph code written for cudnn-frontend.
"""

from __future__ import annotations

from .api import Graph
from .context import ensure_current_context
from .driver import DeviceInfo, device_info
from .dtypes import data_type
from .engine import Claim, Config, Decline, Tier
from .enums import (
    attention_implementation,
    behavior_note,
    build_plan_policy,
    convolution_mode,
    cuda_graph_retention,
    diagonal_alignment,
    heur_mode,
    knob_type,
    moe_grouped_matmul_mode,
    norm_forward_phase,
    numerical_note,
    reduction_mode,
    reshape_mode,
    scalar_type,
    tensor_reordering,
)
from .errors import CudaError, FrazilError, GraphError, NotSupported, StateError
from .graph import GraphContext
from .handle import Handle, create_handle, destroy_handle, get_stream, set_stream
from .node import Node
from .plan import Candidate, Planning
from .program import Program
from .spec import Problem
from .target import Target
from .tensor import Tensor
from .version import __version__

pygraph = Graph
handle = Handle
tensor = Tensor
cudnnGraphNotSupportedError = NotSupported

__all__ = [
    "Candidate",
    "Claim",
    "Config",
    "CudaError",
    "Decline",
    "DeviceInfo",
    "FrazilError",
    "Graph",
    "GraphContext",
    "GraphError",
    "Handle",
    "Node",
    "NotSupported",
    "Planning",
    "Problem",
    "Program",
    "StateError",
    "Target",
    "Tensor",
    "Tier",
    "__version__",
    "attention_implementation",
    "behavior_note",
    "build_plan_policy",
    "convolution_mode",
    "create_handle",
    "cuda_graph_retention",
    "cudnnGraphNotSupportedError",
    "data_type",
    "destroy_handle",
    "device_info",
    "diagonal_alignment",
    "ensure_current_context",
    "get_stream",
    "handle",
    "heur_mode",
    "knob_type",
    "moe_grouped_matmul_mode",
    "norm_forward_phase",
    "numerical_note",
    "pygraph",
    "reduction_mode",
    "reshape_mode",
    "scalar_type",
    "set_stream",
    "tensor",
    "tensor_reordering",
]
