"""The public graph: what users construct, execute and store.

Owns the constructor, the binding of caller's buffers to tensors, execution, and the stored forms. Plans and
their selection are in planned.py, the builder methods in builders.py.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import serialize
from .buffers import device_name, is_buffer, read
from .dtypes import from_any
from .enums import cuda_graph_retention
from .errors import GraphError, StateError
from .graph import GraphContext
from .handle import Handle, checked
from .inputs import pairs
from .planned import PlannedGraph
from .target import Target
from .tensor import Tensor

Pack = Mapping[Any, Any] | Sequence[Any]


class Graph(PlannedGraph):
    """A graph of deep-learning operations, its plans, and their execution.

    Parameters
    ----------
    name
        Name for logs.
    io_data_type, intermediate_data_type, compute_data_type
        Types of inputs and outputs, of virtual tensors, and of arithmetic, where a tensor or node names none;
        framework types are accepted. The last two default to the first.
    handle
        Device and stream on which the graph runs.
    sm_count
        Plan for this many multiprocessors instead of all.
    sm_version
        Plan for this architecture (90 for sm_90) instead of the handle's.
    kernel_cache, cuda_graph_retention, is_cuda_graph_replay_expected
        Accepted for compatibility; what they ask for is so without them.
    device_property
        Refused: `target` names a device that is not here.
    is_dynamic_shape_enabled, is_override_shape_enabled
        Extents may be smaller at execute than declared: taken from the bound buffers, or given as overrides.
    target
        Plan for this target ("sm_90", "cpu", or a `Target`) instead of the device of the handle.
    """

    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        handle: Handle | None = None,
        sm_count: int | None = None,
        sm_version: int | None = None,
        kernel_cache: Any = None,
        device_property: Any = None,
        is_dynamic_shape_enabled: bool = False,
        is_override_shape_enabled: bool = False,
        cuda_graph_retention: cuda_graph_retention | None = None,
        *,
        is_cuda_graph_replay_expected: bool = False,
        target: Target | str | None = None,
    ) -> None:
        if device_property is not None:
            raise GraphError(
                "device_property", got=repr(device_property), expected="None; target= names a device"
            )
        io = from_any(io_data_type)
        context = GraphContext(
            name, io, from_any(intermediate_data_type) or io, from_any(compute_data_type) or io
        )
        owner = None if handle is None else checked(handle)
        dynamic = bool(is_dynamic_shape_enabled or is_override_shape_enabled)
        super().__init__(context, owner, _wanted(target, sm_version, sm_count, owner), dynamic)
        self._retention = cuda_graph_retention
        self._defaults: dict[Tensor, Any] = {}

    # Tensors that come from buffers.

    def tensor_like(self, template: Any, name: str = "", is_virtual: bool = False) -> Tensor:
        """A tensor with the extents, strides and type of another tensor or of a buffer.

        A buffer of one element on the CPU becomes a by-value scalar where the graph runs on a GPU.
        """
        if isinstance(template, Tensor):
            return self.tensor(
                template.dim, template.stride, template.data_type, is_virtual=is_virtual, name=name
            )
        buffer = read(template)
        if buffer.dim is None or buffer.stride is None or buffer.data_type is None:
            raise TypeError("tensor_like: a Tensor or a buffer with a shape is needed, got a bare address")
        scalar = buffer.device == "cpu" and all(d == 1 for d in buffer.dim) and not self.target.is_cpu
        return self.tensor(
            buffer.dim,
            buffer.stride,
            buffer.data_type,
            is_virtual=is_virtual,
            is_pass_by_value=scalar,
            name=name,
        )

    def _adopt(self, value: Any, node: str, port: str) -> Tensor:
        if not is_buffer(value):
            return super()._adopt(value, node, port)
        tensor = self.tensor_like(value, name=f"{node}::{port}")
        self._defaults[tensor] = value
        return tensor

    # Execution.

    def get_workspace_size(
        self,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Bytes of workspace of the selected plan; declared extents are maxima, so overrides do not change
        it.

        Raises
        ------
        StateError
            No plan is built.
        """
        return self.get_workspace_size_plan_at_index(self._selection.current() if self.plans else 0)

    def get_workspace_size_plan_at_index(
        self,
        index: int,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Bytes of workspace of a plan, which must be built. See `get_workspace_size`."""
        if index not in self._built:
            raise StateError("get_workspace_size: the plan is not built; call build() or build_plans() first")
        return self._built[index].workspace

    def empty_workspace(self, like: Any = None) -> Any:
        """A workspace for the selected plan, allocated by the library and on the device of `like` (NumPy by
        default).

        Raises
        ------
        TypeError
            `like` is neither a NumPy array nor a torch tensor.
        """
        size = self.get_workspace_size()
        if like is None or isinstance(like, np.ndarray):
            alignment = self._built[self._selection.current()].program.alignment
            memory = np.empty(size + alignment, np.uint8)
            start = -memory.ctypes.data % alignment
            return memory[start : start + size]
        if hasattr(like, "new_empty"):
            return like.new_empty(max(size, 1), dtype=_torch_uint8(like))
        raise TypeError(f"empty_workspace: like a NumPy array or a torch tensor, got {type(like).__name__}")

    def execute(
        self,
        tensor_dict: Pack,
        workspace: Any = None,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        tensor_uids: Sequence[int] | None = None,
    ) -> None:
        """Run the selected plan; a graph that is not built is built first.

        Parameters
        ----------
        tensor_dict
            Buffers by `Tensor`, uid or name; or a list of buffers, in the order of `tensor_uids`. Outputs are
            written. Extra entries are ignored.
        workspace
            `get_workspace_size()` bytes that nothing else uses meanwhile (`empty_workspace()`).
        handle
            Device and stream, instead of the graph's.
        override_uids, override_shapes, override_strides
            Extents and strides in force instead of the declared ones, for a graph made with
            `is_override_shape_enabled`; extents at most the declared ones.

        Raises
        ------
        GraphError
            A missing or wrong operand, override or workspace; nothing has been written then.
        """
        overrides = (override_uids, override_shapes, override_strides)
        self._run(None, tensor_dict, workspace, handle, overrides, tensor_uids)

    def execute_plan_at_index(
        self,
        tensor_dict: Pack,
        workspace: Any = None,
        index: int = 0,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        tensor_uids: Sequence[int] | None = None,
    ) -> None:
        """Run a plan by its index without selecting it; built first where it is not. See `execute`."""
        overrides = (override_uids, override_shapes, override_strides)
        self._run(index, tensor_dict, workspace, handle, overrides, tensor_uids)

    # Identity and storage.

    def key(self) -> int:
        """A number that two graphs share exactly when they are the same: operations, geometry, uids and
        names.
        """
        digest = hashlib.sha256(self.to_json().encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def to_json(self) -> str:
        """The validated graph as JSON; `deserialize` reads it."""
        self.validate()
        return serialize.graph_to_json(self, self._dynamic)

    def serialize(self, *, as_bytes: bool = False, include_kernels: bool = True) -> list[int] | bytes:
        """The selected plan with its graph, as bytes or as a list of their values.

        Parameters
        ----------
        include_kernels
            Without them the file is smaller, and the plan is built again when it is loaded.

        Raises
        ------
        StateError
            No plan is built.
        """
        index = self._selection.current()
        if index not in self._built:
            raise StateError("serialize: the selected plan is not built; call build() or build_plans() first")
        assert self._planning is not None
        candidate, target = self.plans[index], self._planning.target
        program = self._built[index].program if include_kernels else None
        stored = serialize.StoredPlan(
            self.to_json(),
            target.arch,
            target.sm_count,
            candidate.name,
            candidate.id,
            candidate.knobs,
            program,
        )
        data = serialize.plan_to_bytes(stored)
        return data if as_bytes else list(data)

    def deserialize(self, *arguments: Any, enforce_precompiled: bool = False) -> None:
        """Fill this empty graph: `deserialize(data)` or `deserialize(handle, data)`.

        A string is a graph as JSON; bytes or a list of their values are a plan, ready to execute afterwards.

        Parameters
        ----------
        enforce_precompiled
            Refuse a plan that was stored without kernels.

        Raises
        ------
        GraphError
            The data is no graph or plan, is damaged, or was made for another version or architecture.
        StateError
            This graph is not empty.
        """
        if len(arguments) not in (1, 2):
            raise TypeError(f"deserialize(data) or deserialize(handle, data), got {len(arguments)} arguments")
        *handles, data = arguments
        handle = checked(handles[0]) if handles and handles[0] is not None else self._handle
        if isinstance(data, str):
            self._dynamic, self._handle = serialize.graph_from_json(self, data), handle
            return
        stored = serialize.plan_from_bytes(_as_bytes(data))
        if stored.program is None and enforce_precompiled:
            raise GraphError(
                "plan file: enforce_precompiled", got="a plan without kernels", expected="one with kernels"
            )
        here = self._wanted if handle is None else handle.target
        if here is not None and here.arch != stored.arch:
            raise GraphError("plan file: architecture", got=stored.arch, expected=here.arch)
        if here is None:
            here = Target.current()
        target = here if here.arch == stored.arch else Target.named(stored.arch)
        # Everything is checked on a graph of its own, so that a file that is refused leaves this one empty.
        read = Graph(handle=handle, target=target.limited(stored.sm_count))
        read._dynamic = serialize.graph_from_json(read, stored.graph)
        if stored.program is not None and stored.program.tensors != read.problem.tensors:
            raise GraphError("plan file: tensors of the program", expected="those of its graph")
        read.create_execution_plan(stored.id, stored.knobs)
        if read.plans[0].name != stored.engine:
            raise GraphError("plan file: engine", got=stored.engine, expected=read.plans[0].name)
        if stored.program is not None:
            read._built[0] = read._load(stored.program)
        else:
            read._executable(0)
        self.take_over(read)
        self._dynamic, self._handle, self._wanted = read._dynamic, handle, read._wanted
        self._problem, self._planning, self._selection = read._problem, read._planning, read._selection
        self._built = read._built

    def inspect(self) -> dict[str, Any]:
        """The graph as plain data: context, tensors, nodes."""
        inspected: dict[str, Any] = json.loads(serialize.graph_to_json(self, self._dynamic))
        return inspected

    def get_cuda_graph_retention(self) -> cuda_graph_retention:
        """Whether captured graphs keep the plan alive."""
        return (
            cuda_graph_retention.PER_GRAPH
            if self._retention is None
            else cuda_graph_retention(self._retention)
        )

    def __repr__(self) -> str:
        return serialize.graph_to_json(self, self._dynamic)

    # Internals.

    def _run(
        self,
        index: int | None,
        pack: Pack,
        workspace: Any,
        handle: Handle | None,
        overrides: tuple[Any, Any, Any],
        uids: Sequence[int] | None,
    ) -> None:
        if handle is not None:
            checked(handle)
        elif self._handle is not None:
            self._handle.check()
        self._ensure_planned()
        if index is None:
            index = self._selection.current()
        self._selection.open(index)
        executable = self._built.get(index) or self._executable(index)
        if handle is not None and handle.ordinal != executable.device:
            raise GraphError(
                "device of the handle",
                got=device_name(handle.ordinal),
                expected=device_name(executable.device),
            )
        if self._defaults:
            pack, uids = _with_defaults(pack, uids, self._defaults), None
        owner = handle or self._handle
        executable.execute(pack, workspace, uids, overrides, None if owner is None else owner.stream)


def _wanted(
    target: Target | str | None, sm_version: int | None, sm_count: int | None, handle: Handle | None
) -> Target | None:
    """The target that the constructor names; None leaves it to the device at hand, asked when it is first
    needed.
    """
    if target is None and sm_version is not None:
        target = f"sm_{sm_version}"
    if target is None and sm_count is not None:
        target = Target.current() if handle is None else handle.target
    return None if target is None else Target.of(target).limited(sm_count)


def _with_defaults(
    pack: Pack, uids: Sequence[int] | None, defaults: Mapping[Tensor, Any]
) -> Mapping[Any, Any]:
    """The pack as a mapping, with the buffers that builder calls bound for tensors that it does not name."""
    named = pack if isinstance(pack, Mapping) else dict(pairs(pack, uids))
    missing = {t.uid: b for t, b in defaults.items() if not any(k in named for k in (t, t.uid, t.name))}
    return {**missing, **named}


def _as_bytes(data: Any) -> bytes:
    """A plan file given as bytes or as a list of their values."""
    if not isinstance(data, (bytes, bytearray, memoryview, list, tuple)):
        raise TypeError(
            f"deserialize: bytes, a list of byte values or a JSON string, got {type(data).__name__}"
        )
    try:
        return bytes(data)
    except (TypeError, ValueError) as error:
        raise GraphError(f"plan file: no list of byte values ({error})") from None


def _torch_uint8(like: Any) -> Any:
    """torch.uint8, from the torch that made `like`: nothing is imported here."""
    return sys.modules["torch"].uint8
