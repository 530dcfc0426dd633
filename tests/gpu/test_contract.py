"""The execute contract on a device: asynchronous, on the right stream, capturable, from any thread, checked
before launch.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

import frazil
from frazil import GraphError, data_type

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def graph(dim: tuple[int, ...] = (64, 96), **rest: Any) -> tuple[frazil.Graph, list[frazil.Tensor]]:
    """gelu(x + bias) in bfloat16, built."""
    g = frazil.Graph(
        io_data_type=data_type.BFLOAT16,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=data_type.FLOAT,
        **rest,
    )
    x, bias = g.tensor(dim, name="x"), g.tensor((1, dim[1]), name="bias")
    y = g.gelu(g.bias(x, bias)).set_output(True).set_name("y")
    g.build()
    return g, [x, bias, y]


def data(dim: tuple[int, ...] = (64, 96)) -> list[Any]:
    torch.manual_seed(0)
    make = {"device": "cuda", "dtype": torch.bfloat16}
    return [torch.randn(dim, **make), torch.randn((1, dim[1]), **make), torch.full(dim, float("nan"), **make)]


def right(x: Any, bias: Any) -> Any:
    return torch.nn.functional.gelu((x.double() + bias.double()).float()).to(torch.bfloat16)


def check(values: list[Any]) -> None:
    torch.testing.assert_close(values[2], right(values[0], values[1]), rtol=1e-2, atol=1e-2)


def test_runs_on_the_current_stream_of_torch() -> None:
    g, tensors = graph()
    values = data()
    stream = torch.cuda.Stream()
    values[0].mul_(1)  # torch loads its kernel here, which waits for the device
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        values[0].mul_(2)
        g.execute(dict(zip(tensors, values, strict=True)))
        assert not stream.query(), "execute waited for the stream"
    stream.synchronize()
    check(values)


def test_runs_on_the_handles_stream() -> None:
    stream = torch.cuda.Stream()
    handle = frazil.create_handle()
    frazil.set_stream(handle, stream.cuda_stream)
    g, tensors = graph(handle=handle)
    values = data()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
    g.execute(dict(zip(tensors, values, strict=True)))
    assert not stream.query()
    stream.synchronize()
    check(values)


def test_capture_and_replay_give_the_bits_of_an_eager_run() -> None:
    g, tensors = graph()
    values = data()
    g.execute(dict(zip(tensors, values, strict=True)))
    eager = values[2].clone()
    captured = torch.cuda.CUDAGraph()
    values[2].fill_(float("nan"))
    with torch.cuda.graph(captured):
        g.execute(dict(zip(tensors, values, strict=True)))
    captured.replay()
    assert torch.equal(values[2], eager)
    values[0].neg_()
    del g
    captured.replay()
    check(values)


def test_c50_a_thread_that_never_touched_cuda() -> None:
    g, tensors = graph()
    values = data()
    torch.cuda.synchronize()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            g.execute({t.uid: v.data_ptr() for t, v in zip(tensors, values, strict=True)})
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failed
    check(values)


def test_threads_on_one_plan_with_buffers_of_their_own() -> None:
    g, tensors = graph()
    sets = [data() for _ in range(8)]
    barrier = threading.Barrier(8)

    def work(values: list[Any]) -> None:
        barrier.wait()
        for _ in range(200):
            g.execute(dict(zip(tensors, values, strict=True)))

    threads = [threading.Thread(target=work, args=(s,)) for s in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    for values in sets:
        check(values)


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda v: [v[0].cpu(), *v[1:]], "device of the bound buffer: got cpu, expected cuda:0"),
        (lambda v: [v[0].float(), *v[1:]], "data type of the bound buffer: got FLOAT, expected BFLOAT16"),
        (lambda v: [torch.zeros(64 * 96 + 1, device="cuda", dtype=torch.bfloat16)[1:], *v[1:]], "alignment"),
        (
            lambda v: [torch.zeros(96, 64, device="cuda", dtype=torch.bfloat16).t(), *v[1:]],
            "strides of the bound",
        ),
        (lambda v: v[:2], "missing a buffer for this output"),
    ],
)
def test_wrong_operands_are_refused_before_anything_is_launched(change: Any, text: str) -> None:
    g, tensors = graph()
    values = data()
    with pytest.raises(GraphError, match=text):
        g.execute(dict(zip(tensors, change(values), strict=False)))
    torch.cuda.synchronize()
    assert values[2].isnan().all()


def test_a_plan_made_for_the_architecture_elsewhere_runs_here() -> None:
    g, _ = graph(target=frazil.Target.current().arch)
    blob = g.serialize(as_bytes=True)
    loaded = frazil.Graph()
    loaded.deserialize(blob)
    values = data()
    loaded.execute(dict(zip(("x", "bias", "y"), values, strict=True)))
    torch.cuda.synchronize()
    check(values)


@pytest.mark.parametrize(
    "name", ["gelu_approx_tanh_backward", "swish_backward", "gelu_backward", "tanh_backward"]
)
def test_gradients_of_very_large_inputs_are_finite(name: str) -> None:
    g = frazil.Graph(io_data_type=data_type.FLOAT, compute_data_type=data_type.FLOAT)
    loss, x = g.tensor((4,)), g.tensor((4,))
    y = getattr(g, name)(loss, x).set_output(True)
    values = torch.tensor([3e38, -3e38, 1e20, -1e20], device="cuda")
    out = torch.full((4,), float("nan"), device="cuda")
    g.execute({loss: torch.ones(4, device="cuda"), x: values, y: out})
    torch.cuda.synchronize()
    expected = [0.0] * 4 if name == "tanh_backward" else [1.0, 0.0, 1.0, 0.0]
    torch.testing.assert_close(out.cpu(), torch.tensor(expected))
